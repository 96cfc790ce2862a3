"""What the twin would choose: from the engine's own settings it changes one option after the other as long as that pays, once for each
weight format; of all that it saw on the way the best are handed on to be measured."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.core.errors import PenstockError
from penstock.study.plan.tune.levers import QUANT, Levers
from penstock.study.plan.tune.score import Score
from penstock.study.plan.tune.setting import Setting

OPTIONS = ("max_num_seqs", "max_num_batched_tokens", "order", "prefix_cache", "kv_tokens", "block_size", "evict", "batching")
PASSES = 3
Proposal = tuple[Setting, Score]
Predict = Callable[[Setting], Score]  # PenstockError where the twin cannot say


@dataclass(slots=True)
class Seen:
    """`unknown`: single options that the twin can say nothing of."""

    scores: dict[Setting, Score] = field(default_factory=dict)
    unknown: list[Setting] = field(default_factory=list)

    def best(self, most: int) -> list[Proposal]:
        """Those that beat what the engine has, the best first; of several that are as good, the one with the fewest changes."""
        base = self.scores[Setting()]
        ranked = sorted([each for each in self.scores.items() if each[1].beats(base)],
                        key=lambda each: (*[-value for value in each[1].rank], len(each[0])))
        found: list[Proposal] = []
        for each in ranked:
            if not any(alike(each, other) for other in found):
                found.append(min([each, *(other for other in ranked if alike(each, other))], key=lambda other: len(other[0])))
        return found[:most]


def alike(one: Proposal, other: Proposal) -> bool:
    """As good, and of the same weight format."""
    return dict(one[0]).get(QUANT) == dict(other[0]).get(QUANT) and not one[1].beats(other[1]) and not other[1].beats(one[1])


def proposals(levers: Levers, formats: Sequence[str], predict: Predict, say: Callable[[str], None]) -> Seen:
    """`formats`: weight formats that may be chosen beside the engine's own. Raises what `predict` does of the engine's own settings."""
    seen = Seen()
    seen.scores[Setting()] = predict(Setting())
    for start in (Setting(), *[Setting(((QUANT, each),)) for each in formats]):
        try:
            descend(start, levers, predict, seen)
        except PenstockError as error:
            say(f"the twin cannot say what {start} does: {error}")
            seen.unknown.append(start)
    return seen


def descend(start: Setting, levers: Levers, predict: Predict, seen: Seen) -> None:
    """From `start` on; what it looks at goes into `seen`."""
    best, score = start, looked_up(start, predict, seen)
    blind: set[tuple[str, object]] = set()
    for _ in range(PASSES):
        before = best
        for name in OPTIONS:
            for value in levers.of(name):
                if (name, value) in blind:
                    continue
                tried = best.given(name, value)
                try:
                    found = looked_up(tried, predict, seen)
                except PenstockError:
                    blind.add((name, value))
                    if not len(start):
                        seen.unknown.append(Setting(((name, value),)))
                    continue
                if found.beats(score):
                    best, score = tried, found
        if best == before:
            break


def looked_up(setting: Setting, predict: Predict, seen: Seen) -> Score:
    """Once for each setting, in whichever order its changes were made."""
    known = next((each for each in seen.scores if each.key == setting.key), None)
    if known is None:
        seen.scores[setting] = predict(setting)
    return seen.scores[known or setting]
