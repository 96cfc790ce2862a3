"""Promise 1 for the choice of tokens: a row's result has the same bits alone and in any company, and torch chooses what numpy chooses."""
import random

import numpy as np
import pytest

KINDS = [
    {"temperature": 0},
    {"temperature": 0, "logprobs": 3},
    {"temperature": 0.9, "top_p": 0.8, "logprobs": 5},
    {"temperature": 1.0},
    {"temperature": 3.0, "top_p": 0.97},
    {"top_k": 50, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.95},
    {"typical_p": 0.9, "logprobs": 0},
    {"min_p": 0.1, "seed": 3},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": -0.2, "logprobs": 1},
    {"logit_bias": {3: 4.0, 100: -100.0}, "min_tokens": 100, "logprobs": 2},
    {"top_k": 1000, "temperature": 0.3},
    {"beam_width": 4, "repetition_penalty": 1.1},
]


@pytest.fixture
def batch(row):
    """Logits, states and output indices of `num_rows` rows of all kinds, from flat to steep."""
    def make(num_rows, vocab):
        rng = np.random.default_rng(vocab)
        spreads = np.array([0.0, 0.1, 1.0, 3.0, 8.0], np.float32)[np.arange(num_rows) % 5, None]
        logits = rng.standard_normal((num_rows, vocab)).astype(np.float32) * spreads
        states = []
        for i in range(num_rows):
            params = dict(KINDS[i % len(KINDS)])
            states.append(row(rng.integers(0, vocab, 30), rng.integers(0, vocab, 9), seed=params.pop("seed", i), eos=(2,), **params))
        return logits, states, rng.integers(0, 500, num_rows).tolist()

    return make


def choose(sampler, logits, states, indices, rows):
    return dict(zip(rows, sampler.sample(logits[rows], [states[i] for i in rows], [indices[i] for i in rows]), strict=True))


def groups(num_rows, num):
    """`num` of (or all): rows alone, batches of every size, a permutation of the whole, and the rows of each kind together."""
    rng = random.Random(0)
    found = [[i] for i in range(num_rows)]
    found += [rng.sample(range(num_rows), size) for size in range(2, num_rows + 1)]
    found += [list(range(kind, num_rows, len(KINDS))) for kind in range(min(num_rows, len(KINDS)))]
    return found if num is None else rng.sample(found, num)


@pytest.mark.parametrize(("num_rows", "vocab", "num"), [(64, 512, None), (64, 511, 40), (64, 4096, 40), (64, 4099, 10), (13, 151_936, 6)])
def test_a_row_is_the_same_in_any_company(sampler, batch, num_rows, vocab, num):
    logits, states, indices = batch(num_rows, vocab)
    crowded = choose(sampler, logits, states, indices, list(range(num_rows)))
    for rows in groups(num_rows, num):
        assert choose(sampler, logits, states, indices, rows) == {i: crowded[i] for i in rows}


@pytest.mark.parametrize(("num_rows", "vocab", "num"), [(64, 511, 10), (64, 4096, 6), (4, 151_936, 4)])
def test_a_row_is_the_same_in_any_company_and_on_any_number_of_threads(sampler, batch, torch, num_rows, vocab, num):
    logits, states, indices = batch(num_rows, vocab)
    logits = torch.tensor(logits)
    torch.set_num_threads(2)
    crowded = choose(sampler, logits, states, indices, list(range(num_rows)))
    torch.set_num_threads(1)
    for rows in groups(num_rows, num):
        assert choose(sampler, logits, states, indices, rows) == {i: crowded[i] for i in rows}


def test_memory_layout_does_not_matter(sampler, batch):
    logits, states, indices = batch(64, 512)
    for other in (np.asfortranarray(logits), np.repeat(logits, 2, axis=1)[:, ::2], np.repeat(logits, 2, axis=0)[::2]):
        assert sampler.sample(other, states, indices) == sampler.sample(logits, states, indices)


@pytest.mark.parametrize("vocab", [512, 4096])
def test_torch_chooses_what_numpy_chooses(sampler, batch, torch, vocab):
    logits, states, indices = batch(64, vocab)
    for here, there in zip(sampler.sample(logits, states, indices), sampler.sample(torch.tensor(logits), states, indices), strict=True):
        assert here.token == there.token
        assert [token for token, _ in here.candidates] == [token for token, _ in there.candidates]
        assert [p for _, p in here.candidates] == pytest.approx([p for _, p in there.candidates], abs=1e-6)
        if here.logprobs is not None:
            assert here.logprobs.rank == there.logprobs.rank
            assert here.logprobs.logprob == pytest.approx(there.logprobs.logprob, abs=1e-6)
            assert [token for token, _ in here.logprobs.top] == [token for token, _ in there.logprobs.top]
