"""A sequence's place in its grammar outlives a preemption."""
from penstock.compute.runner.cached_seq import CachedSeq
from penstock.compute.runner.constrain import Constraints
from penstock.core.types import SamplingParams, SeqInfo, StructuredOutputsParams
from tests.compute.decoding.grammar.tokens import TOKENS, compiler


def test_what_was_written_before_a_preemption_is_not_gone_over_again() -> None:
    made = compiler()
    constraints = Constraints(made)
    params = SamplingParams(structured_outputs=made.checked(StructuredOutputsParams(regex="[a-z]+")))
    output = tuple(TOKENS.encode("abc"))
    first = CachedSeq(SeqInfo(params, (1,), 0))
    constraints.enter(7, first, None)
    matcher = first.state.matcher
    assert matcher is not None and matcher.take(output) == 3
    again, other = (CachedSeq(SeqInfo(params, (1,), 0, output=written)) for written in (output, output[:2]))
    constraints.enter(7, again, first)
    assert again.state.matcher is matcher
    constraints.enter(7, other, first)
    assert other.state.matcher is not None and other.state.matcher is not matcher and other.state.matcher.stands_behind(output[:2])
