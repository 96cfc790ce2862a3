"""Accepted drafts are what the target chooses."""
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chisquare

from penstock.compute.decoding.accept import find, num_agreeing, walk
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
    for drafts in ((5, 6, 7), (5, 6, 9), (4,), ()):
        assert num_agreeing(drafts, choices[: len(drafts) + 1]) == len(walk(drafts, None, choices.__getitem__)[0]) - 1


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


def generate(sampler, params, seed, drafted, rule=None):
    """Three tokens, drafting with `drafted` (drafts, parents) after each pass -> (tokens, passes)."""
    state = RowState(SeqInfo(params, (), seed))
    out, passes = [], 0
    while len(out) < 3:
        drafts, parents = drafted
        passes += 1

        def before(row, out=tuple(out), drafts=drafts, parents=parents):
            path, at = [], row - 1
            while at >= 0:
                path.append(drafts[at])
                at = at - 1 if parents is None else parents[at]
            return [*out, *reversed(path)]

        def choose(row, before=before):
            (token,) = sampler.sample(logits_after(before(row)), [state], [len(before(row))]).tokens
            state.extend((token,))
            return token

        def substitute(row, after, before=before, drafts=drafts):
            found = rule.substitute(sampler.scaled(logits_after(before(row))[0], params), [drafts[i] for i in after])
            return None if found is None else after[found]

        out += walk(drafts, parents, choose, None if rule is None else substitute)[1]
    return tuple(out[:3]), passes


def every_filter():
    return Sampler([TABLE.load(name)() for name in TABLE])


@pytest.mark.parametrize("case", CASES)
def test_drafting_changes_no_token_whatever_the_seed(case, first_seed):
    sampler, params = every_filter(), SamplingParams(**CASES[case])
    seeds = range(first_seed, first_seed + 150)
    plain = [generate(sampler, params, seed, ((), None)) for seed in seeds]
    for tree in TREES.values():
        fast = [generate(sampler, params, seed, tree) for seed in seeds]
        assert [tokens for tokens, _ in plain] == [tokens for tokens, _ in fast]
        assert sum(passes for _, passes in fast) < sum(passes for _, passes in plain)


def drawn_from(tokens, case):
    """Probabilities [VOCAB] of what follows, computed plainly: penalties, temperature, top-k, top-p."""
    row = logits_after(tokens)[0].astype(np.float64)
    for token in set(tokens):
        penalty = case.get("repetition_penalty", 1)
        row[token] = row[token] / penalty if row[token] > 0 else row[token] * penalty
        row[token] -= case.get("presence_penalty", 0)
    row /= case.get("temperature", 1)
    row[np.argsort(-row)[case.get("top_k", VOCAB) :]] = -np.inf
    shares = np.exp(row) / np.exp(row).sum()
    falling = np.argsort(-shares)
    shares[falling[np.append(0, np.cumsum(shares[falling])[:-1]) >= case.get("top_p", 1)]] = 0
    return shares / shares.sum()


def coming(tokens, at, case, drafted, bounds, left):
    """{`left` tokens that come after `tokens`: probability}. `at`: the draft that the last of these is, -1 where none is.
    `bounds`: epsilon and delta of the typical rule; None: the exact one."""
    if not left:
        return {(): 1.0}
    drafts, parents = drafted
    after = {drafts[i]: i for i in range(len(drafts)) if (i - 1 if parents is None else parents[i]) == at}
    drawn = drawn_from(tokens, case)
    found = drawn.copy()
    if bounds is not None and after:
        entropy = -sum(p * np.log(p) for p in drawn if p)
        best = max(after, key=lambda token: drawn[token])
        if drawn[best] > min(bounds[0], bounds[1] * np.exp(-entropy)):
            found[[token for token in range(VOCAB) if token not in after]] = 0
            found[best] += 1 - found.sum()
    result = {}
    for token in np.flatnonzero(found).tolist():
        for rest, share in coming((*tokens, token), after.get(token, -1), case, drafted, bounds, left - 1).items():
            result[token, *rest] = float(found[token]) * share
    return result


BOUNDS = {"exact": None, "typical": (0.3, 0.5)}


@pytest.mark.parametrize(("rule", "case"), [(rule, case) for rule in BOUNDS for case in CASES if (rule, case) != ("typical", "penalized")])
@pytest.mark.parametrize("tree", TREES)
def test_what_comes_out_has_the_distribution_that_the_rule_promises(tree, case, rule, first_seed):
    """Chi-square over all sequences of three tokens. Under the exact rule their probabilities are the target's, whatever was drafted;
    the typical rule is never asked of penalized choices."""
    bounds = BOUNDS[rule]
    wanted = coming((), -1, CASES[case], ((), None) if bounds is None else TREES[tree], bounds, 3)
    made = None if bounds is None else Typical(Typical.Options(*bounds))
    sampler, params = every_filter(), SamplingParams(**CASES[case])
    num = 1000
    found = Counter(generate(sampler, params, 1_000_003 * i + 17 + first_seed, TREES[tree], made)[0] for i in range(num))
    assert set(found) <= set(wanted)
    likely = [tokens for tokens, share in wanted.items() if share * num >= 5]  # rarer ones share a cell
    seen, hoped = [found[tokens] for tokens in likely], [wanted[tokens] * num for tokens in likely]
    if num - sum(hoped) > 1e-6 * num:
        seen, hoped = [*seen, num - sum(seen)], [*hoped, num - sum(hoped)]
    assert chisquare(seen, hoped).pvalue > 1e-3


def test_a_rule_may_take_another_draft_than_the_choice():
    """The walk goes on behind it, and only drafts that follow are offered to the rule."""
    drafts, parents = (1, 2, 3, 4), (-1, -1, 1, 1)
    choices = [9, 0, 8, 0, 7]
    asked = []

    def substitute(row, after):
        asked.append((row, after))
        return after[-1]

    assert walk(drafts, parents, choices.__getitem__, substitute) == ([0, 2, 4], [2, 4, 7])
    assert asked == [(0, [0, 1]), (2, [2, 3])]
    assert walk((5, 6), None, [5, 9, 8].__getitem__, lambda row, after: None) == ([0, 1], [5, 9])


class TestTypical:
    SHARP = np.log(np.array([0.9, 0.05, 0.03, 0.02]))
    FLAT = np.zeros(4)

    def test_likely_drafts_are_taken_by_a_bound_that_falls_with_entropy(self):
        rule = Typical(Typical.Options(epsilon=0.3, delta=0.5))
        assert rule.substitute(self.SHARP, [1, 0]) == 1 and rule.substitute(self.SHARP, [1]) is None
        assert rule.substitute(self.FLAT, [2]) == 0  # a quarter is more than half of exp(-log 4)
        assert Typical(Typical.Options(epsilon=1.0, delta=1.0)).substitute(self.FLAT, [2]) is None

    @pytest.mark.parametrize(("params", "first", "second"), [
        ({"temperature": 1.0}, 0, None), ({"temperature": 5.0}, 0, 0), ({"temperature": 5.0, "top_k": 1}, 0, None),
        ({"temperature": 5.0, "top_p": 0.3}, 0, None), ({"temperature": 5.0, "min_p": 0.9}, 0, None), ({"temperature": 1e-9}, 0, None),
    ], ids=str)
    def test_temperature_and_filters_count(self, sampler, params, first, second):
        """What is not drawn from is never accepted."""
        rule = Typical(Typical.Options(epsilon=0.09, delta=1.0))
        scaled = sampler.scaled(self.SHARP.astype(np.float32), SamplingParams(**params))
        assert rule.substitute(scaled, [0]) == first and rule.substitute(scaled, [1]) == second

    @pytest.mark.parametrize("options", [Typical.Options(epsilon=0), Typical.Options(delta=0), Typical.Options(epsilon=2)])
    def test_bounds_are_probabilities(self, options):
        with pytest.raises(UsageError, match="at most 1"):
            Typical(options)
