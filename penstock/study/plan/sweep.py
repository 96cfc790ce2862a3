"""`penstock plan --calibrate`: loads a model, learns what its steps take here, and keeps it. What was measured until it is stopped is kept
as well, and a sweep of the same engine goes on from there."""
from collections.abc import Callable, Iterator
from dataclasses import replace

from penstock.compute.fitted import MANY
from penstock.core.config import EngineConfig
from penstock.serve.engine.machine import num_cpus
from penstock.study.digits import digits, duration
from penstock.study.measure.client.inside import start
from penstock.study.measure.interrupt import undisturbed
from penstock.study.plan.calibrate import Calibration, Recorder, calibrate, keep, kept_in
from penstock.study.plan.made import called, made_now
from penstock.study.plan.phases import Kept
from penstock.study.sizes import powers_of_two

SHOWN = powers_of_two(512)  # rows
Say = Callable[[str], None]


def run(config: EngineConfig, say: Say, progress: Callable[[int, int], None] | None = None) -> Calibration:
    """Raises PenstockError when the model cannot be loaded or nothing can be kept."""
    recorder = Recorder()
    inner = start(config, progress, say, recorder)
    resolved = inner.built.resolved.engine
    file = kept_in(resolved, inner.built.fingerprint)
    made = made_now(resolved.threads)
    phases = Kept(file.with_suffix(".sweep"), resolved, made.build)
    try:
        found = replace(calibrate(inner, recorder, say, store=phases), made=made)
    finally:
        with undisturbed():
            inner.loop.stop()
    keep(file, found)
    phases.forget()
    say(f"kept in {file}")
    return found


def lines(config: EngineConfig, found: Calibration) -> Iterator[str]:
    """What was learned, for people."""
    timer = found.timer
    threads = num_cpus() if found.made is None else found.made.threads or num_cpus()
    yield (f"{called(config)}, computed by {threads} {'thread' if threads == 1 else 'threads'} on {num_cpus()} processors: "
           f"{found.num_steps:,} steps timed")
    yield "  rows       " + "".join(f"{rows:>9}" for rows in SHOWN)
    yield "  ms a step  " + "".join(f"{digits(timer.of_rows(rows) * 1e3):>9}" for rows in SHOWN)
    yield (f"  beside that {duration(timer.seq_s)} a sequence, {duration(timer.logit_s)} a row of logits, "
           f"{duration(timer.read_s)} a key read, {duration(timer.pair_s)} a pair of row and key")
    extra = timer.extra
    yield (f"  {duration(extra.cold_s)} more after a step of {MANY} rows more, {duration(extra.come_s)} for a request that comes "
           f"meanwhile, {duration(extra.end_s)} for one that ends")
    yield f"  a client waits {duration(2 * found.delay_s)} beside its steps"
    yield f"  fit: single steps {found.error:.1%} off on average, all together {found.drift:+.1%}"
