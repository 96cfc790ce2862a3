from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.contract import Batch, KVLayout, Outputs
from penstock.compute.backends.reference.backend import Reference
from penstock.compute.decoding.sampler import Sampler
from penstock.compute.decoding.state import RowState
from penstock.compute.price import Price, Storage
from penstock.compute.runner.decoding import Decoding
from penstock.compute.runner.runner import STEPS_PER_CHECK, Runner
from penstock.core.clock import VirtualClock
from penstock.core.types import PlannedSeq, SamplingParams, SeqInfo, SeqResult, StepPlan, StepResult
from penstock.core.work import StepWork
from tests.contract.decoders import SPECS, decoder

BLOCK = 4
PROGRAM, WEIGHTS = decoder(SPECS["windows, caps and norms"])
GREEDY = SamplingParams(temperature=0)
STORAGE = Storage(activation=4, kv=4, weights=dict.fromkeys(PROGRAM.weights, 99))


class Watched(Reference):
    """Keeps the batches, takes two seconds for each, and fails when told to."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.clock = clock
        self.batches: list[Batch] = []
        self.fails = False

    def step(self, loaded: Any, batch: Batch) -> Outputs:
        if self.fails:
            raise MemoryError("no")
        self.batches.append(batch)
        self.clock.advance(2.0)
        return super().step(loaded, batch)


@dataclass
class Rig:
    """Plans by hand. Sequence s has the blocks 10 s, 10 s + 1, ..."""

    infos: dict[int, SeqInfo]
    tokens: dict[int, list[int]] = field(default_factory=dict)
    known: set[int] = field(default_factory=set)
    num_steps: int = 0

    def __post_init__(self) -> None:
        clock = VirtualClock()
        self.backend = Watched(clock)
        loaded = self.backend.load(PROGRAM, WEIGHTS, KVLayout(60, BLOCK))
        self.runner = Runner(self.backend, loaded, Decoding(Sampler([])), Price(PROGRAM, STORAGE), clock)
        self.tokens = {s: [*info.prompt, *info.output] for s, info in self.infos.items()}

    def plan(self, *shares: tuple[int, int, int], finished: tuple[int, ...] = ()) -> StepPlan:
        """`shares`: (sequence, start, rows)."""
        self.known -= set(finished)
        seqs = []
        for s, start, rows in shares:
            tokens, info = self.tokens[s], self.infos[s]
            seqs.append(PlannedSeq(
                s, start, tuple(tokens[start : start + rows]), tuple(range(10 * s, 10 * s + 10)), start + rows == len(tokens),
                len(info.prompt), len(tokens) - len(info.prompt), new=None if s in self.known else info))
            self.known.add(s)
        self.num_steps += 1
        return StepPlan(self.num_steps, tuple(seqs), finished=finished)

    def run(self, *shares: tuple[int, int, int], finished: tuple[int, ...] = ()) -> StepResult:
        result = self.runner.execute(self.plan(*shares, finished=finished))
        for seq in result.seqs:
            self.tokens[seq.seq_id].extend(seq.tokens)
        return result


def info(num_prompt: int, seed: int = 0, params: SamplingParams = GREEDY, **rest: Any) -> SeqInfo:
    return SeqInfo(params, tuple(np.random.default_rng(seed).integers(0, PROGRAM.vocab_size, num_prompt).tolist()), seed, **rest)


def forward(tokens: Sequence[int]) -> dict[str, Any]:
    """The whole sequence at once, without a cache: log-probabilities [n, vocab] and hidden states [n, hidden], in float64."""
    backend = Reference()
    made = backend.forward(backend.load(PROGRAM, WEIGHTS, KVLayout(0, 1)), np.array([tokens]), ("logits", "hidden"))
    logits = made["logits"][0].astype(np.float64)
    return {"logprobs": logits - np.log(np.exp(logits).sum(-1, keepdims=True)), "hidden": made["hidden"][0].astype(np.float64)}


def only(result: StepResult) -> SeqResult:
    (seq,) = result.seqs
    return seq


def check_prompt(found: Sequence[Any], prompt: tuple[int, ...], num_top: int) -> None:
    expected = forward(prompt)["logprobs"]
    assert [each.token_id for each in found] == list(prompt[1:])
    for row, each in zip(expected, found, strict=False):
        assert each.logprob == pytest.approx(row[each.token_id], abs=1e-4)
        assert each.rank == 1 + (row > row[each.token_id]).sum()
        assert [token for token, _ in each.top] == np.argsort(-row, kind="stable")[:num_top].tolist()
        assert [value for _, value in each.top] == pytest.approx(np.sort(row)[::-1][:num_top].tolist(), abs=1e-4)


@pytest.mark.parametrize("cuts", [(30,), (1, 29), (13, 13, 4), (29, 1), (7, 7, 7, 8, 1)], ids=str)
def test_prompt_logprobs_come_chunk_by_chunk(cuts: tuple[int, ...]) -> None:
    rig = Rig({0: info(30, params=SamplingParams(temperature=0, prompt_logprobs=3)), 1: info(20, seed=1)})
    found, at = [], 0
    for i, rows in enumerate(cuts):
        first, *_ = rig.run((0, at, rows), (1, i, 1)).seqs if i % 2 else rig.run((1, i, 1), (0, at, rows)).seqs[::-1]
        found += first.prompt_logprobs
        at += rows
        assert len(found) == min(at, 29)
        assert first.tokens == (() if at < 30 else (forward(rig.infos[0].prompt)["logprobs"][-1].argmax(),))
    check_prompt(found, rig.infos[0].prompt, 3)


def test_a_generated_token_has_no_prompt_logprobs() -> None:
    rig = Rig({0: info(5, params=SamplingParams(temperature=0, prompt_logprobs=0))})
    assert all(each.top == () for each in only(rig.run((0, 0, 5))).prompt_logprobs)
    assert only(rig.run((0, 5, 1))).prompt_logprobs == ()


def test_greedy_tokens_and_their_logprobs_are_those_of_a_plain_forward() -> None:
    rig = Rig({s: info(n, seed=s, params=SamplingParams(temperature=0, logprobs=2)) for s, n in enumerate((3, 9, 17))})
    said: dict[int, list[Any]] = {s: [] for s in rig.infos}
    ends = dict.fromkeys(rig.infos, 0)
    for order in ((2, 0, 1), (0, 1, 2), (1, 2, 0), (2, 1, 0)):
        for seq in rig.run(*((s, ends[s], len(rig.tokens[s]) - ends[s]) for s in order)).seqs:
            said[seq.seq_id] += seq.logprobs
        ends = {s: len(rig.tokens[s]) - 1 for s in rig.infos}
    for s, tokens in rig.tokens.items():
        expected = forward(tokens)["logprobs"][len(rig.infos[s].prompt) - 1 : -1]
        assert len(said[s]) == 4
        for row, token, each in zip(expected, tokens[-4:], said[s], strict=True):
            assert token == each.token_id == row.argmax() and each.rank == 1 and len(each.top) == 2
            assert each.logprob == pytest.approx(row.max(), abs=1e-4)


def test_results_come_in_the_order_of_the_plan() -> None:
    scored = SamplingParams(temperature=0, prompt_logprobs=1, logprobs=1)
    infos = {0: info(6, 0, scored), 1: info(8, 1), 2: info(5, 2, wants_embedding=True), 3: info(7, 3, scored), 4: info(9, 4)}
    alone = {s: only(Rig({s: each}).run((s, 0, len(each.prompt)))) for s, each in infos.items()}
    for order in ((0, 1, 2, 3, 4), (4, 2, 3, 0, 1), (3, 1, 4, 0, 2)):
        rig = Rig(infos)
        result = rig.run(*((s, 0, len(infos[s].prompt)) for s in order))
        assert [seq.seq_id for seq in result.seqs] == list(order)
        assert {seq.seq_id: seq for seq in result.seqs} == alone


def test_an_embedding_is_the_last_hidden_state_at_length_one() -> None:
    rig = Rig({0: info(11, wants_embedding=True), 1: info(4, seed=1)})
    assert only(rig.run((0, 0, 6))) == SeqResult(0)
    _, seq = rig.run((1, 0, 4), (0, 6, 5)).seqs
    hidden = forward(rig.infos[0].prompt)["hidden"][-1]
    assert seq.embedding == pytest.approx((hidden / np.linalg.norm(hidden)).tolist(), abs=1e-5)
    assert seq.tokens == () and seq.logprobs == ()
    first, second = rig.backend.batches
    assert first.wanted == () and not len(first.logit_rows)
    assert second.wanted == ("hidden",) and second.logit_rows.tolist() == [3]


def test_a_held_sequence_gets_candidates_and_chooses_nothing() -> None:
    rig = Rig({0: info(8, params=SamplingParams(temperature=0, beam_width=3), held=True), 1: info(4, seed=1)})
    held, free = rig.run((0, 0, 8), (1, 0, 4)).seqs
    assert held.tokens == () and free.tokens and free.candidates == ()
    row = forward(rig.infos[0].prompt)["logprobs"][-1]
    best = np.argsort(-row, kind="stable")[: len(held.candidates)]
    assert len(best) >= 3 and [token for token, _ in held.candidates] == best.tolist()
    assert [value for _, value in held.candidates] == pytest.approx(row[best].tolist(), abs=1e-4)


def test_penalties_know_of_tokens_that_a_search_appended() -> None:
    params = SamplingParams(temperature=0, beam_width=2, frequency_penalty=100.0)
    rig = Rig({0: info(8, params=params, held=True)})
    best = only(rig.run((0, 0, 8))).candidates[0][0]
    rig.tokens[0] += [best, best]
    candidates = only(rig.run((0, 8, 2))).candidates
    plain = SamplingParams(temperature=0, beam_width=67)
    other = Rig({0: SeqInfo(plain, rig.infos[0].prompt, 0, held=True, output=(best, best))})
    free = dict(only(other.run((0, 0, 10))).candidates)
    assert best in free and best not in dict(candidates)


@pytest.mark.parametrize("penalty", [{"frequency_penalty": 2.0}, {"repetition_penalty": 3.0}, {}])
def test_a_beam_that_takes_the_place_of_another_is_as_one_that_was_it_all_along(penalty: dict[str, float]) -> None:
    params = SamplingParams(temperature=0, beam_width=8, **penalty)
    rig = Rig({0: info(8, params=params, held=True)})
    best = [token for token, _ in only(rig.run((0, 0, 8))).candidates]
    for at, token in enumerate(best[:4], 8):
        rig.tokens[0].append(token)
        rig.run((0, at, 1))
    rig.tokens[0][9:] = [best[0], best[6], best[7], best[5]]
    plan = replace(rig.plan((0, 10, 3)), tails=((0, 9, tuple(rig.tokens[0][9:])),))
    rig.backend.fails = True
    with pytest.raises(MemoryError):
        rig.runner.execute(plan)
    rig.backend.fails = False
    rig.run((0, 9, 1))
    other = Rig({0: SeqInfo(params, rig.infos[0].prompt, 0, held=True, output=tuple(rig.tokens[0][8:]))})
    assert only(rig.runner.execute(plan)).candidates == only(other.run((0, 0, 13))).candidates


def test_rows_whose_log_probabilities_are_known_give_none() -> None:
    params = SamplingParams(temperature=0, prompt_logprobs=1)
    rig, again = (Rig({0: info(12, params=params)}) for _ in range(2))
    known = only(rig.run((0, 0, 7))).prompt_logprobs
    wanted = (*known, *only(rig.run((0, 7, 5))).prompt_logprobs)
    found: list[Any] = []
    for start, rows, num_known, num_logits in ((0, 7, 0, 7), (0, 3, 7, 0), (3, 6, 7, 2), (9, 3, 9, 2 + 1)):
        plan = again.plan((0, start, rows))
        found += only(again.runner.execute(replace(plan, seqs=(replace(plan.seqs[0], num_scored=num_known),)))).prompt_logprobs
        assert len(again.backend.batches[-1].logit_rows) == num_logits
    assert tuple(found) == wanted


def test_answers_to_one_prompt_share_what_penalties_need_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams(temperature=0, repetition_penalty=1.5)
    first = info(9, params=params)
    infos = {0: first, 1: replace(first, seed=1), 2: replace(first, params=replace(params, repetition_penalty=1.0))}
    made, begin = [], RowState.__init__
    monkeypatch.setattr(RowState, "__init__", lambda self, info, output=(), kin=None: made.append(kin) or begin(self, info, output, kin))
    rig = Rig({**infos, 3: info(9, params=params, seed=5)})
    rig.run((2, 0, 9))
    rig.run((0, 0, 9))
    rig.run((1, 0, 9), (3, 0, 9))
    assert made == [None, None, rig.runner._cached[0].state, None]
    assert rig.tokens[1] == rig.tokens[0]


def test_a_sequence_that_finished_is_forgotten() -> None:
    rig = Rig({0: info(6), 1: info(4, seed=1)})
    rig.run((0, 0, 6), (1, 0, 4))
    rig.run((1, 4, 1), finished=(0, 77))
    rig.known.add(0)
    with pytest.raises(KeyError):
        rig.run((0, 6, 1))
    assert set(rig.runner._cached) == {1}


def test_what_was_preempted_goes_on_as_if_it_had_not_been() -> None:
    params = SamplingParams(temperature=0.8, seed=3, repetition_penalty=1.5, frequency_penalty=0.5, logprobs=1)
    calm, disturbed = (Rig({0: info(10, params=params)}) for _ in range(2))
    said: list[list[Any]] = []
    for rig in (calm, disturbed):
        results = [only(rig.run((0, 0, 10))), *(only(rig.run((0, n, 1))) for n in (10, 11))]
        if rig is disturbed:
            rig.run((0, 0, 7))
            results.append(only(rig.run((0, 7, 6))))
        else:
            results.append(only(rig.run((0, 12, 1))))
        said.append([(seq.tokens, seq.logprobs) for seq in results])
    assert said[0] == said[1]


def test_a_sequence_that_comes_back_brings_its_output() -> None:
    params = SamplingParams(temperature=0, frequency_penalty=100.0)
    rig = Rig({0: info(10, params=params)})
    rig.run((0, 0, 10))
    for at in (10, 11):
        rig.run((0, at, 1))
    back = Rig({0: SeqInfo(params, rig.infos[0].prompt, 0, output=tuple(rig.tokens[0][10:12]))})
    assert only(back.run((0, 0, 12))).tokens == (rig.tokens[0][12],)


def test_a_step_says_what_it_cost() -> None:
    rig = Rig({0: info(9, params=SamplingParams(temperature=0, prompt_logprobs=0)), 1: info(4, seed=1)})
    rig.run((1, 0, 4))
    result = rig.run((0, 0, 9), (1, 4, 1))
    cost = Price(PROGRAM, STORAGE).count(StepWork(((9, 9), (1, 5)), num_logits=8 + 1 + 1))
    assert result.step_id == 2 and result.compute_seconds == 2.0
    assert (result.weight_bytes, result.kv_bytes, result.activation_bytes, result.operations) == (
        cost.weight_bytes, cost.kv_bytes, cost.activation_bytes, cost.operations)


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(temperature=0, frequency_penalty=2.0, beam_width=2)], ids=["free", "held"])
def test_a_step_that_failed_can_be_repeated(params: SamplingParams) -> None:
    held = params.beam_width is not None
    rig, other = (Rig({0: info(6, params=params, held=held)}) for _ in range(2))
    for each in (rig, other):
        each.run((0, 0, 6))
        each.tokens[0] += [5] * held
    plan = rig.plan((0, 6, 1))
    rig.backend.fails = True
    with pytest.raises(MemoryError):
        rig.runner.execute(plan)
    rig.backend.fails = False
    assert rig.runner.execute(plan) == other.run((0, 6, 1))


def test_logits_that_are_all_nan_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig({0: info(5), 1: info(6)})
    rig.run((1, 0, 6))
    assert not caplog.records
    rig = Rig({0: info(5)})
    step = rig.backend.step

    def broken(loaded: Any, batch: Batch) -> Outputs:
        return Outputs(step(loaded, batch).logits * np.float32("nan"))

    rig.backend.step = broken  # type: ignore[method-assign]
    for at in range(2 * STEPS_PER_CHECK):
        rig.runner.execute(rig.plan((0, at % 5, 5 - at % 5)))
    assert [record.getMessage() for record in caplog.records] == [
        f"step {STEPS_PER_CHECK}: every logit is NaN, so answers mean nothing: weights hold NaN, or something overflowed"]
