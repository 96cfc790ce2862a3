from types import SimpleNamespace

from drafts import switch as module
from drafts.switch import Switch, Timed
from drafts.turns import Ask

from penstock import SamplingParams


class Noting:
    """An engine of two tokens an answer that notes with which drafter each step was made."""

    def __init__(self, drafter: SimpleNamespace) -> None:
        self._runner = SimpleNamespace(_drafter=drafter)
        self.drafters: list[str | None] = []
        self.open: dict[str, int] = {}

    def add(self, request) -> None:
        self.open[request.request_id] = 2

    def num_requests(self) -> int:
        return len(self.open)

    def step(self):
        drafter = self._runner._drafter
        self.drafters.append(drafter and drafter.name)
        deltas = []
        for name, left in list(self.open.items()):
            self.open[name] = left - 1
            if left == 1:
                del self.open[name]
            deltas.append((name, SimpleNamespace(token_ids=[left], usage=None)))
        return deltas


def test_one_engine_answers_with_its_drafter_and_without() -> None:
    engine = Noting(drafter := SimpleNamespace(name="drafter"))
    switch, asks = Switch(engine), [Ask([1], SamplingParams(max_tokens=2))]
    answers = [switch.run(asks, drafts)[0].answers for drafts in (False, True, False)]
    switch.on()
    assert answers == [[[2, 1]]] * 3 and engine.drafters == [None, None, "drafter", "drafter", None, None]
    assert engine._runner._drafter is drafter


def test_a_drafter_is_timed(monkeypatch) -> None:
    now = [5.0]
    monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    timed = Timed(SimpleNamespace(buffers=(), began=lambda plan: now.__setitem__(0, now[0] + plan)))
    timed.began(0.25)
    now[0] += 1
    timed.began(0.5)
    assert timed.seconds == 0.75 and timed.buffers == ()
