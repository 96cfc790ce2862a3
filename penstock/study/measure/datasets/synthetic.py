"""Random prompts of exact lengths, which may share prefixes; endless."""
import random
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.errors import UsageError
from penstock.study.measure.load import Part, Session, Turn, Writer


@dataclass(frozen=True, slots=True)
class SyntheticOptions:
    input: int = 256  # tokens of a prompt, the shared prefix included
    output: int = 64
    input_spread: float = 0.0  # lengths are uniform between (1 - spread) and (1 + spread) times the value
    output_spread: float = 0.0
    prefix: int = 0  # tokens that prompts share
    prefixes: int = 1  # different ones, drawn evenly


class Synthetic:
    Options = SyntheticOptions
    has_times = False

    def __init__(self, options: SyntheticOptions, writer: Writer, seed: str) -> None:
        for name, value, spread in (
            ("input", options.input, options.input_spread), ("output", options.output, options.output_spread),
        ):
            if value < 1:
                raise UsageError(f"synthetic: {name} must be at least 1, not {value}")
            if not 0 <= spread < 1:
                raise UsageError(f"synthetic: {name}_spread must be from 0 to below 1, not {spread:g}")
        shortest = bounds(options.input, options.input_spread)[0]
        if not 0 <= options.prefix < shortest:
            raise UsageError(f"synthetic: prefix must be below the shortest prompt's {shortest} tokens, not {options.prefix}")
        if options.prefixes < 1:
            raise UsageError(f"synthetic: prefixes must be at least 1, not {options.prefixes}")
        self._options = options
        self._writer = writer
        self._seed = seed

    def sessions(self) -> Iterator[Session]:
        options, number = self._options, 0
        rng = random.Random(f"{self._seed}/lengths")
        while True:
            num_prompt = rng.randint(*bounds(options.input, options.input_spread))
            num_output = rng.randint(*bounds(options.output, options.output_spread))
            shared = rng.randrange(options.prefixes)
            parts = [Part(f"{self._seed}/prefix/{shared}", options.prefix)] if options.prefix else []
            parts.append(Part(f"{self._seed}/prompt/{number}", num_prompt - options.prefix))
            yield Session((Turn(self._writer.write(parts), num_prompt=num_prompt, num_output=num_output),))
            number += 1

    def anew(self, writer: Writer, seed: str) -> "Synthetic":
        return Synthetic(self._options, writer, seed)

    def notes(self) -> list[str]:
        return []


def bounds(value: int, spread: float) -> tuple[int, int]:
    """The shortest and the longest length."""
    return max(1, round(value * (1 - spread))), max(1, round(value * (1 + spread)))
