"""Accepted drafts are what the target chooses."""
import itertools

import numpy as np
import pytest
from scipy.stats import chisquare

from penstock.compute.decoding.accept import find, walk
from penstock.compute.decoding.acceptance.typical import Typical
from penstock.compute.decoding.filters import TABLE
from penstock.compute.decoding.sampler import Sampler
from penstock.compute.decoding.state import RowState
from penstock.core.errors import UsageError
from penstock.core.types import SamplingParams, SeqInfo


def test_a_chain_is_accepted_until_the_first_other_choice():
    choices = [5, 6, 9, 8]
    assert walk((5, 6, 7), None, choices.__getitem__) == ([0, 1, 2], [5, 6, 9])
    assert walk((4,), None, choices.__getitem__) == ([0], [5])
    assert walk((), None, choices.__getitem__) == ([0], [5])


def test_a_tree_is_walked_along_the_branch_that_was_chosen():
    drafts, parents = (1, 2, 3, 4), (-1, -1, 1, 1)
    choices = [2, 0, 4, 0, 7]
    assert walk(drafts, parents, choices.__getitem__) == ([0, 2, 4], [2, 4, 7])
    assert find(drafts, parents, 1, 9) is None


def test_rows_off_the_path_are_not_asked():
    asked = []

    def choose(row):
        asked.append(row)
        return {0: 2, 2: 3}[row]

    walk((1, 2), (-1, -1), choose)
    assert asked == [0, 2]


VOCAB = 4
# Of a model that remembers two tokens.
LOGITS = np.random.default_rng(7).normal(size=(1 + VOCAB + VOCAB**2, VOCAB)).astype(np.float32) * 1.5
CASES = {
    "plain": {},
    "warm": {"temperature": 1.7},
    "filtered": {"top_k": 3, "top_p": 0.9, "temperature": 0.8},
    "penalized": {"presence_penalty": 0.7, "repetition_penalty": 1.3},
}
TREES = {"chain": ((2, 1), None), "tree": ((0, 2, 1, 3, 0), (-1, -1, 0, 0, 1)), "wide": ((0, 1, 2, 3), (-1, -1, -1, -1))}


def logits_after(tokens):
    return LOGITS[0 if not tokens else 1 + tokens[-1] if len(tokens) == 1 else 1 + VOCAB + VOCAB * tokens[-2] + tokens[-1]][None, :]


def generate(sampler, params, seed, drafted):
    """Three tokens, drafting with `drafted` (drafts, parents) after each pass."""
    state = RowState(SeqInfo(params, (), seed))
    out, passes = [], 0
    while len(out) < 3:
        drafts, parents = drafted
        passes += 1

        def choose(row, out=tuple(out), drafts=drafts, parents=parents):
            path, at = [], row - 1
            while at >= 0:
                path.append(drafts[at])
                at = at - 1 if parents is None else parents[at]
            before = [*out, *reversed(path)]
            (token,) = sampler.sample(logits_after(before), [state], [len(before)]).tokens
            state.extend((token,))
            return token

        out += walk(drafts, parents, choose)[1]
    return tuple(out[:3]), passes


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("tree", TREES)
def test_drafting_changes_no_token_whatever_the_seed(case, tree):
    sampler = Sampler([TABLE.load(name)() for name in TABLE])
    params = SamplingParams(**CASES[case])
    plain = [generate(sampler, params, seed, ((), None)) for seed in range(150)]
    fast = [generate(sampler, params, seed, TREES[tree]) for seed in range(150)]
    assert [tokens for tokens, _ in plain] == [tokens for tokens, _ in fast]
    assert sum(passes for _, passes in fast) < sum(passes for _, passes in plain)


@pytest.mark.parametrize("tree", TREES)
def test_the_distribution_is_the_targets(tree):
    """Chi-square over all sequences of two tokens, against their probabilities."""
    sampler = Sampler([TABLE.load(name)() for name in TABLE])
    params = SamplingParams(temperature=0.9)

    def probabilities(tokens):
        row = np.exp(logits_after(tokens)[0].astype(np.float64) / 0.9)
        return row / row.sum()

    pairs = list(itertools.product(range(VOCAB), repeat=2))
    expected = np.array([probabilities(())[a] * probabilities((a,))[b] for a, b in pairs])
    found = [generate(sampler, params, 1_000_003 * seed + 17, TREES[tree])[0][:2] for seed in range(4000)]
    counts = np.array([found.count(pair) for pair in pairs])
    assert chisquare(counts, expected * len(found)).pvalue > 1e-3


def test_a_rule_may_take_another_draft_than_the_choice():
    """The walk goes on behind it, and only drafts that follow are offered to the rule."""
    drafts, parents = (1, 2, 3, 4), (-1, -1, 1, 1)
    choices = [9, 0, 8, 0, 7]
    asked = []

    def instead(row, after):
        asked.append((row, after))
        return after[-1]

    assert walk(drafts, parents, choices.__getitem__, instead) == ([0, 2, 4], [2, 4, 7])
    assert asked == [(0, [0, 1]), (2, [2, 3])]
    assert walk((5, 6), None, [5, 9, 8].__getitem__, lambda row, after: None) == ([0, 1], [5, 9])


class TestTypical:
    SHARP = np.log(np.array([0.9, 0.05, 0.03, 0.02]))
    FLAT = np.zeros(4)

    def test_likely_drafts_are_taken_by_a_bound_that_falls_with_entropy(self):
        rule = Typical(Typical.Options(epsilon=0.3, delta=0.5))
        assert rule.instead(self.SHARP, [1, 0]) == 1 and rule.instead(self.SHARP, [1]) is None
        assert rule.instead(self.FLAT, [2]) == 0  # a quarter is more than half of exp(-log 4)
        assert Typical(Typical.Options(epsilon=1.0, delta=1.0)).instead(self.FLAT, [2]) is None

    @pytest.mark.parametrize(("params", "first", "second"), [
        ({"temperature": 1.0}, 0, None), ({"temperature": 5.0}, 0, 0), ({"temperature": 5.0, "top_k": 1}, 0, None),
        ({"temperature": 5.0, "top_p": 0.3}, 0, None), ({"temperature": 5.0, "min_p": 0.9}, 0, None), ({"temperature": 1e-9}, 0, None),
    ], ids=str)
    def test_temperature_and_filters_count(self, sampler, params, first, second):
        """What is not drawn from is never accepted."""
        rule = Typical(Typical.Options(epsilon=0.09, delta=1.0))
        scaled = sampler.scaled(self.SHARP.astype(np.float32), SamplingParams(**params))
        assert rule.instead(scaled, [0]) == first and rule.instead(scaled, [1]) == second

    @pytest.mark.parametrize("options", [Typical.Options(epsilon=0), Typical.Options(delta=0), Typical.Options(epsilon=2)])
    def test_bounds_are_probabilities(self, options):
        with pytest.raises(UsageError, match="at most 1"):
            Typical(options)
