"""Another machine: steps from the vendor's figures, as `penstock plan` has them."""
import math
from collections.abc import Iterator
from dataclasses import replace

from penstock.compute.steptime import Roofline, Split
from penstock.core.catalogue.part import Part
from penstock.study.explain.case import Case, Change
from penstock.study.plan.memory import room


class OtherHardware:
    each = True

    def changes(self, case: Case) -> Iterator[Change]:
        if case.form is None:
            return
        stored, config = case.form.stored, case.config
        for name, part in sorted(case.parts.items(), key=lambda item: math.inf if item[1].price is None else item[1].price):
            space = room(stored, part, Split(), config.max_num_batched_tokens, config.max_num_seqs)
            fits = space.kv_tokens // config.block_size * config.block_size
            wanted = config.max_num_seqs * (config.max_model_len or 0)
            tokens = max(min(fits, wanted), min(fits, config.kv_tokens or 0))
            if tokens < min(config.max_model_len or 0, config.kv_tokens or 0):
                continue
            way = replace(case.way, config=replace(config, kv_tokens=tokens), timer=Roofline(stored.program, stored.numbers, part))
            yield Change(name, way, costs(part), here=False, source="from the vendor's figures")

    def unknown(self, case: Case) -> str | None:
        return None if case.forms is not None else "the model's config was not found here"


def costs(part: Part) -> tuple[str, ...]:
    """What is known of its price and power, in a sentence."""
    told = [f"{value:{form}} {unit}" for value, form, unit in ((part.price, ".3g", "dollars an hour"), (part.power, ",.0f", "W"))
            if value is not None]
    return (", ".join(told),) if told else ()
