"""Beam search in the engine: what it finds on caches that are too small, what a step of it costs, and its log-probabilities, which are kept
only for outputs that may come back."""
import gc
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.compute.decoding.search.beam import BeamSearch
from penstock.core.types import SamplingParams, Seq, SeqOutput
from penstock.serve.engine.desk import Desk
from penstock.serve.engine.requests import Delta, Request
from penstock.serve.engine.searched import Searched
from tests.decide.builders import VOCAB, Rig, make_seq, watch_moves
from tests.fakes import FakeRunner, continuation, prefix_hashes
from tests.serve.api.fakes import tiny_tokenizer

WIDTH, LENGTH, BEST, LAST = 4, 300, 65, 66
PARAMS = SamplingParams(beam_width=WIDTH, temperature=0, max_tokens=LENGTH, logprobs=2, prompt_logprobs=0, ignore_eos=True)


class Row(tuple):  # type: ignore[type-arg]
    """Candidates that can be found among all objects."""


class StubDesk:
    """A desk whose sequences are never computed."""

    def __init__(self) -> None:
        self.due: list[Any] = []
        self.tokenizer = tiny_tokenizer()
        self.scheduler = SimpleNamespace(append=self._append, rebase=self._rebase)
        self.seqs = {0: Seq(0, [1, 2], 2, PARAMS, max_len=LENGTH + 2, held=True)}

    def next_id(self) -> int:
        return max(self.seqs) + 1

    def fork(self, owner: Any, parent: Seq, child: Seq, num_tokens: int) -> None:
        self.seqs[child.seq_id] = child

    def finish(self, seq: Seq, reason: str) -> None:
        pass

    def _rebase(self, seq_id: int, parent_id: int, num_shared: int) -> None:
        assert self.seqs[seq_id].tokens[:num_shared] == self.seqs[parent_id].tokens[:num_shared]
        self.seqs[seq_id].tokens[num_shared:] = self.seqs[parent_id].tokens[num_shared:]

    def _append(self, seq_id: int, token: int) -> None:
        self.seqs[seq_id].tokens.append(token)


def num_rows() -> int:
    return sum(type(each) is Row for each in gc.get_objects())


def test_of_what_was_searched_only_log_probabilities_that_may_come_back_are_kept() -> None:
    """The likeliest hypothesis always goes on with BEST; each of the others dies in the next step but one."""
    desk = StubDesk()
    searched = Searched(Request("r", (1, 2), PARAMS), desk.seqs[0], desk, BeamSearch(WIDTH, LENGTH))  # type: ignore[arg-type]
    deltas: list[Delta] = []
    for step in range(LENGTH):
        for seq in searched.seqs():
            row = Row((BEST + i, -0.001 * (step + 1) - 5.0 * i) for i in range(2 * WIDTH))
            searched.take(SeqOutput(seq.seq_id, candidates=row))
            del row
        assert desk.due == [searched] and (step % 50 or num_rows() <= 2 * WIDTH)
        assert sum(seq.params.prompt_logprobs is not None for seq in searched.seqs()) <= 1, "beams compute a prompt that is scored already"
        desk.due.clear()
        deltas = searched.settle()
    (delta,) = deltas
    assert delta.token_ids == (BEST,) * LENGTH and searched.done
    for step, scored in enumerate(delta.logprobs):
        logprob = -0.001 * (step + 1)
        assert (scored.token_id, scored.logprob, scored.rank) == (BEST, logprob, 1)
        assert scored.top == ((BEST, logprob), (BEST + 1, logprob - 5.0))


def likeliest(state: int) -> tuple[tuple[int, float], ...]:
    """What may follow a prefix with this hash."""
    rng = random.Random(state)
    return tuple(zip(rng.sample(range(VOCAB), 2 * WIDTH), sorted([-4 * rng.random() for _ in range(2 * WIDTH)], reverse=True), strict=True))


class Guesser(FakeRunner):
    """Its held sequences have many candidates that are about as likely."""

    def _choose(self, planned: Any, known: Any, states: list[int]) -> Any:
        found = super()._choose(planned, known, states)
        return replace(found, candidates=likeliest(states[-1])) if found.candidates else found


def searched_in(rig: Rig, prompt: tuple[int, ...], num_tokens: int) -> Searched:
    rig.runner = Guesser(rig.kv.block_size, VOCAB)
    params = SamplingParams(beam_width=WIDTH, n=WIDTH, temperature=0, max_tokens=num_tokens, ignore_eos=True)
    desk = Desk(rig.scheduler, tiny_tokenizer(), BeamSearch)
    first = Seq(0, list(prompt), len(prompt), params, max_len=len(prompt) + num_tokens, held=True, prompt=prompt)
    desk.next_id()
    searched = Searched(Request("r", prompt, params), first, desk, BeamSearch(WIDTH, num_tokens))
    searched.start()
    return searched


def answers(rig: Rig, searched: Searched) -> list[tuple[int, ...]]:
    """Steps until the search has ended; what it found, best first."""
    desk = searched._desk
    for _ in range(3000):
        _, outputs = rig.step()
        for output in outputs:
            if (owner := desk.owners.get(output.seq_id)) is not None:
                owner.take(output)
        if desk.due:
            desk.due.clear()
            deltas = searched.settle()
            rig.scheduler.check_integrity()
            if searched.done:
                return [delta.token_ids for delta in deltas]
    raise AssertionError("the search does not end")


def alone(prompt: tuple[int, ...], num_tokens: int) -> list[tuple[int, ...]]:
    search, live = BeamSearch(WIDTH, num_tokens), [prompt]
    while True:
        step = search.advance([likeliest(prefix_hashes(list(tokens))[-1]) for tokens in live])
        live = [(*live[fork.parent], fork.token) for fork in step.forks]
        if step.done:
            return [each.tokens for each in search.best(WIDTH)]


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize(("num_blocks", "budget", "max_num_seqs"), [(11, 7, 8), (14, 64, 8), (12, 3, 2), (40, 16, 3)])
def test_a_search_among_others_on_a_small_cache_finds_what_it_finds_alone(
        num_blocks: int, budget: int, max_num_seqs: int, prefix_cache: bool) -> None:
    rig = Rig(num_blocks, 3, max_num_seqs=max_num_seqs, budget=budget, prefix_cache=prefix_cache)
    prompt, num_tokens = tuple(i * i % 11 for i in range(13)), 17
    searched = searched_in(rig, prompt, num_tokens)
    others = [make_seq(100 + i, [i % 3] * (3 + i), 9, arrival_s=2.0 * i - 3) for i in range(6)]
    for seq in others:
        rig.scheduler.add(seq)
    assert answers(rig, searched) == alone(prompt, num_tokens)
    rig.run()
    assert all(seq.tokens[seq.num_prompt :] == continuation(seq.tokens[: seq.num_prompt], 9, VOCAB) for seq in others)
    assert rig.kv.num_used == 0 and (rig.scheduler.counters.preemptions > 0) == (num_blocks < 20)


def test_beams_that_nothing_takes_the_place_of_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where few tokens can come next, there are fewer beams than before."""
    every, go_on, widths = likeliest, Searched._go_on, []

    def few(state: int) -> tuple[tuple[int, float], ...]:
        most = (state >> 9) % 5 if (state >> 12) % 8 < 6 else 0
        return tuple((token, logprob if place < most else float("-inf")) for place, (token, logprob) in enumerate(every(state)))

    def watched(searched: Searched, forks: Any, paths: Any) -> None:
        go_on(searched, forks, paths)
        widths.append((len(paths), len(forks)))
        assert len(searched._desk.owners) == len(rig.scheduler.seqs()) == len(forks)

    monkeypatch.setitem(globals(), "likeliest", few)
    monkeypatch.setattr(Searched, "_go_on", watched)
    rig, prompt = Rig(prefix_cache=False), tuple(range(1, 8))
    assert answers(rig, searched_in(rig, prompt, 30)) == alone(prompt, 30)
    assert {(4, 3), (4, 2), (4, 1)} <= set(widths) and rig.kv.num_used == 0


def test_a_step_of_a_search_costs_what_its_beams_do_not_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of tokens, blocks and what the runner is told, the prompt is copied once for each beam, and not once for each fork."""
    rig = Rig(400, 4, budget=512)
    prompt, num_tokens = tuple(range(800)), 40
    searched = searched_in(rig, prompt, num_tokens)
    moved = watch_moves(rig.kv.pool, monkeypatch)
    forks: list[int] = []
    rebase = rig.scheduler.rebase
    monkeypatch.setattr(rig.scheduler, "rebase", lambda *args: forks.append(args[0]) or rebase(*args))
    assert answers(rig, searched) == alone(prompt, num_tokens)
    new = [planned.new for plan in rig.runner.plans for planned in plan.seqs if planned.new is not None]
    assert len(forks) > num_tokens and len(new) == WIDTH and all(info.prompt is prompt for info in new)
    ends = 2 * WIDTH - 1  # the beams that were new, and all at the end
    *others, registered, rest = sorted(moved)[:-ends]  # the last two: the prompt, in its two chunks
    assert sorted(moved)[-ends] >= 200 and (registered, rest) == (72, 128) and max(others) < 40
    told = [len(tokens) for plan in rig.runner.plans for _, _, tokens in plan.tails]
    assert len(told) == len(forks) and sum(told) < 6 * len(forks)  # whole answers would be 19 on average
