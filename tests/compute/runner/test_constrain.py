"""Grammars in the runner: who compiles them, and what is cut off behind their end."""
from typing import Any

import pytest

from penstock.compute.decoding.grammar.compiler import Compiler
from penstock.compute.decoding.grammar.matcher import Matcher
from penstock.compute.runner.cached_seq import CachedSeq
from penstock.compute.runner.constrain import Constraints
from penstock.core.types import SamplingParams, SeqInfo, SeqResult, StructuredOutputsParams
from tests.compute.decoding.grammar.tokens import TOKENS, compiler


def test_a_sequence_enters_without_compiling_or_checking_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiler()
    params, held = made.prepare(SamplingParams(structured_outputs=StructuredOutputsParams(regex="[a-z]+")))
    constraints = Constraints(made)
    for name in ("compile", "checked"):
        monkeypatch.setattr(Compiler, name, None)
    first, fork = (CachedSeq(SeqInfo(params, (1,), 0, output=tuple(TOKENS.encode(output)))) for output in ("", "abc"))
    for seq_id, cached in enumerate((first, fork)):
        constraints.enter(seq_id, cached)
    assert held is not None and first.state.matcher is not None and fork.state.matcher is not None
    assert first.state.matcher is not fork.state.matcher


def test_tokens_behind_the_end_of_a_grammar_are_cut_and_counted() -> None:
    made = compiler()
    params, _ = made.prepare(SamplingParams(structured_outputs=StructuredOutputsParams(choice=["yes"])))
    cached, constraints = CachedSeq(SeqInfo(params, (1,), 0)), Constraints(made)
    constraints.enter(0, cached)
    results = [SeqResult(0, (*TOKENS.encode("yes"), made.vocabulary.end_ids[0]))]
    constraints.advance([cached], results)
    assert results == [SeqResult(0, tuple(TOKENS.encode("yes")), ended="stop", num_cut=1)]


class Panic(BaseException):
    """As native code may raise it."""


@pytest.mark.parametrize("method", ["take", "forced"])
def test_a_grammar_that_fails_ends_its_own_answer_alone(
        method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    made = compiler()
    params, held = made.prepare(SamplingParams(structured_outputs=StructuredOutputsParams(regex="[a-z]+")))
    both, constraints = [CachedSeq(SeqInfo(params, (1,), 0)) for _ in range(2)], Constraints(made)
    for seq_id, cached in enumerate(both):
        constraints.enter(seq_id, cached)
    broken, right = both[0].state.matcher, getattr(Matcher, method)

    def fail(self: Matcher, *given: Any) -> Any:
        if self is broken:
            raise Panic("index out of bounds")
        return right(self, *given)

    monkeypatch.setattr(Matcher, method, fail)
    tokens = tuple(TOKENS.encode("ab"))
    results = [SeqResult(0, tokens), SeqResult(1, tokens)]
    constraints.advance(both, results)
    assert results == [SeqResult(0, ended="abort", num_cut=2), SeqResult(1, tokens)] and held is not None
    assert caplog.messages == ["a grammar failed: Panic: index out of bounds; the answer that follows it ends"]


def test_a_grammar_that_cannot_be_begun_ends_its_own_answer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> Any:
        raise Panic("index out of bounds")

    made = compiler()
    params, held = made.prepare(SamplingParams(structured_outputs=StructuredOutputsParams(regex="[a-z]+")))
    plain, follows = CachedSeq(SeqInfo(SamplingParams(), (1,), 0)), CachedSeq(SeqInfo(params, (1,), 0))
    constraints = Constraints(made)
    monkeypatch.setattr(made, "matcher", fail)
    for seq_id, cached in enumerate((plain, follows)):
        constraints.enter(seq_id, cached)
    tokens = tuple(TOKENS.encode("ab"))
    results = [SeqResult(0, tokens), SeqResult(1)]
    constraints.advance([plain, follows], results)
    assert results == [SeqResult(0, tokens), SeqResult(1)] and held is not None
    results = [SeqResult(0, tokens), SeqResult(1, tokens)]
    constraints.advance([plain, follows], results)
    assert results == [SeqResult(0, tokens), SeqResult(1, ended="abort", num_cut=2)]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_no_failure_of_a_grammar(interrupt: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: Any) -> Any:
        raise interrupt

    made = compiler()
    params, held = made.prepare(SamplingParams(structured_outputs=StructuredOutputsParams(regex="[a-z]+")))
    cached, constraints = CachedSeq(SeqInfo(params, (1,), 0)), Constraints(made)
    constraints.enter(0, cached)
    monkeypatch.setattr(Matcher, "take", interrupted)
    with pytest.raises(interrupt):
        constraints.advance([cached], [SeqResult(0, (1,))])
    monkeypatch.setattr(made, "matcher", interrupted)
    with pytest.raises(interrupt):
        constraints.enter(1, cached)
    assert held is not None
