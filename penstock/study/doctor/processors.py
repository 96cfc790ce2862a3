"""Which processors may be used, with which instruction sets, and which kernels are chosen for them."""
import os
from typing import Any

from penstock.compute.ops import OPS
from penstock.compute.program import WeightSpec
from penstock.core.hardware import cache_folder, flagged_instruction_sets, limits_file, processor_model, read_limits
from penstock.serve.engine import cgroup
from penstock.serve.engine.machine import affine_cpus, num_cpus, of_other_kernels, processor
from penstock.study.doctor.check import Check, Host, Status

WIDE = {  # what people call it -> names of which each gives it
    "AVX2": ("avx2",), "AVX-512": ("avx512f",), "VNNI": ("avx512_vnni", "avx512vnni", "avx_vnni"),
    "BF16": ("avx512_bf16", "avx512bf16"), "AMX": ("amx_tile",), "NEON": ("neon", "asimd"),
}


def instruction_sets(host: Host) -> Check:
    if host.native is not None:
        names = {name for name, usable in host.native.cpu_features().items() if usable}
    else:
        names = set(flagged_instruction_sets(host.root))
    seen = {word: any(name in names for name in given) for word, given in WIDE.items()}
    details = {**seen, "names": sorted(names)}
    said = ", ".join(f"{word} {'yes' if there else 'no'}" for word, there in seen.items())
    hint = ""
    if "amx_tile" in flagged_instruction_sets(host.root) and not seen["AMX"]:
        hint = "this processor has AMX, but this process may not use it: that takes Linux 5.16 or newer"
    elif not (seen["AVX2"] or seen["NEON"]):
        hint = "only kernels without wide vectors run, which is slow; a virtual machine may hide what the processor has"
    return Check("instruction sets", Status.WARN if hint else Status.PASS, said, hint, details)


def kernels(host: Host) -> Check:
    """The kernel of each op, by its instruction set, and what products with codes make of their activations."""
    if host.native is None:
        return Check("kernels", Status.WARN, "numpy computes every op (the reference backend)", "build the native module",
                     dict.fromkeys(OPS, "reference"))
    usable = host.native.kernel_names()
    rows = rows_for_codes(host.native)
    kinds = dict.fromkeys(rows.values())
    forms = {dtype: ", ".join(form for form in rows if rows[form] == dtype) if len(kinds) > 1 else "quantized" for dtype in kinds}
    told = "; ".join(f"activations are {dtype} where weights are {met}" for dtype, met in forms.items())
    return Check("kernels", Status.PASS, f"{usable[0]} for all {len(OPS)} ops; usable: {', '.join(usable)}; {told}",
                 details={**dict.fromkeys(OPS, usable[0]), "rows_for_codes": rows})


def rows_for_codes(native: Any) -> dict[str, str]:
    """Format of codes -> the type that rows are given before the best kernels multiply them, where they are not rounded on request."""
    from penstock.compute.backends.cpu.layout import matrix_layout
    from penstock.study.measure.products import FORMATS, INNER

    weight, found = WeightSpec("w", (64, max(INNER)), matrix=True), {}
    for form, (coding, dtype, rounds) in FORMATS.items():
        if coding is not None and not rounds:
            found[form] = str(native.rows_for_codes("", matrix_layout(weight, coding, dtype, gated=False).fields(), False))
    return found


def cpus(host: Host) -> Check:
    quota, affine, usable = cgroup.cpu_quota(host.root), affine_cpus(), num_cpus(host.root)
    model = processor_model(host.root)
    details = {"model": model, "by_affinity": affine, "by_quota": quota, "usable": usable}
    said = f"{usable} of {model}: {affine} by affinity, {'no quota' if quota is None else f'a quota of {quota:g}'}"
    if quota is not None and quota < 1:
        return Check("processors", Status.WARN, said, "less than one processor: raise the container's cpu limit", details)
    return Check("processors", Status.PASS, said, details=details)


def limits(host: Host) -> Check:
    file = limits_file(cache_folder(host.environ, host.home), processor(host.root))
    told = read_limits(file)
    if told is None:
        state = "cannot be read" if os.path.exists(file) else "not measured"
        return Check("measured limits", Status.WARN, state, "run `penstock limits`: MFU, MBU and predictions need it", {"cached": False})
    doubts = [*told.get("doubts", ()), *filter(None, [of_other_kernels(told)])]
    if doubts:
        return Check("measured limits", Status.WARN, f"measured {told.get('measured')}, in doubt: {doubts[0]}",
                     "run `penstock limits --fresh` while nothing else runs: MFU, MBU and predictions rest on it",
                     {"cached": True, "file": str(file), "measured": told.get("measured"), "doubts": doubts})
    return Check("measured limits", Status.PASS, f"measured {told.get('measured')} ({told.get('method')})", details={
        "cached": True, "file": str(file), "measured": told.get("measured")})
