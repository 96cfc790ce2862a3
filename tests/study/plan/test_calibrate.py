"""What a sweep learns, and how it is kept."""
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.compute.fitted import Fitted, Timed
from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError
from penstock.core.events import StepRecord
from penstock.core.work import StepWork
from penstock.study.measure.client.inside import start
from penstock.study.measure.samples import Sample
from penstock.study.plan import calibrate, sweep

ONE = StepWork(((1, 5),), 1)
TIMER = Fitted((1, 512), (0.002, 0.1), 0.0, 1e-5, 1e-7, 1e-8)


def record(step_id: int, began_s: float, running: int = 1, work: StepWork | None = ONE) -> StepRecord:
    return StepRecord(step_id, began_s, 0.001, 0.0005, 1, 0, 1, num_running=running, work=work)


def test_a_step_lasts_until_the_next_one_where_there_was_more_to_do() -> None:
    records = [record(0, 1.0), record(1, 1.5), record(2, 2.5, running=0), record(3, 9.0), record(7, 9.5), record(8, 9.75, work=None)]
    assert [timed.seconds for timed in calibrate.busy(records)] == [0.5, 1.0, 0.25]


def test_lengths_fit_the_context_and_all_of_them_the_cache() -> None:
    for context, kv_tokens, users in ((1024, 65536, 1), (1024, 4096, 16), (64, 64, 1), (32768, 10**6, 64)):
        for lengths in calibrate.shapes(EngineConfig(max_model_len=context, kv_tokens=kv_tokens), users):
            longest = (lengths.input + lengths.output) * (1 + calibrate.SPREAD)
            assert longest <= context + 2 and longest * users <= kv_tokens + 2 * users


def test_a_client_waits_what_its_steps_do_not_explain() -> None:
    works = [StepWork(((rows, rows + before),), before % 2) for rows in (1, 2, 3, 100, 200, 300, 512) for before in (0, 1, 500, 701)]
    timed = [Timed(work, TIMER.seconds(work)) for work in works]
    steps = calibrate.alone_s(TIMER, 700, 700, 512)
    assert steps == pytest.approx(
        TIMER.seconds(StepWork(((512, 512),), 0)) + TIMER.seconds(StepWork(((188, 700),), 1)))
    alone = [Sample(number, 0.0, first_s=steps + 0.25, num_prompt=700, end_s=9.0) for number in range(3)]
    found = calibrate.learned(timed, ((None, 1),), alone, 512)
    assert 2 * found.delay_s == pytest.approx(0.25, rel=0.1) and abs(found.drift) < 0.01 and found.error < 0.01


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


def test_a_sweep_over_the_bundled_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "LEAST_STEPS", 1)
    recorder, said = calibrate.Recorder(), []
    inner = start(EngineConfig(max_num_seqs=2, kv_tokens=512), listener=recorder)
    try:
        found = calibrate.calibrate(inner, recorder, said.append, 0.05)
    finally:
        inner.loop.stop()
    assert found.num_steps > 50 and found.timer.rows[0] == 1 and len(said) == 5
    assert 0 < found.timer.seconds(StepWork(((1, 20),), 1)) < found.timer.seconds(StepWork(((256, 256),), 1))
    told = list(sweep.lines(inner.built.resolved.engine, found))
    assert "steps timed" in told[0] and len(told) == 6
