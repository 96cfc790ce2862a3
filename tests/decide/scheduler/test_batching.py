import pytest

from penstock.core.errors import UsageError
from penstock.decide.scheduler.batching import TABLE
from penstock.decide.scheduler.batching.continuous import Continuous
from penstock.decide.scheduler.batching.dynamic import Dynamic
from penstock.decide.scheduler.batching.static import Static
from tests.decide.builders import Rig, make_seq


def timeline(batching, arrivals, *, num_new=None, until=200):
    """Runs one request per arrival time, a second a step; returns when each entered (None: not within `until` seconds)."""
    rig = Rig(num_blocks=200, budget=200, max_num_seqs=32, batching=batching)
    seqs = [make_seq(i, [i] * 3, (num_new or [4] * len(arrivals))[i], arrival_s=at) for i, at in enumerate(arrivals)]
    left = list(seqs)
    while rig.clock.now() < until and (left or rig.scheduler.has_work()):
        while left and left[0].arrival_s <= rig.clock.now():
            rig.scheduler.add(left.pop(0))
        plan, _ = rig.step()
        if plan is None:
            rig.clock.advance(1.0)
    return [seq.first_scheduled_s for seq in seqs]


def test_continuous_lets_everybody_in_between_steps():
    assert timeline(Continuous(), [0.0, 1.0, 2.0, 9.0]) == [0.0, 1.0, 2.0, 9.0]


def test_static_waits_for_a_full_batch_and_runs_it_to_its_end():
    batching = Static(Static.Options(size=2, idle_ms=50_000))
    # The first batch starts when it is full and ends with its longest member; whoever comes meanwhile waits.
    assert timeline(batching, [0.0, 3.0, 4.0, 5.0, 6.0], num_new=[2, 9, 2, 2, 2]) == [3.0, 3.0, 12.0, 12.0, 56.0]


def test_a_static_batch_does_not_wait_for_ever_for_company():
    assert timeline(Static(Static.Options(size=8, idle_ms=5_000)), [0.0]) == [5.0]
    # Each arrival within the pause puts the start off.
    assert timeline(Static(Static.Options(size=8, idle_ms=5_000)), [0.0, 4.0, 8.0]) == [13.0] * 3


def test_dynamic_waits_for_a_full_batch_or_for_its_window():
    def batching():
        return Dynamic(Dynamic.Options(size=3, window_ms=5_000))

    assert timeline(batching(), [0.0, 4.0, 8.0]) == [5.0, 5.0, 13.0]  # the third has waited long enough when the first two end, at 9
    assert timeline(batching(), [0.0, 1.0, 2.0, 3.0]) == [2.0, 2.0, 2.0, 8.0]
    assert timeline(batching(), [0.0]) == [5.0]


def test_a_batch_larger_than_its_first_step_enters_over_several_and_takes_no_latecomers():
    rig = Rig(budget=8, batching=Static(Static.Options(size=3, idle_ms=0)))
    seqs = [make_seq(i, range(10 * i, 10 * i + 6), 12, arrival_s=0.0) for i in range(5)]
    for seq in seqs[:3]:
        rig.scheduler.add(seq)
    rig.step()
    assert rig.scheduler.num_running == 2
    rig.scheduler.add(seqs[3])
    rig.step()
    late = make_seq(9, range(6), 4, arrival_s=1.5)
    rig.scheduler.add(late)
    while seqs[0].finish_reason is None:
        assert rig.scheduler.num_running <= 3 and late.first_scheduled_s is None and seqs[3].first_scheduled_s is None
        rig.step()
    rig.run()
    assert late.finish_reason == "length"


def test_wake_says_when_a_batch_starts_by_itself():
    rig = Rig(batching=Dynamic(Dynamic.Options(size=2, window_ms=5_000)))
    assert rig.scheduler.wake_s() == 0.0
    rig.scheduler.add(make_seq(0, range(3), arrival_s=0.0))
    rig.clock.advance(1.0)
    assert rig.scheduler.schedule() is None and rig.scheduler.has_work()
    assert rig.scheduler.wake_s() == 5.0
    rig.clock.advance(4.0)
    assert rig.scheduler.schedule() is not None
    rig = Rig()
    rig.scheduler.add(make_seq(0, range(3), arrival_s=7.0))
    assert rig.scheduler.wake_s() == 0.0


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("num_blocks", [6, 64])
def test_every_mode_serves_everybody(name, num_blocks):
    mode, options = TABLE.parse(name)
    rig = Rig(num_blocks=num_blocks, batching=mode() if options is None else mode(options))
    seqs = [make_seq(i, range(3 + i), 10, arrival_s=0.0) for i in range(11)]
    rig.run(*seqs)
    assert all(seq.num_output == 10 for seq in seqs)


def test_continuous_needs_the_fewest_steps():
    steps = {}
    for name in TABLE:
        mode, options = TABLE.parse(name)
        rig = Rig(num_blocks=200, budget=200, max_num_seqs=4, batching=mode() if options is None else mode(options))
        rig.run(*(make_seq(i, [i] * 3, 2 + 9 * (i % 3), arrival_s=0.0) for i in range(16)))
        steps[name] = len(rig.runner.plans)
    assert steps["continuous"] < min(steps["static"], steps["dynamic"])


@pytest.mark.parametrize(("text", "told"), [
    ("static:size=0", "size must be from 1 to 1,000,000, not 0"),
    ("dynamic:size=1000001", "size must be from 1 to 1,000,000, not 1,000,001"),
    ("static:idle_ms=-1", "idle_ms must be from 0 to 86,400,000, not -1.0"),
    ("dynamic:window_ms=1e300", r"window_ms must be from 0 to 86,400,000, not 1e\+300"),
    ("static:idle_ms=inf", "idle_ms must be a finite number, such as 2 or 0.5, not 'inf'"),
])
def test_a_batch_that_no_one_could_wait_for_is_refused(text, told):
    with pytest.raises(UsageError, match=rf"^batching mode [a-z]+: {told}$"):
        TABLE.parse(text)
