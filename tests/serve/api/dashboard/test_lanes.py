"""Lanes: who has one, what its columns say, and that nothing of it grows with time or with load."""
import json
from dataclasses import replace

from penstock.core.types import Status
from penstock.decide.scheduler.limits import Limits
from penstock.serve.api.dashboard.lanes import MAX_COLUMNS, MAX_ENDED, MAX_LANES, Lanes
from tests.decide.builders import make_seq
from tests.serve.api.dashboard.steps import Watched

LANE, ID, STATE, ARRIVED, SCHEDULED, FIRST, ENDED, PROMPT, CACHED, OUTPUT, BLOCKS, PREEMPTIONS, SINCE = range(13)


def test_a_prompt_is_prefilled_in_chunks_and_then_decoded() -> None:
    rig = Watched(budget=8)
    rig.add(make_seq(1, range(20), 3, arrival_s=0.0))
    rig.tick(5)
    rig.look()
    told = rig.lanes.tell()
    assert [column[3] for column in told["columns"]] == [[[0, 8, 0, 0, 0]], [[0, 8, 0, 0, 0]], [[0, 4, 0, 0, 0]], [[0, 0, 1, 0, 0]],
                                                         [[0, 0, 1, 0, 0]]]
    assert all(column[2] == 1 for column in told["columns"]) and told["requests"] == [] and told["hidden"] == 0
    assert told["ended"][0][: FIRST] == [0, "r1", "ended", 0.0, 0.0] and told["ended"][0][ENDED] == 4.5
    assert told["ended"][0][PROMPT] == 20 and told["ended"][0][OUTPUT] == 3


def test_drafts_are_told_apart_and_add_up() -> None:
    rig = Watched(num_drafts=3)
    rig.add(make_seq(1, range(5), 30))
    rig.tick(40)
    rig.look()
    cells = [cell for column in rig.lanes.tell()["columns"] for cell in column[3]]
    accepted, rejected = sum(cell[3] for cell in cells), sum(cell[4] for cell in cells)
    counters = rig.scheduler.counters
    assert accepted == counters.accepted_tokens > 0 and rejected == counters.drafted_tokens - counters.accepted_tokens > 0
    assert sum(cell[1] for cell in cells) == 5


def test_short_steps_share_a_column() -> None:
    rig = Watched()
    rig.add(make_seq(1, range(4), 8))
    rig.tick(8)
    slow = rig.lanes.tell()["columns"]
    assert len(slow) == 8
    rig.add(make_seq(2, range(10, 14), 8))
    rig.clock.advance = lambda seconds: None  # type: ignore[method-assign]  # all steps at one moment
    rig.tick(8)
    fast = rig.lanes.tell()["columns"]
    assert len(fast) == 1 and fast[0][2] == 8 and fast[0][3] == [[0, 4, 7, 0, 0]]


def test_who_waits_has_a_lane_and_who_is_preempted_says_so() -> None:
    rig = Watched(num_blocks=10)
    rig.add(make_seq(1, range(16), 12), make_seq(2, range(100, 116), 12), make_seq(3, range(200, 216), 12))
    states = set()
    for _ in range(40):
        rig.tick()
        rig.look()
        told = rig.lanes.tell()
        states |= {(row[ID], row[STATE]) for row in told["requests"] + told["ended"]}
    assert rig.scheduler.counters.preemptions > 0
    assert {state for _, state in states} == {"waiting", "running", "preempted", "ended"}
    assert {name for name, state in states if state == "ended"} == {"r1", "r2", "r3"}


def test_who_ended_since_the_last_look_does_not_wait() -> None:
    """What is read of a sequence may be a step younger than the look."""
    rig = Watched()
    rig.add(make_seq(1, range(8), 50))
    rig.tick()
    rig.look()
    rig.scheduler.finish(1, "stop")
    (row,) = rig.lanes.tell()["requests"]
    assert row[STATE] == "running"


def test_requests_are_counted_as_they_are_in_the_step_in_flight() -> None:
    """However many answers each has."""
    lanes, first, later = Lanes(), make_seq(0, range(8), 500, status=Status.RUNNING), make_seq(5, range(8), 500)
    lanes.look([first, replace(first, seq_id=1), later, make_seq(6, range(8), 500)], 1.0)
    assert lanes.counts() == (1, 2)
    later.status = Status.RUNNING  # on the engine's thread, as it plans the next step
    assert lanes.counts() == (2, 1)


def test_who_is_aborted_leaves_its_lane() -> None:
    rig = Watched()
    rig.add(make_seq(1, range(8), 50), make_seq(2, range(8), 50))
    rig.tick(2)
    rig.scheduler.finish(1, "abort")
    rig.look()
    told = rig.lanes.tell()
    assert [row[ID] for row in told["ended"]] == ["r1"] and [row[ID] for row in told["requests"]] == ["r2"]
    rig.add(make_seq(3, range(8), 50))
    rig.tick()
    rig.look()
    assert {row[ID]: row[LANE] for row in rig.lanes.tell()["requests"]} == {"r2": 1, "r3": 0}


def test_who_runs_has_a_lane_however_long_the_queue() -> None:
    """Three times as many clients as run at once, each of which asks again when it is answered."""
    rig = Watched(num_blocks=2000, budget=4000)
    rig.scheduler.limits = Limits(MAX_LANES, 4000)
    rig.add(*[make_seq(i, range(i, i + 8), 2 + i % 7, arrival_s=0.0) for i in range(3 * MAX_LANES)])
    number, since = 3 * MAX_LANES, {}
    for _ in range(40):
        rig.tick()
        rig.look()
        told = rig.lanes.tell()
        running = {seq.request_id for seq in rig.scheduler.seqs() if seq.status is Status.RUNNING}
        assert running <= {row[ID] for row in told["requests"]} and len(running) > MAX_LANES / 2
        for row in told["requests"] + told["ended"]:
            lane, others = row[LANE], [other for other in told["ended"] if other[LANE] == row[LANE] and other[ID] != row[ID]]
            assert since.setdefault(row[ID], (lane, row[SINCE])) == (lane, row[SINCE]), "it keeps its lane"
            assert row[SINCE] >= row[ARRIVED] and all(other[ENDED] <= row[SINCE] for other in others if other[SINCE] < row[SINCE])
        rig.add(*[make_seq(number + i, range(8), 2 + i % 7, arrival_s=rig.clock.now()) for i in range(len(told["ended"]))])
        number += len(told["ended"])
    assert max(since_s for _, since_s in since.values()) > 30.0


def test_hypotheses_that_a_search_has_dropped_are_forgotten() -> None:
    lanes, first, width = Lanes(), make_seq(0, range(8), 500, held=True, status=Status.RUNNING, num_preemptions=1), 4
    live = [first]
    for number in range(1, 101):
        born = [replace(live[0], seq_id=10 * number + i, tokens=[*live[0].tokens, i]) for i in range(width)]
        for seq in live:
            seq.status = Status.FINISHED
        live = born
        lanes.look(live, float(number))
    (row,) = lanes.tell()["requests"]
    assert row[OUTPUT] == 100 * width and row[PREEMPTIONS] == 1 and row[STATE] == "running"
    (entry,) = lanes.entries()
    assert len(entry.seqs) == len(lanes._owners) == width
    for seq in live:
        seq.status = Status.FINISHED
    lanes.look([], 101.0)
    (row,) = lanes.tell()["ended"]
    assert row[OUTPUT] == 100 * width and row[PREEMPTIONS] == 1 and not lanes._owners


def test_answers_that_are_complete_count_while_their_siblings_go_on() -> None:
    lanes, first = Lanes(), make_seq(0, range(8), 500, status=Status.RUNNING, num_preemptions=1)
    siblings = [first, *[replace(first, seq_id=i, tokens=[*range(8 + 10 * i)]) for i in (1, 2)]]
    told = []
    for number, seq in enumerate([None, *siblings]):
        if seq is not None:
            seq.status = Status.FINISHED
        lanes.look([each for each in siblings if each is not seq], float(number))
        update = lanes.tell()
        told += [(row[OUTPUT], row[PREEMPTIONS]) for row in update["requests"] + update["ended"]]
    assert told == [(30, 3)] * 4 and not list(lanes.entries())


def test_updates_stay_small_under_any_load() -> None:
    rig = Watched(num_blocks=2000, budget=4000)
    rig.scheduler.limits = type(rig.scheduler.limits)(1000, 4000)
    rig.add(*[make_seq(i, range(i, i + 8), 2 + i % 5) for i in range(600)])
    rig.tick(300)
    rig.look()
    told = rig.lanes.tell()
    assert len(told["columns"]) <= MAX_COLUMNS and len(told["ended"]) <= MAX_ENDED and len(told["requests"]) <= MAX_LANES
    assert len(json.dumps(told)) < 100_000
    rig.add(*[make_seq(1000 + i, range(8), 2000, arrival_s=0.0) for i in range(300)])
    rig.look()
    told = rig.lanes.tell()
    assert len(told["requests"]) == MAX_LANES and told["hidden"] == 300 - MAX_LANES


def test_those_who_had_no_lane_keep_no_end_from_being_told() -> None:
    rig = Watched()
    rig.add(*[make_seq(i, range(8), 50, arrival_s=float(i)) for i in range(3 * MAX_LANES)])
    rig.look()
    assert len(rig.lanes.tell()["requests"]) == MAX_LANES
    for i in range(3 * MAX_LANES):
        rig.scheduler.finish(i, "abort")
    rig.look()
    assert {row[LANE] for row in rig.lanes.tell()["ended"]} == set(range(MAX_LANES))


def test_nothing_is_kept_of_requests_that_have_gone() -> None:
    rig = Watched()
    for i in range(50):
        rig.add(make_seq(i, range(8), 2))
        rig.tick(4)
        rig.look()
        rig.lanes.tell()
    assert not list(rig.lanes.entries()) and not rig.lanes._owners and sorted(rig.lanes._free) == list(range(MAX_LANES))
