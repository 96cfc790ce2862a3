"""Beam search: each step keeps the likeliest continuations of the live hypotheses; the result is the best of those that have ended.

The semantics are those of Hugging Face's `generate(num_beams=...)`. The score of a hypothesis is log-probability / length **
length_penalty, where length is the number of output tokens, the one that ended it included. Of a step's candidates, only the `beam_width`
likeliest may end a hypothesis; of the others, the `beam_width` likeliest are kept.
"""
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from heapq import merge


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """An output: its last token, and the path to it. Outputs share what they begin with."""

    before: "Path | None" = None  # None: it is empty
    token: int = -1
    logprob: float = 0.0  # of the token
    cumulative_logprob: float = 0.0
    length: int = 0

    def in_order(self) -> "list[Path]":
        """The paths to each of its tokens."""
        found, at = [], self
        while at.before is not None:
            found.append(at)
            at = at.before
        return found[::-1]

    def num_apart(self, other: "Path") -> int:
        """How many of its last tokens it does not share with a path of the same length."""
        num, one = 0, self
        while one is not other and one.before is not None and other.before is not None:
            num, one, other = num + 1, one.before, other.before
        return num


@dataclass(frozen=True, slots=True)
class Fork:
    """A live hypothesis of the next step: this step's hypothesis number `parent`, extended by `token`."""

    parent: int
    token: int
    logprob: float  # of the token
    cumulative_logprob: float


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A hypothesis that has ended."""

    path: Path
    score: float
    finish_reason: str  # stop, length
    parent: int  # the step's live hypothesis that it extends

    @property
    def tokens(self) -> tuple[int, ...]:
        """Its output, including the token that ended it."""
        return tuple([at.token for at in self.path.in_order()])

    @property
    def logprobs(self) -> tuple[float, ...]:
        """One per token."""
        return tuple([at.logprob for at in self.path.in_order()])


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of a step: the hypotheses that live on, likeliest first, and those that ended with this step. No forks if `done`."""

    forks: tuple[Fork, ...]
    finished: tuple[Hypothesis, ...]
    done: bool


class BeamSearch:
    """One search, which starts with a single live hypothesis, the empty output."""

    def __init__(self, beam_width: int, max_tokens: int, stop_ids: Set[int] = frozenset(), length_penalty: float = 1.0,
                 early_stopping: bool = False) -> None:
        """A hypothesis ends after `max_tokens` output tokens (at least 1), or with one of `stop_ids`.

        early_stopping: the search is done as soon as `beam_width` hypotheses have ended. Otherwise it is done when no live hypothesis,
        scored at its present length, would beat the worst of the best `beam_width` that have ended.
        """
        if beam_width < 1 or max_tokens < 1:
            raise ValueError(f"a beam search needs a width and a number of tokens of at least 1, not {beam_width} and {max_tokens}")
        self._beam_width = beam_width
        self._max_tokens = max_tokens
        self._stop_ids = stop_ids
        self._length_penalty = length_penalty
        self._early_stopping = early_stopping
        self._live: tuple[Path, ...] = (Path(),)
        self._ended: list[Hypothesis] = []  # the best `beam_width`, best first

    @property
    def live(self) -> tuple[Path, ...]:
        """The live hypotheses: after a step its forks."""
        return self._live

    def advance(self, candidates: Sequence[Sequence[tuple[int, float]]]) -> Step:
        """`candidates[i]`: the likeliest next tokens of live hypothesis i (fork i of the last step) with their log-probabilities, which
        fall; beam_width + max(1, len(stop_ids)) of each suffice for an exact search. Candidates of -inf are impossible and ignored.

        Raises ValueError if the search is done, and unless there is one list of candidates for each live hypothesis.
        """
        if not self._live:
            raise ValueError("the search is over: it has no live hypothesis left to continue")
        if len(candidates) != len(self._live):
            raise ValueError(f"{len(self._live)} live hypotheses need as many lists of candidates, not {len(candidates)}")
        forks, finished = self._split(self._ranked(candidates))
        self._ended = sorted([*self._ended, *finished], key=lambda each: -each.score)[: self._beam_width]
        self._live = tuple(self._extended(fork) for fork in forks)
        done = not self._live or self._can_stop()
        if done:
            forks, self._live = [], ()
        return Step(tuple(forks), tuple(finished), done)

    def best(self, num: int) -> list[Hypothesis]:
        """The `num` best-scored hypotheses that have ended so far, best first; fewer if fewer have ended."""
        return self._ended[:num]

    def _ranked(self, candidates: Sequence[Sequence[tuple[int, float]]]) -> Iterator[Fork]:
        """The continuations that can matter, likeliest first; ties go to the earlier parent, then to its earlier candidate. Only as many
        are made as are taken, and one of each parent."""
        return merge(*[self._of_use(parent, row) for parent, row in enumerate(candidates)], key=lambda fork: -fork.cumulative_logprob)

    def _of_use(self, parent: int, row: Sequence[tuple[int, float]]) -> Iterator[Fork]:
        """Of one hypothesis's candidates those that are possible, less those that would end it and have too many before them for that."""
        total = self._live[parent].cumulative_logprob
        for place, (token, logprob) in enumerate(row):
            if logprob != float("-inf") and (place < self._beam_width or token not in self._stop_ids):
                yield Fork(parent, token, logprob, total + logprob)

    def _split(self, ranked: Iterable[Fork]) -> tuple[list[Fork], list[Hypothesis]]:
        """The forks that live on, and the hypotheses that end."""
        live: list[Fork] = []
        ended: list[Hypothesis] = []
        is_last = self._live[0].length + 1 == self._max_tokens
        for place, fork in enumerate(ranked):
            if place >= self._beam_width and (is_last or len(live) == self._beam_width):
                break
            stopped = fork.token in self._stop_ids
            if not stopped and not is_last:
                live.append(fork)
            elif place < self._beam_width:
                ended.append(self._hypothesis(fork, "stop" if stopped else "length"))
        return live, ended

    def _hypothesis(self, fork: Fork, finish_reason: str) -> Hypothesis:
        ended = self._extended(fork)
        return Hypothesis(ended, self._score(ended), finish_reason, fork.parent)

    def _extended(self, fork: Fork) -> Path:
        parent = self._live[fork.parent]
        return Path(parent, fork.token, fork.logprob, fork.cumulative_logprob, parent.length + 1)

    def _score(self, path: Path) -> float:
        return path.cumulative_logprob / float(path.length**self._length_penalty)

    def _can_stop(self) -> bool:
        """Whether the search is done although some hypotheses are live."""
        if len(self._ended) < self._beam_width:
            return False
        return self._early_stopping or self._score(self._live[0]) <= self._ended[-1].score
