"""Heads learn what a model would say: more often right than chance within seconds, as they will be served, and repeatably."""
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402

from penstock import LLM, SamplingParams  # noqa: E402
from penstock.compute.backends import packed  # noqa: E402
from penstock.compute.backends.reference.backend import Reference, ReferenceOptions  # noqa: E402
from penstock.compute.models.heads import stamp  # noqa: E402
from penstock.core.errors import CapacityError, UsageError  # noqa: E402
from penstock.serve.engine.machine import Machine  # noqa: E402
from penstock.study.compress import heads, store, train_heads  # noqa: E402
from penstock.study.compress import run as module  # noqa: E402
from penstock.study.compress.answers import Answers, Sizes, open_llm, windows  # noqa: E402
from penstock.study.compress.heads import initial  # noqa: E402
from penstock.study.compress.heads.eagle import Eagle, EagleOptions  # noqa: E402
from penstock.study.compress.heads.medusa import Medusa, MedusaOptions  # noqa: E402
from penstock.study.compress.measure import agreement, calibrate  # noqa: E402
from penstock.study.compress.run import Job, run  # noqa: E402
from penstock.study.compress.target import Target, body  # noqa: E402
from penstock.study.compress.text import Beginnings  # noqa: E402
from penstock.study.compress.train_heads import Length, loss_of  # noqa: E402
from tests.tiny import write_model  # noqa: E402

SMALL = Sizes(batch=512, shortest=4, longest=24, output=24)
TEXT = ["\n\n".join(f"{word} went to sea in a boat of {other} and was not seen again" for word in "abcdefgh" for other in "stuvwxyz")]


def trained(folder: Path, out: Path, text: str, length: int | Length, seed: int = 0, begin: Path | None = None,
            texts: list[str] = TEXT, held_out: list[str] = TEXT) -> Any:
    kind, options = heads.TABLE.parse(text)
    said: list[str] = []
    length = length if isinstance(length, Length) else Length(steps=length)
    job = Job(str(folder), text.partition(":")[0], texts, held_out, out, length, seed, threads=1, sizes=SMALL, begin=begin)
    result = run(job, lambda target, seed: kind(options, target, seed), said.append)
    assert said
    return result


@pytest.mark.parametrize(("text", "steps"), [("eagle:depth=2", 40), ("medusa:heads=2", 150)])
def test_training_beats_chance_and_drafts_are_accepted(folder: Path, tmp_path: Path, text: str, steps: int) -> None:
    kind = text.partition(":")[0]
    before = trained(folder, tmp_path / "before", text, 1).trained.agreement
    result = trained(folder, tmp_path, text, steps)
    after = result.trained.agreement
    assert after.right[0] > before.right[0] + 0.08
    assert len(after.right) == len(after.accepted) and list(after.accepted) == sorted(after.accepted, reverse=True)
    assert after.tokens_per_pass == 1 + sum(after.accepted)
    told = json.loads(json.dumps(result.as_json()))
    assert told["steps"] == steps and told["bytes"] == (tmp_path / f"{kind}.safetensors").stat().st_size
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    prompts = ["a went to sea", "c went to sea in a boat of t", "h went"]
    plain = LLM(folder).generate(prompts, params)
    drafted = LLM(folder, propose=f"{kind}:path={tmp_path}", draft_control="always").generate(prompts, params)
    assert [each.outputs[0].token_ids for each in drafted] == [each.outputs[0].token_ids for each in plain]
    assert sum(each.drafting.num_accepted for each in drafted) > 0.1 * sum(each.drafting.passes for each in drafted)


@pytest.mark.parametrize("text", ["medusa:heads=99999", "medusa:heads=33", "medusa:heads=0", "eagle:depth=33", "eagle:depth=0"])
def test_numbers_of_places_without_sense_are_refused_when_they_are_read(text: str) -> None:
    with pytest.raises(UsageError, match=f"must be between 1 and 32, not {text.partition('=')[2]}$"):
        heads.TABLE.parse(text)


def test_heads_that_memory_does_not_hold_are_refused(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    free = 16 * 1000
    monkeypatch.setattr(initial, "look", lambda: Machine(free, 1))
    with pytest.raises(CapacityError, match="parameters need .* free, which is enough for 1,000:"):
        Medusa(MedusaOptions(heads=4), target, 0)


def test_places_behind_the_end_of_all_answers_teach_nothing(target: Target) -> None:
    """They are as if they were not there."""
    batch = windows([([5, 6, 7], [8])])
    losses = [loss_of(target, Medusa(MedusaOptions(heads=count), target, 0), batch, torch.Generator().manual_seed(1))
              for count in (3, 9)]
    assert losses[0][0] > 0 and losses[1][0].item() == pytest.approx(losses[0][0].item()) and losses[1][1] == losses[0][1]
    found = agreement(target, Medusa(MedusaOptions(heads=9), target, 0), [batch])
    assert found.right[3:] == found.accepted[3:] == (0.0,) * 6
    many, plain = (Medusa(MedusaOptions(heads=9), target, 0) for _ in range(2))
    calibrate(target, many, [batch])
    assert [torch.equal(many.parameters[f"{i}.norm"], plain.parameters[f"{i}.norm"]) for i in range(9)] == [False] * 3 + [True] * 6


def test_an_end_of_text_is_not_learned_from(tmp_path: Path) -> None:
    """Nothing is drafted behind it."""
    ends = list(range(200, 210))
    llm = open_llm(str(write_model(tmp_path, eos_token_id=ends)), SMALL, 1)
    batches = [part for _ in range(4) for part in Answers(llm, Beginnings(TEXT, llm.get_tokenizer(), 0), SMALL, 0).draw()]
    answers = [ids[batch.num_prompt : length] for batch in batches for ids, length in zip(batch.tokens, batch.lengths, strict=True)]
    assert {len(ids) < SMALL.output for ids in answers} == {True, False}
    assert not any(set(ids.tolist()) & set(ends) for ids in answers)


def test_a_step_learns_from_a_whole_batch_in_parts(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a large vocabulary a batch has more logits than there is memory for."""
    sizes: list[int] = []

    def small(target: Target, heads: Any, batch: Any, generator: torch.Generator) -> Any:
        sizes.append(batch.tokens.numel())
        return loss_of(target, heads, batch, generator)

    monkeypatch.setattr(train_heads, "loss_of", small)
    monkeypatch.setattr(module, "LOGITS", 300 * 100)
    assert trained(folder, tmp_path, "medusa:heads=1", 1).trained.tokens == sum(sizes) > 300
    assert max(sizes) <= 100


def test_parts_of_a_batch_teach_what_the_whole_does(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_heads, "PROMPT_SHARE", 0.0)
    batch = windows([([5 + i, 6, 7, 8], list(range(20 * i, 20 * i + length))) for i, length in enumerate((9, 9, 9, 5, 1))])
    assert [len(part.tokens) for part in batch.parts(30)] == [2, 2, 1] and len(batch.parts(1)) == 5
    whole, made = (Medusa(MedusaOptions(heads=2), target, 0) for _ in range(2))
    loss, places = loss_of(target, whole, batch, torch.Generator())
    (loss / places).backward()
    assert train_heads.add_gradients(target, made, batch.parts(30), torch.Generator()) == pytest.approx(loss.item() / places, rel=1e-3)
    torch.testing.assert_close(made.parameters["0.norm"].grad, whole.parameters["0.norm"].grad, rtol=0.05, atol=1e-3)


def test_measuring_takes_no_longer_than_there_is_memory_for_at_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a large vocabulary it takes so long that it would be most of a run."""
    measured, calibrated = [], []
    monkeypatch.setattr(train_heads, "agreement", lambda *given: measured.extend(given[2]) or agreement(*given))
    monkeypatch.setattr(train_heads, "calibrate", lambda *given: calibrated.extend(given[2]))
    monkeypatch.setattr(module, "LOGITS", 300 * 40)
    trained(folder, tmp_path, "medusa:heads=1", 1)
    for batches, count in ((measured, module.MEASURED), (calibrated, train_heads.CALIBRATING)):
        assert 0 < sum(each.tokens.numel() for each in batches) <= count * (SMALL.longest + SMALL.output)


def test_measuring_that_takes_long_does_not_follow_every_step(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, done = [0.0], list[str]()

    def takes_long(what: Any, seconds: float) -> Any:
        def call(*given: Any) -> Any:
            clock[0] += seconds
            done.append(what.__name__)
            return what(*given)
        return call

    monkeypatch.setattr(train_heads, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    for what, seconds in ((train_heads.add_gradients, train_heads.SAVE_S * 0.4), (agreement, train_heads.SAVE_S * 2)):
        monkeypatch.setattr(train_heads, what.__name__, takes_long(what, seconds))
    trained(folder, tmp_path, "medusa:heads=1", 7)
    assert done == [*["add_gradients"] * 3, "agreement", *["add_gradients"] * 3, "agreement", "add_gradients", "agreement"]


def test_a_run_ends_with_its_minutes_or_its_steps() -> None:
    begun = time.monotonic() - 30
    assert Length(minutes=1, began=begun).done(10**6) == pytest.approx(0.5, abs=0.1)
    assert Length(steps=4, began=begun).done(3) == 0.75
    both = Length(minutes=1, steps=4, began=begun)
    assert both.done(3) == 0.75 and both.done(0) == pytest.approx(0.5, abs=0.1)
    assert Length(minutes=0.5, steps=4, began=begun).done(0) == 1


def test_one_step_is_made_whatever_the_time(folder: Path, tmp_path: Path) -> None:
    late = Length(minutes=1.0, began=time.monotonic() - 3600)
    result = trained(folder, tmp_path, "medusa:heads=1", late)
    assert result.trained.steps == 1 and result.path.exists()


def test_answers_are_told_of_while_they_are_made(folder: Path) -> None:
    llm, told = open_llm(str(folder), SMALL, 1), list[tuple[float, int]]()
    Answers(llm, Beginnings(TEXT, llm.get_tokenizer(), 0), SMALL, 0, lambda *each: told.append(each)).draw()
    made, wanted = [each[0] for each in told], told[0][1]
    assert {each[1] for each in told} == {wanted} and wanted > 64
    assert made == sorted(made) and made[-1] == wanted
    assert len([each for each in made if each < 64]) > 64  # also of those that are made at once


def test_answers_that_are_under_way_are_told_of_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    watch = module.told_now_and_then(said.append)
    for clock[0], made in ((1, 0.5), (21, 1.5), (22, 30), (23, 40), (60, 0.01), (79, 20), (79.5, 40), (120, 0.01), (141, 8)):
        watch(made, 40)
    assert [line.split("%")[0] for line in said] == ["  3.8", "100.0", " 20.0"]


def test_a_number_of_steps_is_repeatable(folder: Path, tmp_path: Path) -> None:
    one, same, other = (load_file(trained(folder, tmp_path / str(i), "medusa:heads=2", 3, seed).path) for i, seed in enumerate((1, 1, 2)))
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert any(not np.array_equal(one[name], other[name]) for name in one)


def test_the_file_says_what_it_is_for(folder: Path, target: Target, tmp_path: Path) -> None:
    path = trained(folder, tmp_path, "eagle:depth=1", 1).path
    assert sorted(each.name for each in tmp_path.iterdir()) == ["eagle.safetensors"]
    with safe_open(path, "pt") as file:
        facts = file.metadata()
        assert all(file.get_tensor(name).dtype == torch.bfloat16 for name in file.keys())  # noqa: SIM118
    assert facts[stamp.KIND] == "eagle" and facts[stamp.TARGET] == stamp.fingerprint(target.spec)
    other = write_model(tmp_path / "other", hidden_size=64, vocab_size=400)
    with pytest.raises(UsageError) as refusal:
        LLM(other, propose=f"eagle:path={path}")
    assert str(refusal.value) == (
        f"{path} holds heads trained for {folder.name} (2 layers, hidden size 32, 300 tokens), but heads fit one model alone, here other "
        f"(2 layers, hidden size 64, 400 tokens): `penstock train-heads {other} --kind eagle --text TEXTS --out FOLDER` makes some for it")


def test_training_goes_on_where_it_ended(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(module, "Beginnings", lambda texts, tokenizer, seed, name="": seeds.append(seed) or Beginnings(
        texts, tokenizer, seed, name))
    first = trained(folder, tmp_path / "first", "medusa:heads=1", 60).trained.agreement
    again = trained(folder, tmp_path / "again", "medusa:heads=1", 1, begin=tmp_path / "first").trained.agreement
    assert again.right[0] > first.right[0] / 2 > 0.03
    trained(folder, tmp_path / "again", "medusa:heads=1", 1, begin=tmp_path / "first")
    assert seeds[:2] == [0, 0] and seeds[3] == seeds[5] != 0 == seeds[2]  # of text to measure on, and to learn from
    out = tmp_path / "new" / "out"
    with pytest.raises(UsageError, match=r"first/medusa\.safetensors has no medusa\.1\.\S+: it holds less than --kind asks for"):
        trained(folder, out, "medusa:heads=3", 1, begin=tmp_path / "first")
    trained(folder, tmp_path / "two", "medusa:heads=2", 1)
    with pytest.raises(UsageError, match=r"two/medusa\.safetensors has medusa\.1\.\S+: it holds more than --kind asks for"):
        trained(folder, out, "medusa:heads=1", 1, begin=tmp_path / "two")
    monkeypatch.setattr(Target, "load", None)
    with pytest.raises(UsageError, match="there is no .*nowhere/eagle.safetensors to continue from"):
        trained(folder, out, "eagle", 1, begin=tmp_path / "nowhere")
    with pytest.raises(UsageError, match="holds heads trained for .*, but heads fit one model alone, here other "):
        trained(write_model(tmp_path / "other"), out, "medusa:heads=1", 1, begin=tmp_path / "first")
    (tmp_path / "eagle.safetensors").write_text("no heads")
    with pytest.raises(UsageError, match=r"cannot continue from .*/eagle\.safetensors: "):
        trained(folder, out, "eagle", 1, begin=tmp_path)
    assert not out.parent.exists()


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    with pytest.raises(UsageError), store.made(tmp_path / "before" / "new" / "out"):
        raise UsageError("of whatever comes later")
    assert [path.name for path in tmp_path.rglob("*")] == ["before"]


def test_a_folder_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="^cannot write in a{300}: File name too long$"), store.made(Path("a" * 300)):
        pass


def test_rounds_compute_what_serving_does(target: Target) -> None:
    """Row t of round s: the target's states up to t - s, then the head's own."""
    head = Eagle(EagleOptions(depth=4), target, seed=3)
    with torch.no_grad():
        for weight in head.parameters.values():
            if weight.ndim == 2:
                weight.normal_(std=weight.shape[1] ** -0.5)
        tokens = torch.randint(0, 300, (2, 9), generator=torch.Generator().manual_seed(1))
        states = target.states(tokens)
        rounds = [guess.hidden for guess in head.guesses(tokens, states)]
        backend, program = Reference(ReferenceOptions(arrays="torch")), target.borrowed(body(head.program), head.parameters)
        for depth in range(1, 4):
            for row in range(depth, 9):
                first = row - depth
                own = [rounds[i][:, first + i : first + i + 1] for i in range(depth)]
                given = torch.cat([states[:, : first + 1], *own], dim=1)
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    found = backend.forward(program, tokens[:, : row + 1], ("hidden",), {"states": given})["hidden"]
                torch.testing.assert_close(found[:, -1].float(), rounds[depth][:, row], rtol=0.05, atol=0.05)


def test_states_and_logits_are_the_models_own(folder: Path, target: Target) -> None:
    """What heads are trained on is what a step hands out."""
    prompt = "a went to sea in a boat"
    llm = LLM(folder, dtype="float32")
    ids = llm.get_tokenizer().encode(prompt)
    states = target.states(torch.tensor([ids]))
    embedded = torch.tensor(llm.embed(prompt)[0].embedding)
    assert torch.cosine_similarity(states[0, -1], embedded, dim=0) > 0.999
    chosen = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=1))[0].outputs[0].token_ids[0]
    assert target.logits(states[:, -1]).topk(3).indices[0].tolist().count(chosen) == 1


def test_a_context_that_is_too_short_is_refused(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "short", max_position_embeddings=20)
    with pytest.raises(UsageError, match="has a context of 20 tokens; 28 are needed"):
        trained(folder, tmp_path, "medusa", 1)


def test_short_texts_are_enough_and_shorter_ones_are_refused(folder: Path, tmp_path: Path) -> None:
    """Beginnings are no longer than every other text."""
    lines = [f"{word} sees {other}" for word in "abcdefgh" for other in "stuvwxyz"]
    assert trained(folder, tmp_path, "medusa:heads=1", 2, texts=lines, held_out=lines).trained.tokens > 0
    needed = "half of its beginnings must have 4 tokens or more before their document ends, and have at most 3"
    with pytest.raises(UsageError, match=f"too little text: {needed}"):
        trained(folder, tmp_path, "medusa", 1, texts=["ab"] * 9)
    with pytest.raises(UsageError, match=f"too little text to measure on: {needed}"):
        trained(folder, tmp_path, "medusa", 1, held_out=["ab"] * 9)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_was_learned_before_it_broke_off_is_kept(
        folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    lessons = iter([False, True, True])

    def interrupted(*given: Any) -> Any:
        if next(lessons):
            raise error
        return loss_of(*given)

    monkeypatch.setattr(train_heads, "loss_of", interrupted)
    for out in ("learned", "nothing"):
        with pytest.raises(error):
            trained(folder, tmp_path / out, "medusa:heads=1", 3)
    monkeypatch.undo()
    assert not (tmp_path / "nothing").exists()
    assert trained(folder, tmp_path / "more", "medusa:heads=1", 1, begin=tmp_path / "learned").trained.steps == 1


def test_progress_counts_the_steps_that_were_made(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_heads, "SAY_S", -1.0)
    said: list[str] = []
    job = Job(str(folder), "medusa", TEXT, TEXT, tmp_path, Length(steps=2), 0, threads=1, sizes=SMALL)
    run(job, lambda target, seed: Medusa(MedusaOptions(heads=1), target, seed), said.append)
    assert [line.split()[0] for line in said if " loss " in line] == ["50.0%", "100.0%"]


def test_what_was_learned_is_there_before_it_is_measured(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrating takes a while, and whoever ends the process then loses nothing."""
    found: list[bool] = []
    monkeypatch.setattr(train_heads, "calibrate", lambda *_: found.append((tmp_path / "medusa.safetensors").exists()))
    trained(folder, tmp_path, "medusa:heads=1", 1)
    assert found == [True]


@pytest.mark.parametrize(("error", "raised"), [(OSError, UsageError), (KeyboardInterrupt, KeyboardInterrupt)])
def test_a_file_that_cannot_be_written_leaves_nothing(
        folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], raised: type[BaseException]) -> None:
    def full(part: Path, path: Path, contents: Any) -> None:
        part.write_bytes(b"half")
        raise error("no space left")

    monkeypatch.setattr(packed, "put", full)
    with pytest.raises(raised, match="cannot write .*medusa.safetensors: no space left" if raised is UsageError else None):
        trained(folder, tmp_path, "medusa:heads=1", 1)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_became_a_file_is_refused(target: Target, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    heads, place = Medusa(MedusaOptions(heads=1), target, 0), store.Place(tmp_path / "out", "medusa", target.spec, "m")
    with pytest.raises(UsageError, match="cannot write .*out/medusa.safetensors: .*Not a directory"):
        store.write(place, heads.program, heads.parameters)


def test_two_that_write_at_once_write_a_whole_file_each(target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heads, place = Medusa(MedusaOptions(heads=1), target, 0), store.Place(tmp_path, "medusa", target.spec, "m")

    def interrupted(part: Path, path: Path, contents: Any) -> None:
        def halves() -> Iterator[memoryview]:
            yield written[:100]
            with monkeypatch.context() as other:
                other.setattr(packed, "put", put)
                other.setattr(store.os, "getpid", os.getppid)
                assert load_file(store.write(place, heads.program, heads.parameters))
            yield written[100:]

        (written,) = contents
        put(part, path, halves())

    put = packed.put
    monkeypatch.setattr(packed, "put", interrupted)
    store.write(place, heads.program, heads.parameters)
    assert load_file(place.file) and [each.name for each in tmp_path.iterdir()] == ["medusa.safetensors"]


def test_what_a_killed_process_left_unfinished_is_removed(target: Target, tmp_path: Path) -> None:
    heads, place = Medusa(MedusaOptions(heads=1), target, 0), store.Place(tmp_path, "medusa", target.spec, "m")
    names = [f"medusa.safetensors.{2**22 + 1}.part", f"medusa.safetensors.{os.getppid()}.part", f"eagle.safetensors.{2**22 + 1}.part"]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
    store.write(place, heads.program, heads.parameters)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(["medusa.safetensors", *names[1:]])
