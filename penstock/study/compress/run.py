"""`penstock train-heads` from names to a file: loads the model twice (as it is served, and on torch), trains, saves."""
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from penstock.core.config import EngineConfig
from penstock.core.errors import UsageError
from penstock.core.modelspec import ModelSpec
from penstock.serve.engine.build import find
from penstock.study.compress.answers import Answers, Sizes, Watch, open_llm
from penstock.study.compress.measure import told
from penstock.study.compress.store import Place, check, made, read, write
from penstock.study.compress.target import Target
from penstock.study.compress.text import Beginnings
from penstock.study.compress.train_heads import SAY_S, Length, Lessons, Trained, train

LOGITS = 2**24  # that a part of a batch may have for each place of a draft
MEASURED = 8  # batches of text that is held out


@dataclass(frozen=True, slots=True)
class Job:
    model: str
    kind: str  # and so the file's name
    texts: list[str]
    held_out: list[str]
    out: Path
    length: Length
    seed: int = 0
    threads: int | None = None
    sizes: Sizes = Sizes()
    begin: Path | None = None  # the folder of heads to go on with
    measured_on: str = "text to measure on"  # `held_out`, in words


@dataclass(frozen=True, slots=True)
class Result:
    path: Path
    num_parameters: int
    trained: Trained

    def as_json(self) -> dict[str, Any]:
        found = self.trained
        return {
            "file": str(self.path), "bytes": self.path.stat().st_size, "parameters": self.num_parameters, "steps": found.steps,
            "tokens": found.tokens, "seconds": round(found.seconds, 1), "agreement": found.agreement.right,
            "accepted": found.agreement.accepted, "tokens_per_pass": found.agreement.tokens_per_pass}


def run(job: Job, make: Callable[[Target, int], Any], say: Callable[[str], None]) -> Result:
    """`make` makes the heads for a target, from a seed. Raises ModelError for a model that cannot be read, UsageError for too little text,
    for heads that cannot be continued, or where nothing can be written. What ends the training early is passed on when what was learned is
    written."""
    spec, sizes = find(EngineConfig(model=job.model)).spec, job.sizes
    if sizes.shortest + sizes.output > spec.max_position:
        raise UsageError(f"{job.model} has a context of {spec.max_position} tokens; {sizes.shortest + sizes.output} are needed")
    if job.begin is not None:
        check(Place(job.begin, job.kind, spec, job.model))
    with made(job.out):
        return learn(job, spec, make, say)


def learn(job: Job, spec: ModelSpec, make: Callable[[Target, int], Any], say: Callable[[str], None]) -> Result:
    """What `run` does in a folder that is there, from files that it can go on from."""
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed)
    target, sizes = Target.load(job.model), job.sizes
    longest = min(sizes.longest, spec.max_position - sizes.output)
    sizes = replace(sizes, longest=longest, part=LOGITS // spec.vocab_size)
    heads, seed = make(target, job.seed), job.seed
    if job.begin is not None:
        read(Place(job.begin, job.kind, spec, job.model), heads.program, heads.parameters)
        seed = going_on(job.seed, heads.parameters)
    own = sum(weight.numel() for weight in heads.parameters.values())
    say(f"{own:,} parameters of its own; {sum(map(len, job.texts)):,} characters to train on, {sum(map(len, job.held_out)):,} held out")
    say(f"generating answers of {job.model} to train and measure on")
    llm, watch = open_llm(job.model, sizes, job.threads), told_now_and_then(say)
    tokenizer = llm.get_tokenizer()
    few = replace(sizes, batch=sizes.few)
    measured = Answers(llm, Beginnings(job.held_out, tokenizer, seed=0, name=job.measured_on), few, seed=0, watch=watch)
    lessons = Lessons(Answers(llm, Beginnings(job.texts, tokenizer, seed), sizes, seed, watch),
                      [part for _ in range(MEASURED) for part in measured.draw()], job.length)

    def save() -> Path:
        return write(Place(job.out, job.kind, spec, job.model), heads.program, heads.parameters)

    trained = train(target, heads, lessons, save, say)
    say(told(trained.agreement))
    return Result(save(), own, trained)


def going_on(seed: int, learned: Mapping[str, Tensor]) -> int:
    """The seed for the choice of text with which heads go on: what they were trained on was chosen with another."""
    digest = hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=8)
    for weight in learned.values():
        digest.update(weight.detach().numpy().tobytes())
    return int.from_bytes(digest.digest(), "little")


def told_now_and_then(say: Callable[[str], None]) -> Watch:
    """What tells how much of some answers is made, where these take long, up to their last. Fewer than before are the first of others."""
    said, before, is_told = time.monotonic(), 0.0, False

    def watch(made: float, wanted: int) -> None:
        nonlocal said, before, is_told
        if made < before:
            said, is_told = time.monotonic(), False
        before = made
        if time.monotonic() - said > SAY_S or is_told and made >= wanted:
            said, is_told = time.monotonic(), True
            say(f"{made / wanted:6.1%} of {wanted} answers generated")

    return watch
