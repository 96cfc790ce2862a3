"""The drafts of another model are what it would say itself, whatever became of its earlier ones."""
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock import LLM, SamplingParams
from penstock.compute.backends.contract import KVLayout
from penstock.compute.backends.reference.backend import Reference
from penstock.compute.decoding.propose.contract import Draftable
from penstock.compute.decoding.propose.draft_model import DraftModel
from penstock.compute.models.decoder import build
from penstock.compute.models.load.checkpoint import open_checkpoint
from penstock.compute.models.load.weights import load_weights
from penstock.core.config import EngineConfig
from penstock.core.errors import ModelError, UsageError
from penstock.serve.engine.aux_models import LoadedAuxModel
from penstock.serve.engine.build import find
from tests.tiny import write_model

SIZE, K, TOKENS = 16, 4, 1024


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_model(tmp_path_factory.mktemp("drafter"), max_position_embeddings=700)


@pytest.fixture(scope="module")
def llm(folder) -> LLM:
    return LLM(str(folder), backend="reference", prefix_cache=False)


@pytest.fixture
def proposer(folder) -> DraftModel:
    found = find(EngineConfig(model=str(folder)))
    program, backend = build(found.spec, found.family.names), Reference()

    def model(name: str, kv_tokens: int) -> LoadedAuxModel:
        layout = KVLayout(kv_tokens // SIZE, SIZE)
        weights = load_weights(program, open_checkpoint(folder), "float32")
        return LoadedAuxModel(found.spec, backend, backend.load(program, weights, layout), layout)

    host = SimpleNamespace(spec=found.spec, sampler=None, kv_tokens=TOKENS, max_num_batched_tokens=512, model=model)
    return DraftModel(DraftModel.Options(k=K), host)


def says(llm: LLM, tokens: list[int], count: int = K) -> tuple[int, ...]:
    params = SamplingParams(max_tokens=count, temperature=0, ignore_eos=True)
    return tuple(llm.generate([{"prompt_token_ids": tokens}], params)[0].outputs[0].token_ids)


def drafts(proposer: DraftModel, *rows: tuple[int, list[int]], room: int = K) -> list[tuple[int, ...]]:
    return [found.tokens for found in proposer.propose([Draftable(seq_id, tokens, 1, room) for seq_id, tokens in rows])]


def test_it_says_what_it_would_say(llm, proposer):
    first, second = [5, 6, 7, 8], [9] * 40
    assert drafts(proposer, (0, first), (1, second)) == [says(llm, first), says(llm, second)]
    assert drafts(proposer, (1, second), room=2) == [says(llm, second, 2)]


@pytest.mark.parametrize("num_right", range(K + 1))
def test_after_drafts_were_accepted_or_not(llm, proposer, num_right):
    tokens = [5, 6, 7, 8]
    (found,) = drafts(proposer, (0, tokens))
    tokens = [*tokens, *found[:num_right], 200]
    assert drafts(proposer, (0, tokens)) == [says(llm, tokens)]
    tokens = [*tokens, 201]
    assert drafts(proposer, (0, tokens)) == [says(llm, tokens)]


def test_sequences_that_were_left_out_catch_up(llm, proposer, monkeypatch):
    """Long ones in several steps, while others have drafts; no step of the draft model is longer than that."""
    proposer._most_rows = 128
    tokens = [token % 250 for token in range(3, 20)]
    drafts(proposer, (0, tokens))
    tokens += [token * 7 % 250 for token in range(400)]
    step, sizes = proposer._aux.backend.step, []
    monkeypatch.setattr(proposer._aux.backend, "step", lambda loaded, batch: sizes.append(len(batch.tokens)) or step(loaded, batch))
    for others in ([3, 4], [3, 4, 5], [3, 4, 5, 6], [3, 4, 5, 6, 7]):
        found, other = proposer.propose([Draftable(0, tokens, 1, K), Draftable(1, others, 1, K)])
        assert other.tokens == says(llm, others) and bool(found.tokens) is not found.is_reading is (len(others) < 5)
    assert found.tokens == says(llm, tokens) and sizes == [128, 1, 1, 1] * 3 + [400 + 5 - 3 * 128, 2, 2, 2]
    assert drafts(proposer, (2, list(range(128)))) == [says(llm, list(range(128)))]
    assert proposer.propose([Draftable(3, [5] * 129, 1, K)])[0].is_reading and sizes[-4:] == [1, 1, 1, 128]


def test_one_that_comes_back_is_another(llm, proposer):
    drafts(proposer, (0, [5, 6, 7, 8]))
    proposer.forget(0)
    proposer.forget(4)
    assert drafts(proposer, (0, [8, 7, 6])) == [says(llm, [8, 7, 6])]


def test_what_does_not_fit_has_no_drafts(llm, proposer):
    """Beyond the drafter's context, or its cache; a sequence that ends makes room."""
    assert drafts(proposer, (0, [1] * 697)) == [()]
    held = [5] * 600
    assert [found.is_reading for found in proposer.propose([Draftable(seq, held, 1, K) for seq in (0, 1)])] == [True, False]
    assert drafts(proposer, (0, held), (1, [6] * 600)) == [says(llm, held), ()]
    proposer.forget(0)
    drafts(proposer, (1, [6] * 600))
    assert drafts(proposer, (1, [6] * 600)) == [says(llm, [6] * 600)]


def test_a_model_with_other_tokens_is_refused(folder, tmp_path):
    with pytest.raises(UsageError, match="rill cannot draft for .*: their tokenizers differ, for example in "):
        LLM(str(folder), propose="draft_model:model=rill")
    with pytest.raises(ModelError, match="nowhere"):
        LLM(str(folder), propose=f"draft_model:model={tmp_path / 'nowhere'}")


@pytest.mark.parametrize("text", ["draft_model:k=0", "draft_model:kv_tokens=-1", "draft_model:depth=3"])
def test_options_without_sense_are_refused(folder, text):
    with pytest.raises(UsageError, match=text.partition(":")[2].partition("=")[0]):
        LLM(str(folder), propose=text)


def test_no_more_is_drafted_than_there_is_room_for(llm, proposer):
    proposer._options = DraftModel.Options(k=5000)
    assert drafts(proposer, (0, [5, 6, 7, 8]), room=3) == [says(llm, [5, 6, 7, 8], 3)]
    drafts(proposer, (1, [9] * 690))
    assert drafts(proposer, (1, [9] * 690), (2, [9] * 699), room=9) == [says(llm, [9] * 690, 9), ()]


def test_a_token_that_it_does_not_know_is_never_given_to_it(llm, proposer):
    """The target's embedding may have more rows, and a bias may choose them."""
    unknown = llm._engine.facts.vocab_size
    assert drafts(proposer, (0, [5, 6]), (1, [8, 9])) == [says(llm, [5, 6]), says(llm, [8, 9])]
    assert drafts(proposer, (0, [5, 6, unknown]), (1, [8, 9, 7])) == [(), says(llm, [8, 9, 7])]
    assert drafts(proposer, (0, [5, 6, unknown, 7])) == [()]
    assert drafts(proposer, (2, [unknown, 7])) == [()]
