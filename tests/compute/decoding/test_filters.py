"""Each filter and the whole chain against a plain computation of one row in float64, by the sets that survive and by what is drawn."""
import numpy as np
import pytest
from scipy import stats

from penstock.compute.decoding.filters import TABLE
from penstock.core.types import SamplingParams

VOCAB = 48
NUM_DRAWS = 20_000


def softmax(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def keep_while_short(probs, order, share):
    """The entries of `order` up to the one at which their probabilities reach `share`."""
    kept, mass = [], 0.0
    for token in order:
        kept.append(token)
        mass += probs[token]
        if mass >= share:
            break
    return kept


def restrict(probs, kept):
    left = np.zeros_like(probs)
    left[kept] = probs[kept]
    return left / left.sum()


def plain_top_k(probs, k):
    return restrict(probs, np.argsort(-probs, kind="stable")[:k])


def plain_top_p(probs, p):
    return restrict(probs, keep_while_short(probs, np.argsort(-probs, kind="stable"), p))


def plain_min_p(probs, p):
    return restrict(probs, np.flatnonzero(probs >= p * probs.max()))


def plain_typical_p(probs, p):
    surprise = np.full_like(probs, np.inf)
    surprise[probs > 0] = -np.log(probs[probs > 0])
    entropy = (probs[probs > 0] * surprise[probs > 0]).sum()
    return restrict(probs, keep_while_short(probs, np.argsort(np.abs(surprise - entropy), kind="stable"), p))


PLAIN = {"top_k": plain_top_k, "top_p": plain_top_p, "min_p": plain_min_p, "typical_p": plain_typical_p}


def expected(logits, temperature=1.0, **settings):
    probs = softmax(logits.astype(np.float64) / temperature)
    for name in TABLE:
        if name in settings:
            probs = PLAIN[name](probs, settings[name])
    return probs


def some_logits(seed, vocab=VOCAB, spread=2.0):
    return (np.random.default_rng(seed).standard_normal(vocab) * spread).astype(np.float32)


SETTINGS = [
    {"top_k": 1}, {"top_k": 7}, {"top_k": VOCAB}, {"top_k": 10**9},
    {"top_p": 0.3}, {"top_p": 0.9}, {"top_p": 0.999}, {"top_p": 1e-30},
    {"min_p": 0.02}, {"min_p": 0.3}, {"min_p": 1.0},
    {"typical_p": 0.2}, {"typical_p": 0.95}, {"typical_p": 1e-30},
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_a_filter_keeps_the_tokens_that_the_plain_computation_keeps(to_array, to_numpy, setting):
    [(name, value)] = setting.items()
    each = TABLE.load(name)()
    logits = np.stack([some_logits(seed, spread=spread) for seed in range(20) for spread in (0.1, 2.0, 6.0)])
    given = logits.copy()
    kept = to_numpy(each.apply(to_array(logits), [each.setting(SamplingParams(**setting))] * len(logits)))
    assert np.array_equal(logits, given)
    for row, before in zip(kept, logits, strict=True):
        survivors = np.flatnonzero(PLAIN[name](softmax(before.astype(np.float64)), value)).tolist()
        assert np.flatnonzero(row > -np.inf).tolist() == survivors
        assert row[survivors].tolist() == before[survivors].tolist()


def test_every_row_has_its_own_setting(to_array, to_numpy):
    settings = {"top_k": [1, 3, 40], "top_p": [0.1, 0.5, 0.99], "min_p": [0.9, 0.1, 0.001], "typical_p": [0.1, 0.5, 0.99]}
    logits = np.stack([some_logits(seed) for seed in range(3)])
    for name in TABLE:
        kept = to_numpy(TABLE.load(name)().apply(to_array(logits), settings[name]))
        for row, before, value in zip(kept, logits, settings[name], strict=True):
            assert np.flatnonzero(row > -np.inf).tolist() == np.flatnonzero(PLAIN[name](softmax(before.astype(np.float64)), value)).tolist()


@pytest.mark.parametrize("name", list(TABLE))
def test_a_filter_is_off_where_nobody_asks_for_it(name):
    assert TABLE.load(name)().setting(SamplingParams()) is None


@pytest.mark.parametrize(("name", "value", "kept"), [
    ("top_k", 2, [0, 1]), ("top_p", 0.5, [0, 1]), ("top_p", 0.51, [0, 1, 2]), ("min_p", 1.0, [0, 1, 2, 3]), ("typical_p", 0.5, [0, 1]),
])
def test_among_equals_the_lower_ids_stay(to_array, to_numpy, name, value, kept):
    logits = to_array(np.array([[2, 2, 2, 2]], np.float32))
    assert np.flatnonzero(to_numpy(TABLE.load(name)().apply(logits, [value])) > -np.inf).tolist() == kept


@pytest.mark.parametrize("setting", [{"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.9}, {"typical_p": 0.5}], ids=str)
@pytest.mark.parametrize("value", [0.0, -1e30, 1e30])
def test_one_token_survives_when_all_others_are_gone_already(to_array, to_numpy, setting, value):
    [(name, amount)] = setting.items()
    logits = np.full((1, VOCAB), -np.inf, np.float32)
    logits[0, 17] = value
    kept = to_numpy(TABLE.load(name)().apply(to_array(logits), [amount]))
    assert np.flatnonzero(kept > -np.inf).tolist() == [17]


@pytest.mark.parametrize("setting", [{"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.9}, {"typical_p": 0.5}], ids=str)
def test_a_row_without_any_token_passes_through(to_array, to_numpy, setting):
    [(name, amount)] = setting.items()
    logits = to_array(np.full((1, VOCAB), -np.inf, np.float32))
    assert (to_numpy(TABLE.load(name)().apply(logits, [amount])) == -np.inf).all()


CHAINS = [
    {}, {"temperature": 0.3}, {"temperature": 5.0},
    {"top_k": 9}, {"top_p": 0.8}, {"min_p": 0.1}, {"typical_p": 0.7},
    {"temperature": 1.5, "top_k": 20, "top_p": 0.9},
    {"temperature": 0.7, "top_p": 0.95, "min_p": 0.05},
    {"temperature": 2.0, "top_k": 30, "top_p": 0.9, "min_p": 0.05, "typical_p": 0.8},
]


@pytest.mark.parametrize("params", CHAINS, ids=str)
def test_what_is_drawn_has_the_plain_distribution(sampler, row, params, first_seed):
    logits = some_logits(11, spread=1.5)
    wanted = expected(logits, **params)
    batch = np.broadcast_to(logits, (1000, VOCAB))
    counts = np.zeros(VOCAB)
    states = [row(seed=first_seed + i, **params) for i in range(1000)]
    for index in range(NUM_DRAWS // 1000):
        for choice in sampler.sample(batch, states, [index] * 1000):
            counts[choice.token] += 1
    assert counts[wanted == 0].sum() == 0
    likely = wanted * NUM_DRAWS >= 5  # rarer tokens share a cell
    observed = np.append(counts[likely], counts[~likely].sum())
    hoped = np.append(wanted[likely], wanted[~likely].sum()) * NUM_DRAWS
    cells = hoped > 0
    assert stats.chisquare(observed[cells], hoped[cells]).pvalue > 1e-3


def test_along_one_request_the_draws_have_the_distribution_too(sampler, row, first_seed):
    logits = some_logits(12, vocab=8, spread=1.0)
    state = row(seed=first_seed + 1234)
    tokens = [sampler.sample(logits[None, :], [state], [index])[0].token for index in range(2000)]
    counts = np.bincount(tokens, minlength=8)
    assert stats.chisquare(counts, expected(logits) * 2000).pvalue > 1e-3
    # neighbours in the output are independent
    assert stats.chi2_contingency(np.histogram2d(tokens[:-1], tokens[1:], bins=8)[0] + 1e-9).pvalue > 1e-3
