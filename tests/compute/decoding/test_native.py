"""The native form of the sampler against the portable one: the same tokens, log-probabilities within 1e-6, and a row alone is that row."""
import random

import numpy as np
import pytest
from scipy.stats import chisquare

from penstock.compute.backends.cpu.sampling import NativeSampling
from penstock.compute.decoding.filters import TABLE
from penstock.core.types import SamplingParams

native_module = pytest.importorskip("penstock._native")
KERNELS = native_module.kernel_names()
VOCABS = (1, 2, 15, 16, 17, 300, 1000, 1023, 1024, 1025, 5000, 20_000)


def some_params(rng):
    return {
        "temperature": rng.choice((0, 0.2, 0.7, 1.0, 1.0, 1.5, 5.0, 1e-9, 1e9)),
        "top_k": rng.choice((0, 0, 0, 1, 2, 5, 40, 300, 5000, 10**20)),
        "top_p": rng.choice((1, 1, 0.1, 0.5, 0.9, 0.95, 0.999, 1e-9)), "min_p": rng.choice((0, 0, 0.001, 0.1, 0.5, 1.0)),
        "typical_p": rng.choice((1, 1, 0.2, 0.9, 0.999)), "seed": rng.getrandbits(64) - 2**63}


def some_logits(rng, kind, rows, vocab):
    """Steep, flat, tied, equal, and with impossible tokens."""
    noise = np.random.default_rng(rng.getrandbits(32)).standard_normal((rows, vocab))
    logits = (noise * 3, noise * 0.1, (noise * 2).round(), noise * 0, np.where(noise < -0.5, -np.inf, noise * 4))[kind]
    return logits.astype(np.float32)


def tokens(sampler, logits, states, indices):
    return [choice.token for choice in sampler.sample(logits, states, indices)]


@pytest.mark.parametrize("kernels", KERNELS)
def test_the_same_tokens_over_thousands_of_rows(portable, native, row, kernels):
    rng, sampler = random.Random(kernels), native(kernels=kernels)
    num_rows = 0
    for case in range(120):
        vocab = VOCABS[case % len(VOCABS)]
        logits = some_logits(rng, case % 5, rows := 4 if vocab > 4000 else 24, vocab)
        params, indices = [some_params(rng) for _ in range(rows)], [rng.randrange(9999) for _ in range(rows)]
        found, wanted = (tokens(each, logits, [row(**one) for one in params], indices) for each in (sampler, portable))
        assert found == wanted, (vocab, case, [one for one, a, b in zip(params, found, wanted, strict=True) if a != b])
        num_rows += rows
    assert num_rows > 1900


def test_flat_rows_of_a_large_vocabulary(portable, native, row):
    """Thousands of boundaries between tokens, none of them as far from the portable form's as a draw would notice."""
    logits = some_logits(random.Random(1), 1, 1, 150_000).repeat(40, 0)
    params = [{"seed": i, "temperature": 1 + i / 10, "top_p": 1 - i % 3 / 100} for i in range(40)]
    found, wanted = (tokens(each, logits, [row(**one) for one in params], [0] * 40) for each in (native(), portable))
    assert found == wanted


@pytest.mark.parametrize("params", [{}, {"temperature": 0.6}, {"top_k": 7}, {"top_p": 0.8}, {"min_p": 0.05}, {"typical_p": 0.7},
                                    {"top_k": 12, "top_p": 0.9, "temperature": 1.3}], ids=str)
def test_tokens_come_as_often_as_their_probabilities_say(native, row, params, first_seed):
    logits = (np.random.default_rng(4).standard_normal((1, 40)) * 1.5).astype(np.float32)
    num = 20_000
    states = [row(seed=first_seed + i, **params) for i in range(num)]
    counts = np.bincount(tokens(native(), logits.repeat(num, 0), states, [3] * num), minlength=40)
    expected = probabilities(logits, params)
    assert not counts[expected == 0].any()
    likely = expected * num >= 5
    rest = expected[~likely].sum() * num
    seen, wanted = [*counts[likely], counts[~likely].sum()], [*expected[likely] * num, rest]
    assert chisquare(*((seen, wanted) if rest else (seen[:-1], wanted[:-1]))).pvalue > 1e-3


def probabilities(logits, params):
    """What is left by the filters' own code, [vocab]."""
    settings = SamplingParams(**params)
    left = (logits - logits.max()) / np.float32(settings.temperature)
    for name in TABLE:
        each = TABLE.load(name)()
        if each.setting(settings) is not None:
            left = each.apply(left, [each.setting(settings)])
    weights = np.exp(left[0].astype(np.float64))
    return weights / weights.sum()


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("vocab", [1, 17, 1024, 3001, 151_936])
def test_log_probabilities_agree(portable, native, kernels, vocab):
    logits = some_logits(random.Random(vocab), 4, 3, vocab)
    logits[1] = logits[1].round()
    logits[:, 0] = 1
    asked = [0, vocab // 2, vocab - 1], [0, 5, 20]
    for here, there in zip(native(kernels=kernels).score(logits, *asked), portable.score(logits, *asked), strict=True):
        assert (here.token_id, here.rank, [i for i, _ in here.top]) == (there.token_id, there.rank, [i for i, _ in there.top])
        for a, b in zip((here.logprob, *(p for _, p in here.top)), (there.logprob, *(p for _, p in there.top)), strict=True):
            assert a == b or abs(a - b) < 1e-6


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_row_is_the_same_in_any_company_and_on_any_number_of_threads(native, row, kernels):
    rng, vocab, num = random.Random(5), 9001, 40
    logits = np.concatenate([some_logits(rng, kind, num // 5, vocab) for kind in range(5)])
    states = [row(**some_params(rng), logprobs=3) for _ in range(num)]
    one = native(threads=1, kernels=kernels).sample(logits, states, [7] * num)
    for state in states:
        state.drawing = None
    sampler = native(threads=3, kernels=kernels)
    assert sampler.sample(logits, states, [7] * num) == one
    assert [sampler.sample(logits[i : i + 1], states[i : i + 1], [7])[0] for i in range(num)] == one
    rows = rng.sample(range(num), 25)
    assert sampler.sample(logits[rows], [states[i] for i in rows], [7] * 25) == [one[i] for i in rows]


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("vocab", [5, 64, 1000, 3001])
def test_numbers_that_are_none(native, row, kernels, vocab):
    """The greedy rule is numpy's argmax: a NaN is larger than everything, and 0 and -0 are equals."""
    rng = np.random.default_rng(vocab)
    logits = rng.standard_normal((60, vocab)).astype(np.float32)
    logits[:20, rng.integers(0, vocab, 3)] = np.nan
    logits[20:40, rng.integers(0, vocab, 3)] = np.inf
    logits[40:50] = rng.choice(np.array([0.0, -0.0], np.float32), (10, vocab))
    sampler = native(kernels=kernels)
    assert tokens(sampler, logits, [row(temperature=0)] * 60, [0] * 60) == logits.argmax(-1).tolist()
    assert tokens(sampler, logits[:40], [row(seed=i, top_p=0.9) for i in range(40)], [0] * 40) == logits[:40].argmax(-1).tolist()


@pytest.fixture
def sampling():
    return NativeSampling(native_module, native_module.Model(native_module.Pool(1, []), "", False, False))


def test_rows_are_picked_out_of_a_matrix(sampling):
    logits = some_logits(random.Random(2), 0, 6, 50)
    drawings = [sampling.drawing(SamplingParams(temperature=t), 3) for t in (0, 1, 0)]
    assert sampling.choose(logits, [4, 0, 4], drawings, [0, 1, 2]) == sampling.choose(logits[[4, 0, 4]], None, drawings, [0, 1, 2])
    assert sampling.score(logits, [5, 1], [3, 4], 2) == sampling.score(logits[[5, 1]], None, [3, 4], 2)


def test_what_does_not_fit_is_refused(sampling):
    logits, greedy = np.zeros((2, 4), np.float32), sampling.drawing(SamplingParams(temperature=0), 0)
    for rows in ([2], [-1]):
        with pytest.raises(ValueError, match="no such row"):
            sampling.choose(logits, rows, [greedy], [0])
    with pytest.raises(ValueError, match="a drawing and an index"):
        sampling.choose(logits, None, [greedy], [0, 0])
    with pytest.raises(ValueError, match="outside the vocabulary"):
        sampling.score(logits, None, [0, 4], 1)
    with pytest.raises(ValueError, match="at least 1 token"):
        sampling.choose(logits[:, :0], None, [greedy] * 2, [0, 0])
