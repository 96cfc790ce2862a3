"""The limits of the machine that this runs on: from the cache, or measured and, where all processors took part, kept there."""
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from penstock.compute.formats import CODES
from penstock.core.errors import PenstockError
from penstock.core.hardware import cache_folder, home_folder, limits_file, read_limits
from penstock.serve.engine.machine import free_memory, native_build, processor
from penstock.serve.engine.resolve import shared_told
from penstock.study.measure.limits import Limits, from_json, measure, save
from penstock.study.measure.neighbours import look, sign
from penstock.study.measure.probes import Probe, best_probe

Say = Callable[[str], None]


def limits_of_this_machine(
    threads: int | None, fresh: bool, say: Say, environ: Mapping[str, str] = os.environ, probe: Probe | None = None
) -> Limits:
    """`threads`: None for all processors. Raises PenstockError when nothing can be measured; what cannot be kept is told all the same."""
    here = processor()
    file = limits_file(cache_folder(environ, home_folder()), here)
    wanted = here.num_cpus if threads is None else threads
    kept = None if fresh else cached(file, wanted)
    probe = best_probe() if probe is None else probe
    lacking = None if kept is None else _lacking(kept, probe)
    if kept is not None and lacking is None:
        return kept
    if kept is not None:
        say(f"the result kept from {kept.measured} lacks {lacking}")
    if (shared := shared_told(threads, here.num_cpus)) is not None:
        say(shared)
    say("measuring for about twenty seconds, a few more if runs disagree; anything else that runs now lowers the figures")
    if probe.method != "native":
        say("the native module is not built, so numpy measures: read bandwidth and fp32 only, and less than the machine can do")
    began = look()
    found = measure(probe, here, wanted, free_memory())
    found = replace(found, build=native_build(), signs=(*sign(began, look(), here.num_cpus), *found.signs))
    before = cached(file, wanted)
    if found.doubts and before is not None and not before.doubts and _lacking(before, probe) is None:
        say(f"not kept: this result is in doubt, and the one kept from {before.measured} is not")
    elif wanted == here.num_cpus:
        say(_kept(found, file))
    else:
        say(f"not kept: this was measured with --threads {wanted}, not with all {here.num_cpus} processors")
    return found


def _kept(found: Limits, file: Path) -> str:
    """Keeps it -> what came of that."""
    try:
        save(found, file)
    except PenstockError as error:
        return f"not kept, so nothing else can use it: {error}; set XDG_CACHE_HOME to another folder"
    return f"kept in {file}"


def _lacking(kept: Limits, probe: Probe) -> str | None:
    """What was not measured yet when it was kept, and can be."""
    if probe.method != "native":
        return None
    if not kept.all_threads.products:
        return "the rate of products in each weight format"
    if lacking := [form for form in CODES if form not in {point[0] for point in kept.all_threads.products}]:
        return f"the rate of products in {', '.join(lacking)}"
    if kept.build != native_build():
        return "the rates of the kernels that are installed now: it was measured with another build"
    return None if kept.exposed is not None else "how much longer products take than reading their weights"


def cached(file: Path, threads: int) -> Limits | None:
    """What was measured before with so many threads."""
    told = read_limits(file)
    try:
        found = None if told is None else from_json(told)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return found if found is not None and found.all_threads.threads == threads else None
