import json
from collections.abc import Callable
from types import SimpleNamespace

from penstock.compute.formats import CODES
from penstock.compute.ops import OPS
from penstock.core.hardware import FORMAT, cache_folder, limits_file
from penstock.serve.engine.machine import affine_cpus, native_build, processor
from penstock.study.doctor import processors
from penstock.study.doctor.check import Host, Status

Make = Callable[..., Host]
CPUINFO = "model name : Box\nflags : fpu {}\n"


def test_instruction_sets_are_those_that_may_be_used(make: Make) -> None:
    found = processors.instruction_sets(make())
    seen = {word: found.details[word] for word in ("AVX2", "AVX-512", "VNNI", "BF16", "AMX", "NEON")}
    assert found.status is Status.PASS
    assert seen == {"AVX2": True, "AVX-512": True, "VNNI": True, "BF16": False, "AMX": False, "NEON": False}
    assert "VNNI yes, BF16 no" in found.found


def test_amx_that_is_denied_is_told(make: Make) -> None:
    found = processors.instruction_sets(make({"proc/cpuinfo": CPUINFO.format("avx2 amx_tile")}))
    assert found.status is Status.WARN and "AMX" in found.hint


def test_without_the_native_module_linux_is_asked(make: Make) -> None:
    wide = processors.instruction_sets(make({"proc/cpuinfo": CPUINFO.format("avx2 avx512f avx512_vnni")}, native=None))
    assert wide.status is Status.PASS and wide.details["VNNI"] and not wide.details["BF16"]
    narrow = processors.instruction_sets(make({"proc/cpuinfo": CPUINFO.format("sse2")}, native=None))
    assert narrow.status is Status.WARN and not narrow.details["AVX2"]
    arm = processors.instruction_sets(make({"proc/cpuinfo": "Features : fp asimd\n"}, native=None))
    assert arm.status is Status.PASS and arm.details["NEON"]


def test_every_op_has_a_kernel(make: Make) -> None:
    native, reference = processors.kernels(make()), processors.kernels(make(native=None))
    rows = native.details["rows_for_codes"]
    assert native.status is Status.PASS and native.details == {**dict.fromkeys(OPS, "avx512_vnni"), "rows_for_codes": rows}
    assert rows == {form: "bf16" if form == "int8" else "int16" for form in CODES}
    usable = "avx512_vnni, avx512, avx2, generic"
    assert native.found.startswith(f"avx512_vnni for all {len(OPS)} ops; usable: {usable}; activations are bf16 where weights are int8; "
                                   "activations are int16 where weights are int4, ")
    assert native.found.endswith(", int4 by 16")
    assert reference.status is Status.WARN and reference.details == dict.fromkeys(OPS, "reference")


def test_processors_are_counted_by_affinity_and_by_quota(make: Make) -> None:
    free = processors.cpus(make({"proc/cpuinfo": CPUINFO.format("")}))
    assert free.status is Status.PASS and free.details == {
        "model": "Box", "by_affinity": affine_cpus(), "by_quota": None, "usable": affine_cpus()}
    tight = processors.cpus(make({"sys/fs/cgroup/cpu.max": "100000 100000"}))
    assert tight.status is Status.PASS and (tight.details["by_quota"], tight.details["usable"]) == (1.0, 1)
    starved = processors.cpus(make({"sys/fs/cgroup/cpu.max": "50000 100000"}))
    assert starved.status is Status.WARN and "a quota of 0.5" in starved.found


def test_limits_are_measured_or_not(make: Make) -> None:
    host = make({"proc/cpuinfo": CPUINFO.format("avx2")})
    assert processors.limits(host).status is Status.WARN and "penstock limits" in processors.limits(host).hint
    file = limits_file(cache_folder({}, host.home), processor(host.root))
    file.parent.mkdir(parents=True)
    file.write_text("{")
    assert processors.limits(host).found == "cannot be read"
    told = {"format": FORMAT, "machine": "Box", "read_bytes_per_s": {"1": 1.0}, "ops_per_s": {}, "measured": "today", "method": "native",
            "build": native_build()}
    file.write_text(json.dumps(told))
    found = processors.limits(host)
    assert (found.status, found.found, found.details["file"]) == (Status.PASS, "measured today (native)", str(file))
    file.write_text(json.dumps(told | {"build": "another"}))
    found = processors.limits(host)
    assert found.status is Status.WARN and found.found.endswith("in doubt: its rates of products are those of another build's kernels")
    file.write_text(json.dumps(told | {"doubts": ["others took 35%", "more"]}))
    found = processors.limits(host)
    assert (found.status, found.found) == (Status.WARN, "measured today, in doubt: others took 35%") and "--fresh" in found.hint


def test_a_native_module_without_avx2_is_slow(make: Make) -> None:
    native = SimpleNamespace(cpu_features=lambda: {"avx2": False, "neon": False})
    assert processors.instruction_sets(make(native=native)).status is Status.WARN
