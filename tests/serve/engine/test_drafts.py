"""What is told of drafts: an answer, its request, the steps and the scheduler agree, and none of it changes a token."""
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock import LLM, SamplingParams
from penstock.compute.decoding.control.contract import Always
from penstock.compute.decoding.propose.contract import Drafts
from penstock.compute.runner.drafter import Drafter
from penstock.core.clock import MonotonicClock
from penstock.core.drafting import Drafting, together
from penstock.core.needs import Needs
from penstock.serve.spans import Span
from tests.tiny import write_heads, write_model

PARAMS = SamplingParams(max_tokens=60, temperature=0, ignore_eos=True)
PROMPTS = ["one two one two one two", "abcabcabcabc", "the sea the sea the sea"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return LLM(folder, propose="ngram:n=3,least=1,k=4", draft_control="always")


def plain(output: Any) -> list[Any]:
    return [(each.text, each.token_ids, each.finish_reason) for each in output.outputs]


def test_answers_requests_and_steps_agree(llm: LLM, folder: Path) -> None:
    counters = llm._engine._scheduler.counters
    before = counters.drafted_tokens, counters.accepted_tokens
    with llm._recorder.recording() as records:
        outputs = llm.generate(PROMPTS, PARAMS)
    assert [plain(output) for output in outputs] == [plain(output) for output in LLM(folder).generate(PROMPTS, PARAMS)]
    total = together(output.drafting for output in outputs)
    assert total == together(record.drafting for record in records)
    assert total.num_drafted == sum(record.num_draft_tokens for record in records) == counters.drafted_tokens - before[0]
    assert 0 < total.num_accepted == sum(record.num_accepted_tokens for record in records) == counters.accepted_tokens - before[1]
    assert total.passes == sum(record.num_draft_seqs for record in records)
    assert total.tokens == total.passes + total.num_accepted
    assert all(0 < record.draft_seconds < record.seconds - record.compute_seconds for record in records)
    for output in outputs:
        assert output.drafting == output.outputs[0].drafting and len(output.drafting.drafted) == 4


def test_answers_that_nobody_was_asked_about_are_known_to_the_next(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh, knowing = LLM(folder, propose="suffix", draft_control="always"), LLM(folder, propose="suffix", draft_control="always")
    with monkeypatch.context() as patched:
        patched.setattr(Always, "limits", lambda self, seq_ids, num_other_rows: None)
        (first,) = knowing.generate(PROMPTS[:1], PARAMS)
    (alone,), (again,) = fresh.generate(PROMPTS[:1], PARAMS), knowing.generate(PROMPTS[:1], PARAMS)
    assert first.drafting.num_drafted == 0 and again.drafting.num_accepted > alone.drafting.num_accepted
    assert plain(first) == plain(alone) == plain(again)


def test_plain_decoding_tells_nothing_of_drafts(folder: Path) -> None:
    llm = LLM(folder)
    with llm._recorder.recording() as records:
        (output,) = llm.generate("one two one two", PARAMS)
    assert output.drafting == output.outputs[0].drafting == Drafting()
    assert all(record.drafting == Drafting() and record.num_draft_seqs == 0 == record.draft_seconds for record in records)


def test_each_of_several_answers_has_figures_of_its_own(llm: LLM) -> None:
    params = SamplingParams(n=3, max_tokens=40, temperature=0.3, seed=2, ignore_eos=True)
    (output,) = llm.generate("one two one two one two", params)
    assert len({each.drafting for each in output.outputs}) > 1
    assert output.drafting == together(each.drafting for each in output.outputs)
    for each in output.outputs:
        assert each.drafting.tokens <= len(each.token_ids)


def test_drafts_behind_a_stop_string_are_not_counted_as_accepted(folder: Path) -> None:
    llm = LLM(folder, propose=f"draft_model:model={folder},k=4", draft_control="always")  # all are right
    (whole,) = llm.generate("abcabcabcabc", PARAMS)
    text = whole.outputs[0].text
    num_cut = 0
    for size in range(5, 40, 7):
        stop = text[size : size + 3]
        with llm._recorder.recording() as records:
            (cut,) = llm.generate("abcabcabcabc", SamplingParams(max_tokens=60, temperature=0, ignore_eos=True, stop=(stop,)))
        drafting = cut.outputs[0].drafting
        assert drafting == together(record.drafting for record in records)
        assert cut.outputs[0].text == text[: text.index(stop)]
        assert drafting.num_accepted <= drafting.tokens < len(cut.outputs[0].token_ids)
        num_cut += drafting.tokens < drafting.passes + drafting.num_accepted
    assert num_cut


def test_spans_of_a_conversation_are_its_text(folder: Path) -> None:
    llm = LLM(folder, propose=f"draft_model:model={folder},k=3", draft_control="always")
    spans: list[Span] = []
    output, _ = llm.converse([{"role": "user", "content": "tell me"}], PARAMS, on_span=spans.append)
    assert "".join(span.text for span in spans) == output.outputs[0].text
    drafted = sum(len(span.text) for span in spans if span.drafted)
    assert 0 < drafted < len(output.outputs[0].text) and output.drafting.num_accepted > 40


class Wishful:
    """Drafts that are wrong, in a tree."""

    needs = Needs(tree_masks=True)

    def lookahead(self) -> int:
        return 3

    def propose(self, rows: Sequence[Any]) -> list[Any]:
        return [Drafts((258, 259, 260), (-1, -1, 0)) for _ in rows]

    def forget(self, seq_id: int) -> None:
        pass


def test_wrong_drafts_of_a_tree_are_told_by_depth(folder: Path) -> None:
    llm = LLM(folder)
    llm._engine._runner._drafter = Drafter(Wishful(), Always(3), MonotonicClock(), llm._built.spec.vocab_size)
    (output,) = llm.generate("one", SamplingParams(max_tokens=6, temperature=0, ignore_eos=True))
    drafting = output.drafting
    assert drafting.accepted == (0, 0) and drafting.drafted[0] > drafting.drafted[1] > 0 and drafting.tokens_per_draft_pass == 1


class Failing(Wishful):
    """Fails when it is asked for the fourth time, and must not be asked again."""

    num_asked = 0

    def propose(self, rows: Sequence[Any]) -> list[Any]:
        self.num_asked += 1
        if self.num_asked > 3:
            raise KeyError(rows[0].seq_id)
        return super().propose(rows)


def test_answers_outlive_the_proposer(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    llm, proposer = LLM(folder), Failing()
    llm._engine._runner._drafter = Drafter(proposer, Always(3), MonotonicClock(), llm._built.spec.vocab_size)
    outputs = [llm.generate(PROMPTS, PARAMS) for _ in range(2)]
    assert proposer.num_asked == 4 and len(caplog.records) == 1 and llm._engine._runner._drafter is None
    for answered in outputs:
        assert [plain(output) for output in answered] == [plain(output) for output in LLM(folder).generate(PROMPTS, PARAMS)]
    assert all(output.drafting.num_drafted == 0 for output in outputs[1]) and any(output.drafting.num_drafted for output in outputs[0])


@pytest.mark.parametrize("propose", ["draft_model:model={folder},k=2", "eagle"])
def test_who_drafts_reads_no_more_in_a_step_than_the_target(folder: Path, propose: str) -> None:
    pytest.importorskip("penstock._native")
    write_heads(folder)
    llm = LLM(folder, propose=propose.format(folder=folder), draft_control="always", max_num_batched_tokens=30)
    backend, sizes = llm._engine._runner._backend, []
    step = backend.step
    backend.step = lambda loaded, batch: sizes.append(len(batch.tokens)) or step(loaded, batch)  # type: ignore[func-returns-value]
    (output,) = llm.generate(["the sea " * 12], PARAMS)
    assert len(output.prompt_token_ids) > 60 and output.drafting.num_drafted and max(sizes) == 30
