"""What a sweep learns, and how it is kept."""
import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.compute.fitted import Around, Fitted, Timed
from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError
from penstock.core.events import StepRecord
from penstock.core.work import StepWork
from penstock.serve.engine.machine import native_build
from penstock.study.measure.client.inside import start
from penstock.study.measure.samples import Sample
from penstock.study.plan import calibrate, sweep
from penstock.study.plan.made import Made, doubt
from penstock.study.plan.phases import First, Kept, Measured, Phase, phases_of
from tests.spoiled import spoiled

ONE = StepWork(((1, 5),), 1)
TIMER = Fitted((1, 512), (0.002, 0.1), 0.0, 1e-5, 1e-7, 1e-8)


CONFIG = EngineConfig(max_num_seqs=2, kv_tokens=512, max_model_len=1024)


def record(step_id: int, began_s: float, running: int = 1, work: StepWork | None = ONE) -> StepRecord:
    return StepRecord(step_id, began_s, 0.001, 0.0005, 1, 0, 1, num_running=running, work=work)


def test_a_step_lasts_until_the_next_one_where_there_was_more_to_do() -> None:
    records = [record(0, 1.0), record(1, 1.5), record(2, 2.5, running=0), record(3, 9.0), record(7, 9.5), record(8, 9.75, work=None)]
    assert [timed.seconds for timed in calibrate.busy(records)] == [0.5, 1.0, 0.25]


def test_a_step_is_told_what_stood_around_it() -> None:
    """A prompt of 200 rows, then decoding, while two come; then both sequences decode and one ends."""
    def step(number: int, work: StepWork, seqs: int, running: int, came: int = 0) -> StepRecord:
        return StepRecord(number, float(number), 0.001, 0.0005, seqs, 0, 1, num_running=running, work=work, waited_s=(0.1,) * came)

    prompt, two = StepWork(((200, 200),), 1), StepWork(((1, 9), (1, 9)), 2)
    records = [step(0, prompt, 1, 1), step(1, two, 2, 2), step(2, two, 2, 1, came=2), step(3, ONE, 1, 1)]
    assert [timed.around for timed in calibrate.busy(records)] == [Around(), Around(198, 2, 0), Around(0, 0, 1)]


def test_a_client_waits_what_its_steps_do_not_explain() -> None:
    works = [StepWork(((rows, rows + before),), before % 2) for rows in (1, 2, 3, 100, 200, 300, 512) for before in (0, 1, 500, 701)]
    timed = [Timed(work, TIMER.seconds(work)) for work in works]
    steps = calibrate.alone_s(TIMER, 700, 700, 512)
    assert steps == pytest.approx(
        TIMER.seconds(StepWork(((512, 512),), 0)) + TIMER.seconds(StepWork(((188, 700),), 1)))
    alone = [First(steps + 0.25, 700, 0)] * 3
    found = calibrate.learned(timed, ((None, 1),), alone, 512)
    assert 2 * found.delay_s == pytest.approx(0.25, rel=0.1) and abs(found.drift) < 0.01 and found.error < 0.01


def sample(number: int, due_s: float, first_s: float, end_s: float | None) -> Sample:
    return Sample(number, due_s, first_s=first_s, end_s=end_s, num_prompt=10 + number)


def test_only_those_tell_the_delay_whom_nobody_met() -> None:
    """The second came while the first was answered, the fourth was joined before its token, the sixth while the fifth was answered; the
    seventh follows one that never ended."""
    samples = [sample(0, 0.0, 0.5, 2.0), sample(1, 1.0, 1.5, 2.0), sample(2, 2.0, 2.25, 2.5), sample(3, 3.0, 4.0, 5.0),
               sample(4, 3.5, 4.0, 7.0), sample(5, 6.0, 6.5, 6.75), sample(6, 8.0, 8.5, None), sample(7, 9.0, 9.5, 10.0)]
    assert list(calibrate.firsts(samples)) == [First(0.5, 10, 0), First(0.25, 12, 0)]


def test_those_who_wake_the_engine_tell_the_delay_where_there_are_enough() -> None:
    users, random = (next(each for each in phases_of(CONFIG) if (each.load is None) == closed) for closed in (True, False))
    near, far = First(0.25, 100, 0), First(0.5, 100, 0)
    found = {users: Measured([], [near] * 99, 1.0), random: Measured([], [far] * (calibrate.LEAST_WOKEN - 1), 1.0)}
    assert calibrate.alone_of(found) == [near] * 99 + [far] * (calibrate.LEAST_WOKEN - 1)
    assert calibrate.alone_of(found | {random: Measured([], [far] * calibrate.LEAST_WOKEN, 1.0)}) == [far] * calibrate.LEAST_WOKEN


def test_a_calibration_is_kept_for_one_engine_on_one_machine(tmp_path: Path) -> None:
    found = calibrate.Calibration(TIMER, 1e-4, 100, 0.1, -0.01)
    config = EngineConfig(threads=2)
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    file = calibrate.kept_in(config, "cpu bfloat16", environ)
    assert calibrate.read(file) is None
    calibrate.keep(file, found)
    assert calibrate.read(file) == found and [each.suffix for each in file.parent.iterdir()] == [".json"]
    others = [(replace(config, threads=1), "cpu bfloat16"), (config, "cpu bfloat16 int8"), (replace(config, model="rill"), "cpu bfloat16")]
    assert len({file, *(calibrate.kept_in(*other, environ) for other in others)}) == 4
    for broken in ("", "{}", '{"format": 99}'):
        file.write_text(broken)
        assert calibrate.read(file) is None
    (tmp_path / "file").write_text("")
    with pytest.raises(PenstockError, match="cannot write"):
        calibrate.keep(tmp_path / "file" / "below", found)


def test_a_calibration_that_cannot_be_is_as_good_as_none(tmp_path: Path) -> None:
    """What is read can be computed with."""
    made, file, whole = Made("2026-11-23 02:00", "1", "b", 1, {"reading memory": 1e10}), tmp_path / "c.json", 0
    for told in spoiled(calibrate.Calibration(TIMER, 1e-4, 100, 0.1, -0.01, made).as_json()):
        file.write_text(json.dumps(told))
        if (found := calibrate.read(file)) is not None:
            whole += 1
            assert all(0 < found.timer.seconds(StepWork(((rows, rows),), 1)) < 1e15 for rows in (1, 7, 10**6)) and found.delay_s >= 0
            doubt(EngineConfig(), found.made, None, made)
    assert whole, "a time may be 0"
    file.write_text("[" * 100_000)
    assert calibrate.read(file) is None


def test_a_sweep_over_the_bundled_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "LEAST_STEPS", 1)
    recorder, said = calibrate.Recorder(), []
    inner = start(EngineConfig(max_num_seqs=2, kv_tokens=512), listener=recorder)
    try:
        found = calibrate.calibrate(inner, recorder, said.append, 0.05)
    finally:
        inner.loop.stop()
    assert found.num_steps > 50 and found.timer.rows[0] == 1
    assert len(said) == 1 + len(phases_of(inner.built.resolved.engine)) and all("to come" in line for line in said[1:-1])
    assert 0 < found.timer.seconds(StepWork(((1, 20),), 1)) < found.timer.seconds(StepWork(((256, 256),), 1))
    told = list(sweep.lines(inner.built.resolved.engine, found))
    assert "steps timed" in told[0] and len(told) == 7


def test_what_was_learned_is_told_in_units_that_fit() -> None:
    timer = Fitted((1, 512), (0.0021, 2.5), 1.93e-6, 2e-3, 1e-7, 0.0)
    found = calibrate.Calibration(timer, 0.6, 1000, 0.01, 0.0)
    told = "\n".join(sweep.lines(CONFIG, found))
    assert "1.93 us a sequence" in told and "2 ms a row of logits" in told and "100 ns a key read, 0 ns a pair" in told
    assert "2,500" in told and "waits 1.2 s" in told and "e+0" not in told and "e-0" not in told


def test_a_sweep_that_was_stopped_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one measures only what the first one had not, and learns from both."""
    measured: list[Phase] = []

    async def measure(inner: object, recorder: object, phase: Phase, arrivals: object) -> Measured:
        if len(measured) == 4:
            measured.append(phase)
            raise KeyboardInterrupt
        measured.append(phase)
        works = [StepWork(((rows, rows + before),), 1) for rows in (1, 2, 100) for before in (0, 1, 500)]
        return Measured([Timed(work, TIMER.seconds(work)) for work in works], [First(0.25, 100, 0)], 1.0)

    monkeypatch.setattr(calibrate, "measure", measure)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config, said = EngineConfig(max_num_seqs=2, kv_tokens=512), []
    with pytest.raises(KeyboardInterrupt):
        sweep.run(config, said.append)
    found = sweep.run(config, said.append)
    phases = phases_of(EngineConfig(max_num_seqs=2, max_model_len=1024, kv_tokens=512))
    assert measured == [*phases[:5], *phases[4:]]
    assert found.num_steps == 9 * len(phases) and calibrate.kept(config) == found
    assert found.made is not None and found.made.build == native_build() and (found.made.threads or 0) >= 1
    assert any("4 of them done by one that was stopped" in line for line in said)
    assert not list(tmp_path.rglob("*.sweep")) and not list(tmp_path.rglob("*.part"))


def test_phases_are_kept_for_engines_that_put_steps_together_alike(tmp_path: Path) -> None:
    config = CONFIG
    phase, other = phases_of(config)[:2]
    found = Measured([Timed(ONE, 0.002)], [First(0.25, 100, 7)], 1.5)
    kept = Kept(tmp_path / "sweep", config)
    assert kept.read(phase) is None
    kept.keep(phase, found)
    assert kept.read(phase) == found and kept.read(other) is None
    assert Kept(tmp_path / "sweep", replace(config, kv_tokens=528)).read(phase) == found
    assert Kept(tmp_path / "sweep", replace(config, max_num_batched_tokens=64)).read(phase) is None
    assert Kept(tmp_path / "sweep", config, "another build").read(phase) is None
    (file,) = (tmp_path / "sweep").iterdir()
    file.write_text('{"timed": [')
    assert kept.read(phase) is None
    for told in spoiled(found.as_json()):
        file.write_text(json.dumps(told))
        if (read := kept.read(phase)) is not None and read.timed:
            assert 0 <= calibrate.learned(read.timed, ((None, 1),), read.alone, 512).delay_s < 1e15
