"""From a case to an explanation: the limit, then each lever with what the twin says that it gains."""
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.errors import PenstockError
from penstock.serve.engine.binding import (
    ARRIVALS,
    DECODE_COMPUTE,
    HOST_OVERHEAD,
    KV_BANDWIDTH,
    LIMITS,
    PREFILL_COMPUTE,
    WEIGHT_BANDWIDTH,
    evidence,
)
from penstock.serve.engine.tally import UNMEASURED
from penstock.study.explain.case import Case, Change, Lever
from penstock.study.explain.figures import Figures
from penstock.study.explain.predict import predict
from penstock.study.explain.traffic import OPEN
from penstock.study.explain.trust import Trust, trust_of
from penstock.study.explain.words import comes_to, lasts, relative, short, shortened

LEAST_GAIN = 0.03  # a lever that moves less is not worth its costs, nor within what the twin can tell
COMPARABLE = 0.85  # of the best speed-up: more than that is nearer to it than gains are told
NEARLY = 0.95  # of the best gain: the smallest move of a lever that has so much of it is enough
WORSE = 0.03  # of another figure: told as a cost
LEAST_GOOD = 1 / OPEN  # of all tokens: those of one request, in place of none where gains are ratios
TOKENS, GOODPUT, TTFT, TPOT, E2E = "output_tokens_per_s", "good_tokens_per_s", "ttft_s", "tpot_s", "e2e_s"  # fields of Figures
CALLED = {TOKENS: "output tokens/s", GOODPUT: "goodput in output tokens/s", TTFT: "mean TTFT", TPOT: "mean TPOT",
          E2E: "mean end-to-end time"}
RATES = (TOKENS, GOODPUT)  # more is better; of the others less
# Where requests come on their own. Whoever is answered as he comes gets as many tokens a second whatever is done, but may get them sooner.
OF_LIMIT = {PREFILL_COMPUTE: TTFT, WEIGHT_BANDWIDTH: TPOT, KV_BANDWIDTH: TPOT, DECODE_COMPUTE: TPOT, HOST_OVERHEAD: TPOT, ARRIVALS: E2E}
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Moved:
    """A lever, and what the twin says of it. `gain`: of the measure that counts here, as a speed-up less one."""

    lever: str
    change: Change
    gain: float
    figures: Figures
    costs: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {"lever": self.lever, "option": self.change.option, "gain": self.gain, "here": self.change.here,
                "lossy": self.change.lossy, "costs": list(self.costs), "source": self.change.source, "predicted": self.figures.as_json()}


@dataclass(frozen=True, slots=True)
class Explanation:
    """`measure`: the field of Figures that counts. `recommended` can be moved here, `elsewhere` not; the best first (`ranked`).
    `tried`: the best move of every lever. `unknown`: by lever, why its gain cannot be told."""

    case: Case
    measure: str
    present: Figures
    recommended: Sequence[Moved]
    elsewhere: Sequence[Moved]
    tried: Sequence[Moved]
    unknown: Mapping[str, str]
    notes: Sequence[str] = ()
    least_s: Mapping[str, float] = field(default_factory=dict)  # that what objectives are of comes to here, whatever is moved

    @property
    def at_the_limit(self) -> bool:
        """Nothing here would give more tokens a second."""
        return self.trust.lost is None and (not self.recommended or self.measure == E2E)

    @property
    def trust(self) -> Trust:
        found = trusted(self.case, self.present, self.measure)
        return replace(found, doubts=(*found.doubts, *self.case.doubts))

    @property
    def verdict(self) -> str:
        if self.trust.lost is not None:
            return self.trust.lost
        best = self._best
        if self.measure == GOODPUT and not best and not self.present.good_tokens_per_s:
            told = ", ".join(f"the least {CALLED[name]} is {short(seconds * 1e3)} ms" for name, seconds in self.least_s.items())
            return f"nothing that was tried here lets a request keep {self.case.slo}{f': {told}' if told else ''}"
        if self.case.limit.name == ARRIVALS and self.at_the_limit:
            asked = "nothing: you are at the limit of demand; more requests would be answered as they come"
            return f"{asked}, and {best}" if best else asked
        if self.case.limit.name == UNMEASURED:
            return best or "nothing that was tried helps; whether the machine could do more is not known: run `penstock limits` there"
        return best or "nothing: you are at the limit of this machine"

    @property
    def _best(self) -> str:
        """What the first lever would do; where other tokens may come of it, the first one, too, of which none do."""
        if not self.recommended:
            return ""
        first = self.recommended[0]
        plain = next((each for each in self.recommended if not each.change.lossy), first)
        told = would(first, self.measure, self.present)
        return told if plain is first else f"{told}; without any loss {would(plain, self.measure, self.present)}"

    def as_json(self) -> dict[str, Any]:
        case, limit = self.case, self.case.limit
        seen = case.seen
        return {
            "limit": limit.name, "called": LIMITS[limit.name], "sentence": limit.sentence, "share": limit.share, "reached": limit.reached,
            "evidence": evidence(seen.tally), "verdict": self.verdict, "at_the_limit": self.at_the_limit, "measure": self.measure,
            "measure_called": CALLED[self.measure],
            "slo": None if case.slo is None else {f"{name}_s": seconds for name, seconds in case.slo.most_s.items()},
            "traffic": {"told": case.traffic.told(), "users": case.traffic.users, "requests_per_s": case.traffic.rate,
                        "prompt_tokens": case.traffic.prompt.mean, "output_tokens": case.traffic.output.mean,
                        "shared": case.traffic.shared},
            "measured": {"output_tokens_per_s": seen.output_tokens_per_s, "requests_per_s": seen.requests_per_s, "ttft_s": seen.ttft_s,
                         "tpot_s": seen.tpot_s, "e2e_s": seen.e2e_s, "kept_share": seen.kept_share},
            "twin": self.present.as_json(), "twin_error": twin_error(self), "trust": self.trust.as_json(),
            "levers": [moved.as_json() for moved in self.recommended], "elsewhere": [moved.as_json() for moved in self.elsewhere],
            "tried": [moved.as_json() for moved in self.tried], "unknown": dict(self.unknown), "notes": list(self.notes),
        }


def would(moved: Moved, measure: str, present: Figures) -> str:
    """What moving it does, in words."""
    option, ratio = moved.change.called, of_measure(moved.gain, measure)
    if measure == GOODPUT and not present.good_tokens_per_s:
        return f"{option} would let {moved.figures.kept_share:.0%} of the requests keep the objectives; now none does"
    if measure in RATES:
        return f"{option} would give {comes_to(ratio)} {CALLED[measure]}"
    return f"{option} would shorten {CALLED[measure]} {shortened(ratio)}"


def of_measure(gain: float, measure: str) -> float:
    """A speed-up less one -> the new figure over the old."""
    return 1 + gain if measure in RATES else 1 / (1 + gain)


def twin_error(found: Explanation) -> float | None:
    """Of the twin's tokens a second with everything as it is, against those that were measured."""
    measured = found.case.seen.output_tokens_per_s
    return found.present.output_tokens_per_s / measured - 1 if measured else None


def trusted(case: Case, present: Figures, measure: str) -> Trust:
    return trust_of(case.seen, present, case.traffic.closed, measure, [f"{name}_s" for name in (case.slo.most_s if case.slo else ())])


def explain(case: Case, levers: Mapping[str, Lever], notes: Iterable[str] = (), say: Say = lambda line: None) -> Explanation:
    """Raises PenstockError where the twin cannot play the traffic as it is."""
    present = predict(case.way, case.traffic, case.slo)
    measure = measure_of(case)
    lost = trusted(case, present, measure).lost is not None
    moved, here = [], [present]
    unknown = {}
    for name, lever in ({} if lost else levers).items():
        say(f"the twin tries {name}")
        reason = lever.unknown(case)
        if reason is not None:
            unknown[name] = reason
        moves = list(tried(name, lever, case, present, measure))
        here += [each.figures for each in moves if each.change.here]
        moved += rising(moves) if lever.each else best_moves(moves)
    good = ranked(needed([each for each in moved if each.gain >= LEAST_GAIN]))
    return Explanation(
        case, measure, present, [each for each in good if each.change.here], [each for each in good if not each.change.here], moved,
        unknown, tuple(notes), {f"{name}_s": min(read(each, f"{name}_s") for each in here)
                                for name in (case.slo.most_s if case.slo is not None else ()) if f"{name}_s" in CALLED})


def needed(moves: Sequence[Moved]) -> list[Moved]:
    """Those of which no part, moved alone, gains about as much."""
    return [each for each in moves
            if not any(options(other) < options(each) and other.gain >= each.gain * NEARLY for other in moves)]


def options(moved: Moved) -> set[str]:
    """Their names, without values."""
    return {part.split()[0] for part in moved.change.option.split("--") if part.strip()}


def ranked(moves: Sequence[Moved]) -> list[Moved]:
    """By gain, but of those that gain about as much what changes answers least comes first."""
    most = max([1 + each.gain for each in moves], default=1.0)
    return sorted(moves, key=lambda each: (
        (0, each.change.drift, -each.gain) if 1 + each.gain >= COMPARABLE * most else (1, 0.0, -each.gain)))


def measure_of(case: Case) -> str:
    """What counts. Of a crowd it is the waiting, whatever steps are bound by."""
    if case.slo is not None:
        return GOODPUT
    if case.traffic.closed and not case.traffic.thinking:
        return TOKENS
    return TTFT if case.traffic.crowd is not None else OF_LIMIT.get(case.limit.name, TTFT)


def tried(name: str, lever: Lever, case: Case, present: Figures, measure: str) -> Iterable[Moved]:
    for change in lever.changes(case):
        try:
            found = predict(change.way, case.traffic, case.slo)
        except PenstockError:
            continue  # the traffic cannot be served so
        yield Moved(name, change, gain(found, present, measure), found, (*change.costs, *worse(found, present)))


def rising(moves: Sequence[Moved]) -> list[Moved]:
    """Those that gain more than any that costs less."""
    found: list[Moved] = []
    for each in moves:
        if all(each.gain * NEARLY > other.gain for other in found):
            found.append(each)
    return found


def best_moves(moves: Sequence[Moved]) -> list[Moved]:
    """The smallest of those that gain about the most, here and elsewhere."""
    best = []
    for here in (True, False):
        able = [each for each in moves if each.change.here is here]
        if able:
            most = max(each.gain for each in able)
            best.append(next(each for each in able if each.gain >= most * NEARLY or each.gain == most))
    return best


def gain(found: Figures, present: Figures, measure: str) -> float:
    """A speed-up less one: of rates the new over the old, of times the old over the new."""
    new, old = read(found, measure), read(present, measure)
    if measure == GOODPUT:
        old = max(old, LEAST_GOOD * present.output_tokens_per_s)
    if not new or not old:
        return 0.0
    return (new / old if measure in RATES else old / new) - 1


def worse(found: Figures, present: Figures) -> list[str]:
    """What the change makes worse, in words."""
    told = []
    for name, called in (*CALLED.items(), ("ttft_p99_s", "p99 TTFT")):
        new, old = read(found, name), read(present, name)
        ratio = new / old if old else 1.0
        if (1 - ratio if name in RATES else ratio - 1) > WORSE:
            told.append(f"{called} {relative(ratio) if name in RATES else lasts(ratio)}")
    return told


def read(found: Figures, measure: str) -> float:
    value: float = getattr(found, measure)
    return value
