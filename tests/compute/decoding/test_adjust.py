"""min_tokens, logit_bias and penalties against naive loops."""
import random

import numpy as np
import pytest

from penstock.compute.decoding.adjust import change, changes
from penstock.compute.decoding.state import RowState
from penstock.core.types import SamplingParams, SeqInfo

VOCAB = 40


def naive(logits, params, prompt, output, stops, index):
    new = [float(x) for x in logits]
    if index < params.get("min_tokens", 0):
        for token in stops:
            new[token] = float("-inf")
    for token, bias in params.get("logit_bias", {}).items():
        new[token] = float(np.float32(new[token]) + np.float32(bias))
    for token in range(len(new)):
        count = output.count(token)
        if token in prompt or count:
            rep = params.get("repetition_penalty", 1.0)
            new[token] = new[token] / rep if new[token] > 0 else new[token] * rep
        new[token] -= params.get("frequency_penalty", 0.0) * count
        new[token] -= params.get("presence_penalty", 0.0) * (count > 0)
    return np.array(new, np.float32)


def some_params(rng):
    params = {}
    if rng.random() < 0.5:
        params["repetition_penalty"] = rng.choice([0.5, 1.2, 3.0])
    if rng.random() < 0.5:
        params["frequency_penalty"] = rng.uniform(-2, 2)
    if rng.random() < 0.5:
        params["presence_penalty"] = rng.uniform(-2, 2)
    if rng.random() < 0.5:
        params["logit_bias"] = {rng.randrange(VOCAB): rng.uniform(-100, 100) for _ in range(5)}
    if rng.random() < 0.5:
        params |= {"min_tokens": rng.randrange(8), "stop_token_ids": (3, 9)}
    return params


@pytest.mark.parametrize("seed", range(5))
def test_adjusted_logits_are_those_of_naive_loops(to_array, to_numpy, row, seed):
    rng = random.Random(seed)
    logits = np.random.default_rng(seed).standard_normal((30, VOCAB)).astype(np.float32) * 4
    states, wanted, indices = [], [], []
    for each in logits:
        params = some_params(rng)
        prompt = [rng.randrange(VOCAB) for _ in range(rng.randrange(10))]
        output = [rng.randrange(VOCAB) for _ in range(rng.randrange(10))]
        state = row(prompt, output[:2], eos=(5,), **params)
        state.extend(output[2:])
        states.append(state)
        indices.append(len(output))
        wanted.append(naive(each, params, prompt, output, {3, 5, 9} if "stop_token_ids" in params else {5}, len(output)))
    given = logits.copy()
    adjusted = to_numpy(change(to_array(logits), range(30), states, indices))
    np.testing.assert_allclose(adjusted, np.stack(wanted), rtol=1e-6, atol=1e-6)
    assert np.array_equal(logits, given)


def test_which_rows_ask_for_a_change(row):
    assert not changes(row(prompt=(1, 2), output=(3,), eos=(4,)), 1)
    early = row(min_tokens=3, eos=(4,))
    assert [changes(early, index) for index in (0, 2, 3)] == [True, True, False]
    assert not changes(row(min_tokens=3), 0)  # nothing could end it
    assert changes(row(logit_bias={1: 2.0}), 0) and changes(row(prompt=(1,), repetition_penalty=1.5), 0)
    assert [changes(row(output=output, presence_penalty=1.0), len(output)) for output in ((), (3,))] == [False, True]


def test_some_rows_are_changed(row):
    logits = np.arange(4 * VOCAB, dtype=np.float32).reshape(4, VOCAB)
    changed = change(logits, [2, 0], [row(logit_bias={1: 2.0}), row(logit_bias={0: 1.0})], [0, 0])
    assert changed.shape == (2, VOCAB)
    assert (changed - logits[[2, 0]]).nonzero()[1].tolist() == [1, 0] and logits[2, 1] == 2 * VOCAB + 1


def test_min_tokens_forbids_what_would_end_the_sequence_until_there_are_enough(row):
    logits = np.zeros((1, VOCAB), np.float32)
    state = row(min_tokens=2, stop_token_ids=(7,), eos=(4, 6, 10**6))  # an id that the model does not have

    def forbidden(state, index):
        return np.flatnonzero(change(logits, [0], [state], [index]) == -np.inf).tolist()

    assert forbidden(state, 0) == forbidden(state, 1) == [4, 6, 7]
    assert forbidden(state, 2) == []
    assert forbidden(row(min_tokens=2, stop_token_ids=(7,), eos=(4,), ignore_eos=True), 0) == [7]


def test_a_forbidden_token_stays_forbidden(row):
    logits = np.zeros((1, VOCAB), np.float32)
    state = row(prompt=(4,), output=(4,), eos=(4,), min_tokens=9, logit_bias={4: 100.0}, repetition_penalty=0.5, frequency_penalty=-2)
    assert change(logits, [0], [state], [1])[0, 4] == -np.inf


@pytest.mark.parametrize("penalty", [1e-320, 1e-30, 1e30, 1e300])
def test_absurd_penalties_leave_numbers(row, penalty):
    logits = np.array([[3, -3, 0, 1e30, -1e30]], np.float32)
    adjusted = change(logits, [0], [row(prompt=range(5), repetition_penalty=penalty)], [0])
    assert np.isfinite(adjusted).all()


def test_state_counts_only_the_output(row):
    state = row(prompt=(1, 2, 2, 1), output=(2, 5), repetition_penalty=1.5)
    state.extend([5, 5])
    assert dict(zip(state.seen_ids, state.seen_counts, strict=True)) == {1: 0, 2: 1, 5: 3}


@pytest.mark.parametrize(("params", "plain"), [
    ({"temperature": 0}, True), ({"temperature": 0, "top_k": 3, "top_p": 0.5}, True),
    ({}, True), ({"temperature": 0, "logprobs": 0}, False), ({"temperature": 0, "logit_bias": {1: 2.0}}, False),
    ({"temperature": 0, "presence_penalty": 0.1}, False), ({"temperature": 0, "min_tokens": 1}, False),
    ({"temperature": 0, "beam_width": 2}, False),
])
def test_plain_rows_are_those_that_only_take_a_token_of_the_model_s_logits(row, params, plain):
    assert row(**params).plain is plain


def test_each_fork_of_a_long_prompt_is_counted_at_once(monkeypatch):
    """A request has as many as 128, each with a prompt of its own for the repetition penalty."""
    monkeypatch.setattr(RowState, "_seen_index", None)
    state = RowState(SeqInfo(SamplingParams(repetition_penalty=2.0), (5, 3, 5, 9, 3), 0))
    assert ([*state.seen_ids], [*state.seen_counts]) == ([5, 3, 9], [0, 0, 0])
    monkeypatch.undo()
    state.extend([9, 7, 9])
    assert ([*state.seen_ids], [*state.seen_counts]) == ([5, 3, 9, 7], [0, 0, 2, 1])


@pytest.mark.parametrize("params", [{"repetition_penalty": 2.0}, {"frequency_penalty": 1.0}, {}])
@pytest.mark.parametrize("tokens", [[5], [7], [8, 7], [9, 7, 8], [7, 9, 9, 7, 8]])
def test_what_is_taken_back_was_never_there(row, params, tokens):
    state = row(prompt=(5, 3, 9), output=(7, 9, 9, 7, 8, 5), **params)
    state.retract(tokens)
    left = [7, 9, 9, 7, 8, 5]
    for token in tokens:
        left.remove(token)
    wanted = row(prompt=(5, 3, 9), output=left, **params)
    for each in (state, wanted):
        each.extend([6, 7])
    counts, expected = (dict(zip(each.seen_ids, each.seen_counts, strict=True)) for each in (state, wanted))
    assert counts == expected and len(state.seen_ids) == len(wanted.seen_ids)


def test_the_prompt_is_looked_at_once_for_all_answers():
    params = SamplingParams(repetition_penalty=2.0)
    first = RowState(SeqInfo(params, (5, 3, 5, 9, 3), 0), (9, 7, 6))
    other = RowState(SeqInfo(params, (), 0), (4, 7), kin=first)
    assert dict(zip(other.seen_ids, other.seen_counts, strict=True)) == {5: 0, 3: 0, 9: 0, 4: 1, 7: 1}
    assert dict(zip(first.seen_ids, first.seen_counts, strict=True)) == {5: 0, 3: 0, 9: 1, 7: 1, 6: 1}
