"""This machine as a part of the catalogue: `--hardware here`, from the limits that were measured of it."""
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from penstock.compute.formats import CODES, ROUNDED
from penstock.core.catalogue.part import STAND_INS, computes, computes_codes
from penstock.core.errors import UsageError
from penstock.core.hardware import Hardware, Products
from penstock.serve.engine.machine import look, measured_limits
from penstock.study.plan.configuration import ROOFLINE, Configuration

HERE = "here"
LIKE = "epyc-9654"  # what is not measured (what a kernel costs beside its bytes, links) is taken from a processor of the catalogue
PLAIN = {"fp32": "fp32", "bf16": "bf16"}  # weight format -> the type that a model of it is computed in
CODED = {form + rounded: dtype for rounded, dtype in (("", "bf16"), (ROUNDED["int8"], "int8")) for form in CODES}


def told_here(
    memory_bytes: int | None = None, limits: Hardware | None = None, read_bytes: float | None = None, threads: int | None = None,
    forms: Collection[str] = ()
) -> dict[str, Any]:
    """A part's file. Its rates are measured, and so is what products reach of them; nothing else is taken off. `read_bytes`: that steps
    read again and again, as fast as so much is read: what caches hold comes faster. `threads`: that compute; None: all. `forms`: of
    CODES, that weights are in. Raises UsageError where `penstock limits` was not run, or before products in these were measured."""
    limits = limits or measured_limits("cpu", threads)
    if limits is None:
        raise UsageError("--hardware here needs this machine's limits: run `penstock limits` once")
    bandwidth = limits.memory_bandwidth() if read_bytes is None else limits.bandwidth(read_bytes)
    ops = {dtype: rate for dtype, rate in limits.ops_per_s.items() if dtype in STAND_INS}
    if "fp32" not in ops:
        raise UsageError("--hardware here needs the rate of fp32, which the limits lack: run `penstock limits --fresh` once")
    if lacking := [form for form in (*PLAIN, *CODES) if form in {*PLAIN, *forms} - limits.products.keys()] if limits.products else []:
        raise UsageError(f"--hardware here needs the rates of products in {', '.join(lacking)}, which the limits lack: run "
                         "`penstock limits --fresh` once")
    return {
        "like": LIKE, "title": limits.name, "memory": float(memory_bytes or look().memory_bytes),
        "memory_bandwidth": bandwidth, "price": None, "power": None, "node": 1, "ops": {"fp16": ops["fp32"], **ops},
        "efficiency": {"memory": 1.0, "products": {"fp16": 1.0, **dict.fromkeys(ops, 1.0)}, "by_rows": by_rows(limits.products, ops),
                       "exposed": limits.exposed_from(read_bytes or max(limits.read_bytes_per_s))}}


def in_doubt(rows: Iterable[Configuration]) -> list[str]:
    """What to say where the roofline of rows may not be this machine's."""
    predicted = any(row.hardware == HERE and row.steps == ROOFLINE for row in rows)
    limits = measured_limits("cpu") if predicted else None
    if limits is None or not limits.doubts:
        return []
    return [f"the limits of this machine, which rows of {HERE} rest on, are in doubt: {limits.doubts[0]}; measure again with "
            "`penstock limits --fresh` while nothing else runs"]


def by_rows(products: Products, ops: Mapping[str, float]) -> Products:
    """The rates of products as shares of those of the types that they are computed in. With rounded rows, where only others were measured,
    the rates of these, which are lower."""
    types = {form: computes(dtype, ops) for form, dtype in PLAIN.items()}
    types |= {form: computes_codes(dtype, ops) for form, dtype in CODED.items()}
    measured = {form: products.get(form) or products.get(form.partition(":")[0]) for form in types}
    return {form: {inner: {rows: rate / ops[types[form]] for rows, rate in rates.items()} for inner, rates in lengths.items()}
            for form, lengths in measured.items() if lengths}
