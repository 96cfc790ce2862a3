"""All requests at once, in any order: what each says is compared with what it says alone."""
import random
from collections.abc import Iterator, Sequence

from penstock import LLM, SamplingParams
from penstock.core.types import Output


def crowded(llm: LLM, requests: Sequence[tuple[str, SamplingParams]]) -> Iterator[tuple[int, Output]]:
    """(number of the request, its answer), in two rounds of different order."""
    order = list(range(len(requests)))
    for seed in (1, 2):
        random.Random(seed).shuffle(order)
        outputs = llm.generate([requests[i][0] for i in order], [requests[i][1] for i in order])
        yield from zip(order, outputs, strict=True)
    llm._engine.check_integrity()
