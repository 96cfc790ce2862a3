"""Beam search against a plain oracle, against exhaustive search, and against transformers."""
import math
import random

import numpy as np
import pytest

from penstock.compute.decoding.search import TABLE, beam
from penstock.compute.decoding.search.beam import BeamSearch, Fork
from penstock.compute.decoding.state import RowState
from penstock.core.types import SamplingParams, SeqInfo

EOS = 0
PAD = 39  # of the tiny Llama


def toy_model(seed, vocab):
    """output tokens -> log-probabilities of the next token; a sharp distribution that depends on all of them."""
    def logprobs(tokens):
        rng = random.Random(f"{seed} {tokens}")
        logits = [rng.gauss(0, 1.5) for _ in range(vocab)]
        total = math.log(sum(map(math.exp, logits)))
        return [x - total for x in logits]

    return logprobs


def search_with(model, search, num_candidates, keep=None):
    """Runs a search to its end as the engine does; returns it with every hypothesis that ended on the way."""
    live, finished = [()], []
    while True:
        rows = []
        for tokens in live:
            ranked = sorted(enumerate(model(tokens)), key=lambda pair: (-pair[1], pair[0]))
            rows.append([pair for pair in ranked if keep is None or pair[0] in keep][:num_candidates])
        step = search.advance(rows)
        finished += step.finished
        live = [(*live[fork.parent], fork.token) for fork in step.forks]
        if step.done:
            return search, finished


def oracle(model, width, max_tokens, length_penalty=1.0, early_stopping=False, stop_ids=(EOS,)):
    """The rules of transformers' beam search, over every continuation of every beam."""
    live, ended = [((), 0.0)], []
    while live:
        every = [((*tokens, token), total + p) for tokens, total in live for token, p in enumerate(model(tokens))]
        every.sort(key=lambda pair: -pair[1])
        ends = [tokens[-1] in stop_ids or len(tokens) == max_tokens for tokens, _ in every]
        among_best = [pair for pair, end in zip(every[:width], ends[:width], strict=True) if end]
        ended += [(total / len(tokens) ** length_penalty, tokens) for tokens, total in among_best]
        ended = sorted(ended, key=lambda pair: -pair[0])[:width]
        live = [pair for pair, end in zip(every, ends, strict=True) if not end][:width]
        if len(ended) == width and live:
            tokens, total = live[0]
            if early_stopping or total / len(tokens) ** length_penalty <= ended[-1][0]:
                break
    return ended


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("length_penalty", [-1.0, 0.0, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_agrees_with_the_oracle(width, length_penalty, early_stopping):
    for seed in range(12):
        model = toy_model(seed, 8)
        search, _ = search_with(model, BeamSearch(width, 7, {EOS}, length_penalty, early_stopping), 2 * width)
        wanted = oracle(model, width, 7, length_penalty, early_stopping)
        assert [each.tokens for each in search.best(width)] == [tokens for _, tokens in wanted]
        assert [each.score for each in search.best(width)] == pytest.approx([score for score, _ in wanted])


def test_agrees_with_the_oracle_when_several_tokens_end():
    stops = {0, 3, 5}
    for seed in range(20):
        model = toy_model(seed, 9)
        search, _ = search_with(model, BeamSearch(3, 6, stops), 3 + 3)
        assert [each.tokens for each in search.best(3)] == [tokens for _, tokens in oracle(model, 3, 6, stop_ids=stops)]


def test_a_beam_as_wide_as_the_tree_finds_the_best_sequence_there_is():
    vocab, max_tokens = 3, 4
    model = toy_model(5, vocab)

    def endings(tokens, total):
        for token, p in enumerate(model(tokens)):
            whole = (*tokens, token)
            if token == EOS or len(whole) == max_tokens:
                yield total + p, whole
            else:
                yield from endings(whole, total + p)

    search, _ = search_with(model, BeamSearch(81, max_tokens, {EOS}, length_penalty=0.0), vocab)
    best = sorted(endings((), 0.0), reverse=True)[:5]
    assert [each.tokens for each in search.best(5)] == [tokens for _, tokens in best]
    assert [each.path.cumulative_logprob for each in search.best(5)] == pytest.approx([total for total, _ in best])


def test_a_width_of_1_is_greedy():
    model = toy_model(3, 6)
    search, _ = search_with(model, BeamSearch(1, 10), 2)
    tokens = ()
    while len(tokens) < 10:
        line = model(tokens)
        tokens += (line.index(max(line)),)
    assert [each.tokens for each in search.best(1)] == [tokens]


def test_a_step_in_detail():
    search = BeamSearch(2, 5, {EOS})
    step = search.advance([[(3, -0.5), (0, -1.0), (4, -2.0), (5, -3.0)]])
    assert step.forks == (Fork(0, 3, -0.5, -0.5), Fork(0, 4, -2.0, -2.0))
    assert [(each.tokens, each.logprobs, each.score, each.finish_reason) for each in step.finished] == [((0,), (-1.0,), -1.0, "stop")]
    assert not step.done
    # parent 1 overtakes parent 0; token 0 of parent 1 would end, but is not among the two likeliest
    step = search.advance([[(6, -4.0), (7, -5.0)], [(8, -0.1), (6, -0.2), (0, -0.3)]])
    assert [(fork.parent, fork.token, fork.cumulative_logprob) for fork in step.forks] == [(1, 8, -2.1), (1, 6, -2.2)]
    assert step.finished == ()
    assert [each.tokens for each in search.best(2)] == [(0,)]


def test_equal_candidates_go_by_parent_and_place():
    search = BeamSearch(2, 9)
    search.advance([[(5, -1.0), (7, -1.0)]])
    step = search.advance([[(4, -1.0), (9, -1.0)], [(2, -1.0)]])
    assert [(fork.parent, fork.token) for fork in step.forks] == [(0, 4), (0, 9)]


def test_outputs_share_what_they_begin_with():
    search = BeamSearch(2, 9)
    search.advance([[(1, -0.1), (2, -5.0)]])
    (start, _) = search.live
    search.advance([[(3, -0.1), (4, -0.2)], []])
    one, other = search.live
    assert one.before is other.before is start and one.num_apart(other) == 1 and one.num_apart(one) == 0
    search.advance([[(5, -0.1)], [(6, -0.1)]])
    assert search.live[0].num_apart(search.live[1]) == 2
    assert [[at.token for at in path.in_order()] for path in search.live] == [[1, 3, 5], [1, 4, 6]]
    apart = BeamSearch(2, 9)
    apart.advance([[(1, -0.1), (2, -0.1)]])
    assert apart.live[0].num_apart(apart.live[1]) == 1


def test_the_last_token_ends_every_hypothesis_for_length():
    search, finished = search_with(toy_model(1, 6), BeamSearch(3, 2), 6)
    assert [(len(each.tokens), each.finish_reason) for each in finished] == [(2, "length")] * 3
    assert search.best(9) == sorted(finished, key=lambda each: -each.score)


def test_early_stopping_ends_as_soon_as_enough_have_ended():
    rows = [[(EOS, -0.1), (1, -0.5), (2, -0.6), (3, -0.7)]]
    assert BeamSearch(1, 50, {EOS}, early_stopping=True).advance(rows).done
    patient = BeamSearch(1, 50, {EOS}, length_penalty=0.0).advance([[(1, -0.1), (EOS, -2.0)]])
    assert not patient.done
    assert patient.finished == ()
    # no longer sequence can beat -0.1 when length is not rewarded
    step = BeamSearch(1, 50, {EOS}, length_penalty=0.0).advance(rows)
    assert step.done
    assert step.forks == ()


def test_impossible_candidates_are_ignored_and_no_candidate_ends_the_search():
    search = BeamSearch(3, 5, {EOS})
    step = search.advance([[(4, -0.5), (5, -math.inf)]])
    assert [fork.token for fork in step.forks] == [4]
    step = search.advance([[(EOS, -math.inf)]])
    assert (step.done, step.forks, search.best(3)) == (True, (), [])


def test_misuse_is_refused():
    search = BeamSearch(2, 1)
    with pytest.raises(ValueError, match="1 live hypotheses need as many lists of candidates, not 2"):
        search.advance([[], []])
    assert search.advance([[(1, -1.0)]]).done
    with pytest.raises(ValueError, match="over"):
        search.advance([])
    with pytest.raises(ValueError, match="at least 1, not 0 and 5"):
        BeamSearch(0, 5)


def test_the_table_leads_to_it():
    assert TABLE.load("beam") is BeamSearch


@pytest.fixture(scope="module")
def llama():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
                                      num_key_value_heads=1, max_position_embeddings=64, initializer_range=1.0)
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture
def our_beam_search(llama, torch, sampler, row):
    """prompt, stop ids, BeamSearch and its width -> the best hypotheses that the tiny Llama comes to."""
    def run(prompt, eos, search, width):
        state, live, done = row(prompt, eos=eos, beam_width=width), [()], False
        while not done:
            logits = llama(torch.tensor([[*prompt, *tokens] for tokens in live])).logits[:, -1].detach()
            choices = sampler.sample(logits.numpy(), [state] * len(live), [len(live[0])] * len(live))
            step = search.advance([choice.candidates for choice in choices])
            live, done = [(*live[fork.parent], fork.token) for fork in step.forks], step.done
        return search.best(width)

    return run


@pytest.mark.parametrize(("width", "length_penalty", "early_stopping", "eos"), [
    (2, 1.0, False, [2]), (4, 1.0, True, [2]), (3, 0.3, False, [2, 7, 9]), (4, 2.0, False, [2, 7, 9, 11, 13]), (3, -0.5, True, [2, 7, 9]),
])
def test_agrees_with_transformers(llama, our_beam_search, width, length_penalty, early_stopping, eos):
    for prompt in ([1, 5, 6], [1, 30, 17, 4, 4]):
        ours = our_beam_search(prompt, eos, BeamSearch(width, 8, set(eos), length_penalty, early_stopping), width)
        theirs = llama.generate(
            llama.dummy_inputs["input_ids"].new_tensor([prompt]), num_beams=width, num_return_sequences=width, max_new_tokens=8,
            do_sample=False, length_penalty=length_penalty, early_stopping=early_stopping, eos_token_id=eos, pad_token_id=PAD,
            return_dict_in_generate=True, output_scores=True)
        longest = max(len(each.tokens) for each in ours)
        assert theirs.sequences[:, len(prompt):].tolist() == [[*each.tokens, *[PAD] * (longest - len(each.tokens))] for each in ours]
        np.testing.assert_allclose([each.score for each in ours], theirs.sequences_scores.numpy(), rtol=1e-4)


def test_candidates_that_can_neither_end_nor_live_on_cost_nothing(monkeypatch):
    width, stops = 4, set(range(1000))
    search, made = BeamSearch(width, 9, stops), []
    monkeypatch.setattr(beam, "Fork", lambda *fields: made.append(Fork(*fields)) or made[-1])
    row = [(token, -1.0 - token / 1000) for token in range(1000 + width)]  # those that end it are the likeliest
    assert len(search.advance([row[-width:]]).forks) == width
    assert len(search.advance([row] * width).finished) == width
    assert len(made) == width + width * (width + 2)


def test_a_step_makes_about_as_many_continuations_as_it_takes(monkeypatch):
    """And not `beam_width` of each hypothesis, while all others wait."""
    width, made = 32, []
    monkeypatch.setattr(beam, "Fork", lambda *fields: made.append(Fork(*fields)) or made[-1])
    search, row = BeamSearch(width, 9), [(token, -1.0 - token / 1000) for token in range(width + 1)]
    assert len(search.advance([row]).forks) == width
    made.clear()
    assert len(search.advance([row] * width).forks) == width
    assert len(made) == 2 * width  # the likeliest of each, and one more for each that was taken


def test_as_many_candidates_are_reported_as_a_search_needs():
    info = SeqInfo(SamplingParams(beam_width=128, stop_token_ids=tuple(range(1024))), (1,), 0, (0,), held=True)
    assert RowState(info).num_candidates == 128 + 1024
