"""Grammars in the runner: who compiles them, and what is cut off behind their end."""
import pytest

from penstock.compute.decoding.grammar.compiler import Compiler
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
