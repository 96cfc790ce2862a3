"""Fewer bits a weight: what a step reads once, and with rounded rows what it computes."""
from collections.abc import Iterator, Mapping
from dataclasses import replace

from penstock.study.explain.case import Case, Change, becomes

# What it costs brook in nats of KL and in tokens that change, the least first; bench/quant_drift.py, as docs/quantization.md tells.
DRIFT: Mapping[str, tuple[str, str]] = {
    "int8": ("0.0003", "1.6 %"), "int8:activations=int8": ("0.0018", "3.3 %"), "int4": ("0.0233", "10.9 %"),
    "int4:activations=int8": ("0.0246", "11.1 %"),
}
SMALLER = 0.97  # of the weights' bytes: a format that saves less changes nothing


class Weights:
    each = True

    def changes(self, case: Case) -> Iterator[Change]:
        for quant, (kl, flips) in DRIFT.items():
            config = replace(case.config, quant=quant)
            form = case.formed(config)
            rounds = "activations" in quant and "activations" not in case.config.quant
            if form is None or quant == case.config.quant or (form.weight_bytes > SMALLER * case.weight_bytes and not rounds):
                continue
            timed = case.timer_of(config, form)
            if timed is not None:
                timer, source = timed
                smaller = becomes(case.weight_bytes, form.weight_bytes)
                costs = (*(() if smaller is None else (f"weights {smaller}",)),
                         f"brook moves by {kl} nats and changes {flips} of its tokens; bench/quant_drift.py measures other models")
                yield Change(f"--quant {quant}", replace(case.way, config=config, timer=timer), costs, source=source, drift=float(kl))

    def unknown(self, case: Case) -> str | None:
        if case.forms is None:
            return "the model's config was not found here, so its size in other formats is not known"
        if case.form is not None and case.form.lacking:
            return f"the limits lack the rates of products in {', '.join(case.form.lacking)}: `penstock limits --fresh` measures them"
        if case.form is None or case.form.roof is None:
            return "the limits of this machine are not known: `penstock limits` measures them"
        return None
