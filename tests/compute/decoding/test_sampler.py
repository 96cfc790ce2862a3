import numpy as np
import pytest
from scipy.special import log_softmax

from penstock.compute.decoding.draw import uniform
from penstock.compute.decoding.masking import RowMasks

VOCAB = 300


def some_logits(rows, vocab=VOCAB, seed=0, spread=3.0):
    return (np.random.default_rng(seed).standard_normal((rows, vocab)) * spread).astype(np.float32)


def tokens(choices):
    return [choice.token for choice in choices]


def test_temperature_0_takes_the_likeliest_and_the_lowest_id_among_equals(sampler, row, to_array):
    logits = some_logits(3)
    logits[1, [9, 44, 200]] = 50
    plain = sampler.sample(to_array(logits), [row(temperature=0)] * 3, [0] * 3)
    beside_others = sampler.sample(to_array(logits), [row(temperature=0, logprobs=1)] * 3, [0] * 3)
    assert tokens(plain) == tokens(beside_others) == logits.argmax(-1).tolist()
    assert plain[1].token == 9
    assert all(choice.logprobs is None and choice.candidates == () for choice in plain)


def test_filters_and_seeds_do_not_move_a_greedy_row(sampler, row):
    logits = some_logits(8)
    states = [row(seed=i, temperature=0, top_k=3, top_p=0.5, min_p=0.5, typical_p=0.1, logprobs=0) for i in range(8)]
    assert tokens(sampler.sample(logits, states, [0] * 8)) == logits.argmax(-1).tolist()


def test_the_draw_is_the_inverse_of_the_running_sum_at_the_row_s_number(sampler, row, to_array):
    logits = some_logits(50)
    states = [row(seed=i, temperature=0.7) for i in range(50)]
    indices = list(range(100, 150))
    chosen = tokens(sampler.sample(to_array(logits), states, indices))
    probs = np.exp(log_softmax(logits.astype(np.float64) / 0.7, axis=-1))
    assert chosen == [int(np.searchsorted(np.cumsum(p), uniform(i, index), side="right"))
                      for p, i, index in zip(probs, range(50), indices, strict=True)]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_logits_of_any_precision(sampler, row, dtype):
    logits = some_logits(4).astype(dtype)
    states = [row(temperature=0), row(seed=1), row(seed=2, top_p=0.5), row(temperature=0, logprobs=2)]
    chosen = sampler.sample(logits, states, [0] * 4)
    assert chosen == sampler.sample(logits.astype(np.float32), states, [0] * 4)
    assert chosen[0] == sampler.sample(logits[:1], states[:1], [0])[0]


def test_logits_and_states_are_not_changed(sampler, row):
    logits = some_logits(6)
    before = logits.copy()
    params = {"logit_bias": {3: 5.0}, "repetition_penalty": 1.5, "min_tokens": 4, "top_k": 5, "logprobs": 3}
    states = [row(prompt=(1,), output=(2,), seed=i, eos=(0,), **params) for i in range(6)]
    first = sampler.sample(logits, states, [1] * 6)
    assert np.array_equal(logits, before)
    assert sampler.sample(logits, states, [1] * 6) == first


def test_reported_logprobs_are_the_model_s_own(sampler, row):
    logits = some_logits(1)
    best = int(logits.argmax())
    state = row(prompt=(7,), temperature=0.1, logit_bias={9: 100.0}, repetition_penalty=2.0, min_tokens=3, eos=(best,), top_k=1, logprobs=2)
    [choice] = sampler.sample(logits, [state], [0])
    wanted = log_softmax(logits[0].astype(np.float64))
    assert choice.token == choice.logprobs.token_id == 9
    assert choice.logprobs.logprob == pytest.approx(wanted[9], abs=1e-6)
    assert choice.logprobs.top[0] == (best, pytest.approx(wanted[best], abs=1e-6))


def test_logprobs_come_where_asked_for(sampler, row):
    choices = sampler.sample(some_logits(3), [row(), row(logprobs=0), row(logprobs=4)], [0] * 3)
    assert [None if c.logprobs is None else len(c.logprobs.top) for c in choices] == [None, 0, 4]


def test_min_tokens_comes_before_bias_and_penalties_before_temperature(sampler, row):
    logits = np.array([[2.0, 1.0, 0.0]], np.float32)
    held_back = row(temperature=0, min_tokens=1, eos=(0,), logit_bias={0: 100.0})
    assert tokens(sampler.sample(logits, [held_back], [0])) == [1]
    assert tokens(sampler.sample(logits, [held_back], [1])) == [0]
    # a presence penalty of 1.5 leaves token 0 at 0.5; were it taken after a temperature of 0.1, token 0 would still lead
    penalized = [row(output=(0,), presence_penalty=1.5, temperature=0.1, top_k=1)]
    assert tokens(sampler.sample(logits, penalized, [1])) == [1]


def test_filters_work_on_what_those_before_them_left(sampler, row):
    # top-k leaves 0.4 and 0.3, which are 0.571 and 0.429 of their sum: enough for a top-p of 0.55 to be satisfied with the first
    logits = np.log(np.array([[0.4, 0.3, 0.2, 0.1]], np.float32))
    drawn = {sampler.sample(logits, [row(seed=seed, top_k=2, top_p=0.55)], [0])[0].token for seed in range(50)}
    assert drawn == {0}


def test_output_tokens_weigh_on_the_next_choice(sampler, row):
    logits = np.array([[1.0, 0.9, 0.8, 0.0]], np.float32)
    state = row(temperature=0, frequency_penalty=0.25)
    chosen = []
    for index in range(6):
        [choice] = sampler.sample(logits, [state], [index])
        chosen.append(choice.token)
        state.extend([choice.token])
    assert chosen == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("kept", [0, 17, VOCAB - 1])
@pytest.mark.parametrize("value", [-1e30, -5.0, 0.0, 1e30])
def test_the_only_possible_token_is_chosen(sampler, row, to_array, kept, value):
    logits = np.full((6, VOCAB), -np.inf, np.float32)
    logits[:, kept] = value
    states = [row(temperature=0), row(seed=1), row(seed=2, temperature=1e-6), row(seed=3, temperature=1e6),
              row(seed=4, top_k=5, top_p=0.1, min_p=1.0, typical_p=0.1), row(prompt=(kept,), seed=5, repetition_penalty=1.3)]
    assert tokens(sampler.sample(to_array(logits), states, [0] * 6)) == [kept] * 6


def test_a_row_without_possible_tokens_gives_token_0_and_leaves_its_neighbours_alone(sampler, row, to_array):
    logits = some_logits(4)
    logits[1:3] = -np.inf
    states = [row(seed=5, logprobs=1), row(seed=1, top_k=3, top_p=0.5, min_p=0.1, typical_p=0.5), row(temperature=0), row(seed=6)]
    choices = sampler.sample(to_array(logits), states, [0] * 4)
    assert tokens(choices)[1:3] == [0, 0]
    assert choices[0] == sampler.sample(to_array(logits[:1]), states[:1], [0])[0]


@pytest.mark.parametrize("params", [{"temperature": 0}, {}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.1}, {"typical_p": 0.5},
                                    {"temperature": 1e9, "logprobs": 0}], ids=str)
def test_a_largest_logit_that_is_not_finite_is_chosen_at_any_temperature(sampler, row, to_array, params):
    inf, nan = np.inf, np.nan
    logits = np.array([[0, 1, inf, 2], [0, inf, 1, inf], [inf, 0, nan, nan], [0, -nan, 1, 2], [-inf, -inf, nan, -inf],
                       [-inf, inf, -inf, -inf], [-inf, -inf, -inf, -inf], [-inf, -inf, -inf, 5]], np.float32)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        chosen = sampler.sample(to_array(logits), [row(seed=seed, **params) for seed in range(8)], [0] * 8)
    assert tokens(chosen) == [2, 1, 2, 1, 2, 1, 0, 3]


@pytest.mark.parametrize("temperature", [1e-6, 1e-30, 1e-300])
def test_a_tiny_temperature_is_greedy(sampler, row, temperature):
    logits = some_logits(20)
    states = [row(seed=i, temperature=temperature) for i in range(20)]
    assert tokens(sampler.sample(logits, states, [0] * 20)) == logits.argmax(-1).tolist()


@pytest.mark.parametrize("temperature", [1e30, 1e308])
def test_an_endless_temperature_is_uniform_over_what_is_possible(sampler, row, temperature):
    logits = some_logits(1)
    logits[0, ::2] = -np.inf
    chosen = tokens(sampler.sample(np.repeat(logits, 2000, 0), [row(seed=i, temperature=temperature) for i in range(2000)], [0] * 2000))
    assert set(chosen) == set(range(1, VOCAB, 2))


def test_huge_logits(sampler, row, to_array):
    logits = np.zeros((3, VOCAB), np.float32)
    logits[:, 5] = 1e30
    logits[:, 6] = -1e30
    states = [row(seed=1), row(seed=2, top_p=0.9, typical_p=0.9, min_p=0.1), row(temperature=0, logprobs=3)]
    choices = sampler.sample(to_array(logits), states, [0] * 3)
    assert tokens(choices) == [5, 5, 5]
    assert choices[2].logprobs.logprob == 0.0


@pytest.mark.parametrize("temperature", [0, 0.5, 1.0])
def test_a_bias_of_100_forces_and_of_minus_100_forbids(sampler, row, temperature):
    logits = some_logits(30)
    best = int(logits[0].argmax())
    forced = [row(seed=i, temperature=temperature, logit_bias={11: 100.0}) for i in range(30)]
    assert tokens(sampler.sample(logits, forced, [0] * 30)) == [11] * 30
    forbidden = [row(seed=i, temperature=temperature, logit_bias={best: -100.0}) for i in range(200)]
    assert best not in tokens(sampler.sample(np.repeat(logits[:1], 200, 0), forbidden, [0] * 200))


@pytest.mark.parametrize("params", [{"top_k": 1}, {"top_p": 1e-9}, {"top_p": 5e-324}, {"min_p": 1.0}], ids=str)
def test_the_narrowest_filters_leave_the_likeliest_token(sampler, row, params):
    logits = some_logits(20)
    assert tokens(sampler.sample(logits, [row(seed=i, **params) for i in range(20)], [0] * 20)) == logits.argmax(-1).tolist()


def test_a_held_row_chooses_nothing_and_reports_candidates_after_bias_and_penalties(sampler, row, to_array):
    logits = some_logits(3)
    states = [row(beam_width=3, eos=(1,), logit_bias={8: 30.0}), row(temperature=0), row(beam_width=2, eos=(1, 2), logprobs=9)]
    choices = sampler.sample(to_array(logits), states, [0] * 3)
    biased = logits[0].astype(np.float64)
    biased[8] += 30
    wanted = log_softmax(biased)
    best = np.argsort(-wanted, kind="stable")[:4].tolist()
    assert tokens(choices) == [None, int(logits[1].argmax()), None]
    assert [token for token, _ in choices[0].candidates] == best
    assert [p for _, p in choices[0].candidates] == pytest.approx(wanted[best].tolist(), abs=2e-6)  # the bias is added in float32
    assert [len(choice.candidates) for choice in choices] == [4, 0, 9]
    assert [choice.logprobs for choice in choices] == [None] * 3


def test_rows_states_and_indices_must_match(sampler, row):
    with pytest.raises(ValueError, match="2 rows of logits need as many states and indices, not 1 and 2"):
        sampler.sample(some_logits(2), [row()], [0, 0])


def test_no_rows(sampler):
    assert sampler.sample(np.zeros((0, VOCAB), np.float32), [], []) == []


def test_a_row_with_a_mask_chooses_of_what_it_may_and_no_other_row_is_touched(sampler, row, to_array):
    logits = some_logits(8)
    kinds = [{}, {"temperature": 0}, {"logprobs": 2}, {"repetition_penalty": 1.7}, {"logit_bias": {5: 90.0}},
             {"temperature": 0, "logprobs": 0}]
    states = [row(prompt=(3, 4), seed=i, **kinds[i % 6]) for i in range(8)]
    plain = sampler.sample(to_array(logits), states, [4] * 8)
    for rows in ([0, 1, 2, 3, 4, 5, 6, 7], [2, 4, 6], [7], [0, 3]):
        may = np.random.default_rng(len(rows)).random((len(rows), 320)) < 0.1
        masks = RowMasks(rows, np.packbits(may, axis=1, bitorder="little").view(np.uint32))
        found = sampler.sample(to_array(logits.copy()), states, [4] * 8, masks)
        struck = logits.copy()
        struck[rows] = np.where(may[:, :VOCAB], logits[rows], -np.inf)
        alone = [sampler.sample(to_array(struck[i : i + 1].copy()), states[i : i + 1], [4])[0] for i in range(8)]
        for i in range(8):
            assert found[i].token == (alone[i].token if i in rows else plain[i].token)
            assert i not in rows or may[rows.index(i), found[i].token]
            if found[i].logprobs is not None:  # of the logits as the model gave them
                scored = sampler.score(to_array(logits[i : i + 1]), [found[i].token], [states[i].num_logprobs])
                assert found[i].logprobs == scored[0]


@pytest.mark.parametrize("vocab", [1, 31, 32, 33, 1000])
def test_what_is_struck_out_in_place(sampler, vocab, to_array):
    logits, may = some_logits(5, vocab), np.random.default_rng(vocab).random((3, -(-vocab // 32) * 32)) < 0.5
    for share, bits in (("some", may), ("none", may | True), ("all", may & False)):
        struck = to_array(logits.copy())
        sampler._sampling.forbid(struck, [4, 0, 1], np.packbits(bits, axis=1, bitorder="little").view(np.uint32))
        wanted = logits.copy()
        wanted[[4, 0, 1]] = np.where(bits[:, :vocab], logits[[4, 0, 1]], -np.inf)
        assert np.array_equal(np.asarray(struck), wanted), share
