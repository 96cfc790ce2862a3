"""What heads learn from: beginnings of the given text, each with the tokens that the model itself goes on with, greedily."""
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.core.errors import UsageError
from penstock.core.types import Completion, Output, SamplingParams
from penstock.serve.engine.requests import Delta
from penstock.serve.llm import LLM
from penstock.study.compress.text import Beginnings

Watch = Callable[[float, int], None]  # answers made, the parts of those that are under way included; of so many
AT_ONCE = 64  # sequences that the model goes on with
BATCHES = 8  # that are made at once, so that the sequences are many


@dataclass(frozen=True, slots=True)
class Sizes:
    """In tokens. A batch has beginnings of one length, from `shortest` to `longest` or what every other place in the text has. It comes in
    parts that torch has memory for."""

    batch: int = 2048
    part: int = 2048
    shortest: int = 8
    longest: int = 384
    output: int = 96

    @property
    def few(self) -> int:
        """Of a batch that need not be whole: as many as a part, or as the longest sequence has."""
        return max(self.longest + self.output, min(self.batch, self.part))


@dataclass(frozen=True, slots=True)
class Windows:
    tokens: Tensor  # [B, length]; what follows the end of an answer is padding
    lengths: Tensor  # [B]
    num_prompt: int

    def parts(self, most: int) -> list["Windows"]:
        """Of at most so many tokens, or of one sequence that is longer."""
        rows = max(1, most // self.tokens.shape[1])
        pieces = zip(self.tokens.split(rows), self.lengths.split(rows), strict=True)
        return [Windows(tokens, lengths, self.num_prompt) for tokens, lengths in pieces]


class Answers:
    """Draws batch after batch; the same ones for the same seed."""

    def __init__(self, llm: LLM, beginnings: Beginnings, sizes: Sizes, seed: int, watch: Watch | None = None) -> None:
        """`watch` is told of answers while they are made. Raises UsageError where hardly any of the text is as long
        as the shortest beginning."""
        self._longest = beginnings.reach(sizes.longest)
        if self._longest < sizes.shortest:
            raise UsageError(f"there is too little {beginnings.name}: half of its beginnings must have {sizes.shortest} tokens or more "
                             f"before their document ends, and have at most {self._longest}")
        self._llm = llm
        self._beginnings = beginnings
        self._sizes = sizes
        self._rng = np.random.default_rng(seed)
        self._watch = watch
        self._made: deque[Windows] = deque()

    def draw(self) -> list[Windows]:
        """The parts of a batch."""
        return self._batch().parts(self._sizes.part)

    def draw_few(self) -> list[Windows]:
        """The parts of a batch, up to `Sizes.few` tokens of it."""
        return self._batch().parts(self._sizes.few)[0].parts(self._sizes.part)

    def _batch(self) -> Windows:
        if not self._made:
            self._made.extend(self._make())
        return self._made.popleft()

    def _make(self) -> list[Windows]:
        sizes = self._sizes
        spread = self._rng.uniform(np.log(sizes.shortest), np.log(self._longest + 1), BATCHES)
        drawn = []
        for length in np.exp(spread).astype(int).tolist():
            drawn.append(self._beginnings.draw(max(1, sizes.batch // (length + sizes.output)), length))
        prompts: list[Any] = [{"prompt_token_ids": ids} for batch in drawn for ids in batch]
        outputs = iter(self._answers(prompts))
        return [windows([(ids, followed(next(outputs).outputs[0])) for ids in batch]) for batch in drawn]

    def _answers(self, prompts: list[Any]) -> list[Output]:
        most = self._sizes.output
        params, made, num_tokens = SamplingParams(temperature=0, max_tokens=most), list[Output](), 0

        def on_delta(delta: Delta) -> None:
            """An answer that has ended counts as a whole one."""
            nonlocal num_tokens
            num_tokens += len(delta.token_ids) + (0 if delta.usage is None else most - delta.usage.completion_tokens)
            if self._watch is not None:
                self._watch(num_tokens / most, len(prompts))

        for first in range(0, len(prompts), AT_ONCE):
            made += self._llm.generate(prompts[first : first + AT_ONCE], params, on_delta=on_delta)
        return made


def followed(answer: Completion) -> list[int]:
    """The tokens behind which something is drafted: all but an end of text."""
    return answer.token_ids[:-1] if answer.finish_reason == "stop" else answer.token_ids


def windows(pairs: list[tuple[list[int], list[int]]]) -> Windows:
    """Prompts of one length, and what was made of them."""
    whole = [[*prompt, *output] for prompt, output in pairs]
    longest = max(map(len, whole))
    tokens = torch.tensor([ids + [0] * (longest - len(ids)) for ids in whole])
    return Windows(tokens, torch.tensor([len(ids) for ids in whole]), len(pairs[0][0]))


def open_llm(model: str, sizes: Sizes, threads: int | None) -> LLM:
    """The model as it is served, with a KV cache that is just large enough. Its context is not cut short, which would choose other rope
    factors of models with two sets of them."""
    length = sizes.longest + sizes.output
    return LLM(model, max_num_seqs=AT_ONCE, kv_tokens=AT_ONCE * (length + 32), prefix_cache=False,
               **({} if threads is None else {"threads": threads}))
