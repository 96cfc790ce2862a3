"""Fewer bits for keys and values: more of them fit, and attention reads less."""
from collections.abc import Iterator
from dataclasses import replace
from math import inf

from penstock.study.explain.case import Case, Change, Form, becomes

HALF = "bfloat16"
CODED = ("fp8", "int8", "int4")


class KV:
    each = False

    def changes(self, case: Case) -> Iterator[Change]:
        present = case.formed(case.config, case.config.kv_dtype)
        if case.config.dtype == "float32":
            config = replace(case.config, dtype=HALF, kv_dtype=HALF)
            form = padded(case.formed(config), case, present)
            if form is not None:
                yield from self._change(case, f"--dtype {HALF}", form, replace(config, kv_tokens=self._tokens(case, form)), (
                    "weights and products are rounded to bfloat16, too",), True)
        for name in CODED:
            form = padded(case.formed(case.config, name), case, present)
            if form is not None and form.kv_bytes_per_token < case.kv_bytes_per_token:
                config = replace(case.config, kv_tokens=self._tokens(case, form))
                here = name in form.kv_formats
                costs = ("its drift is not measured yet",) if here else ("this engine does not support it yet",)
                yield from self._change(case, f"--kv-dtype {name}", form, config, costs, here)

    def unknown(self, case: Case) -> str | None:
        return None

    def _tokens(self, case: Case, form: Form) -> int:
        """As many as fit where the present ones are."""
        blocks = int((case.config.kv_tokens or 0) * case.kv_bytes_per_token / form.kv_bytes_per_token) // case.config.block_size
        return blocks * case.config.block_size

    def _change(self, case: Case, option: str, form: Form, config: object, costs: tuple[str, ...], here: bool) -> Iterator[Change]:
        timed = case.timer_of(config, form)  # type: ignore[arg-type]
        if timed is not None:
            smaller = becomes(case.kv_bytes_per_token, form.kv_bytes_per_token)
            told = () if smaller is None else (f"{smaller} a token",)
            yield Change(option, replace(case.way, config=config, timer=timed[0]), (*told, *costs), here, timed[1], inf)  # type: ignore[arg-type]


def padded(form: Form | None, case: Case, present: Form | None) -> Form | None:
    """With the bytes that the engine would keep: times those of the format as it does of the present one."""
    if form is None or present is None:
        return form
    kept = form.kv_bytes_per_token * case.kv_bytes_per_token / present.kv_bytes_per_token
    return replace(form, stored=replace(form.stored, kv_bytes_per_token=kept))
