"""Beam search with log-probabilities: right for every token, and kept only for outputs that may come back."""
import gc
from types import SimpleNamespace
from typing import Any

from penstock.compute.decoding.search.beam import BeamSearch
from penstock.core.types import SamplingParams, Seq, SeqOutput
from penstock.serve.engine.requests import Delta, Request
from penstock.serve.engine.searched import Searched
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
        self.scheduler = SimpleNamespace(append=self._append)
        self.seqs = {0: Seq(0, [1, 2], 2, PARAMS, max_len=LENGTH + 2, held=True)}

    def next_id(self) -> int:
        return max(self.seqs) + 1

    def fork(self, owner: Any, parent: Seq, child: Seq, num_tokens: int) -> None:
        self.seqs[child.seq_id] = child

    def finish(self, seq: Seq, reason: str) -> None:
        pass

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
