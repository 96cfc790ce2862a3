from types import SimpleNamespace

import pytest
from drafts import turns

from penstock import SamplingParams
from penstock.core.drafting import Drafting


class Counting:
    """An engine that says 0, 1, 2, ... to every request, a token a step of so many seconds."""

    def __init__(self, step_s: float, now: list[float], order: list["Counting"]) -> None:
        self.step_s, self.now, self.order = step_s, now, order
        self.said: dict[str, int] = {}
        self.most = 0

    def add(self, request) -> None:
        self.said[request.request_id] = 0
        self.most = request.params.max_tokens

    def num_requests(self) -> int:
        return len(self.said)

    def step(self):
        self.now[0] += self.step_s
        self.order.append(self)
        deltas = []
        for name, count in list(self.said.items()):
            self.said[name] = count + 1
            last = count + 1 == self.most
            if last:
                del self.said[name]
            usage = SimpleNamespace(drafting=Drafting(1, 2, (2,), (1,))) if last else None
            deltas.append((name, SimpleNamespace(token_ids=[count], usage=usage)))
        return deltas


def test_clocks_stand_still_while_another_answers(monkeypatch) -> None:
    now, order = [0.0], []
    monkeypatch.setattr(turns, "perf_counter", lambda: now[0])
    fast, slow = Counting(0.01, now, order), Counting(0.02, now, order)
    ran = turns.run({"fast": fast, "slow": slow}, [turns.Ask([each], SamplingParams(max_tokens=20)) for each in (1, 2, 3)])
    assert ran["fast"].answers == ran["slow"].answers == [list(range(20))] * 3
    assert ran["fast"].seconds == pytest.approx(0.2) and ran["slow"].seconds == pytest.approx(0.4)
    assert ran["fast"].tokens_per_s == pytest.approx(300) and ran["slow"].decode_tokens_per_s == pytest.approx(50)
    assert ran["fast"].drafting.num_accepted == 3
    changes = [at for at in range(1, len(order)) if order[at] is not order[at - 1]]
    assert order[0] is fast and len(changes) >= 7 and changes[0] == 5


def test_whoever_is_behind_is_next(monkeypatch) -> None:
    """One long step of an engine is made up for by many of the other, so both are at one place when the machine's pace changes."""
    now, order = [0.0], []
    monkeypatch.setattr(turns, "perf_counter", lambda: now[0])
    turns.run({"fast": Counting(0.01, now, order), "slow": Counting(0.2, now, order)}, [turns.Ask([1], SamplingParams(max_tokens=40))])
    slow_steps = [at for at, engine in enumerate(order) if engine.step_s == 0.2]
    assert 18 <= slow_steps[2] - slow_steps[1] - 1 <= 22


def test_requests_come_when_so_many_tokens_are_made(monkeypatch) -> None:
    """Of each engine's own; and at once where it has nothing else to do."""
    now, order, came = [0.0], [], []
    monkeypatch.setattr(turns, "perf_counter", lambda: now[0])

    class Watched(Counting):
        def add(self, request) -> None:
            came.append((len(order), len(self.said)))
            super().add(request)

    asks = [turns.Ask([i], SamplingParams(max_tokens=20), after) for i, after in enumerate((0, 5, 10, 500))]
    ran = turns.run({"one": Watched(0.01, now, order)}, asks)["one"]
    assert came == [(0, 0), (5, 1), (8, 2), (28, 0)]  # a token a step of each
    assert ran.answers == [list(range(20))] * 4 and ran.seconds == pytest.approx(0.48)
