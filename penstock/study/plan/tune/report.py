"""What a search came to, for people."""
from collections.abc import Iterator, Sequence

from penstock.study.digits import digits
from penstock.study.plan.tune.outcome import Left, Outcome, up_to
from penstock.study.plan.tune.score import Score
from penstock.study.plan.tune.setting import told

RESTLESS = 1.3
LABEL, WIDTH = 16, 16
GOOD, WORK = "good/s", "tok/s work"  # what the ratios are of
FIGURES = ("kept", "answered", "came/s", GOOD, "out tok/s", WORK, "TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99")


def lines(outcome: Outcome) -> Iterator[str]:
    yield from compared(outcome)
    if outcome.rates is not None:
        other = "tuned" if len(outcome.best) else str(outcome.rejected)
        also = f", {up_to(outcome.rates[1])} {other}" if outcome.rates[1] != outcome.rates[0] else ""
        yield f"the SLO is kept {up_to(outcome.rates[0])} with the defaults{also}; compared at {outcome.rate:.3g} requests/s"
    if outcome.gains:
        yield ""
        yield "what each option gives, against the same without it"
        for gain in outcome.gains:
            yield f"  {gain.name}={told(gain.value)}: {gain.pairs}"
    if outcome.checked:
        yield ""
        yield "what the twin expected, and what was measured"
        for each in outcome.checked:
            yield f"  {each}"
    if outcome.left:
        yield ""
        yield "left out"
        for why, alike in by_reason(outcome.left).items():
            yield f"  {', '.join(alike)}: {why}"
    if (spread := unrest(defaults(outcome))) > RESTLESS:
        yield ""
        yield (f"the defaults' own runs differ by {spread:.2g} times: something else runs on this machine, so smaller gains are not seen; "
               "a quiet machine, longer runs (--duration) and more --pairs would see them")
    yield ""
    yield from [line for line in (outcome.doubt, outcome.loss) if line is not None]
    yield outcome.sentence


def by_reason(left: Sequence[Left]) -> dict[str, list[str]]:
    """What is left out for the same reason is told together."""
    found: dict[str, list[str]] = {}
    for each in left:
        found.setdefault(each.why, []).append(each.what)
    return found


def compared(outcome: Outcome) -> Iterator[str]:
    """A table of the runs against the defaults: the pair of the middle ratio."""
    if outcome.pairs is None:
        return
    one, other = outcome.pairs.middle
    rows = [("the defaults", other), ("tuned" if len(outcome.best) else "the best other", one)]
    ratios = {GOOD: digits(outcome.pairs.goodput.median) if one.kept and other.kept else "", WORK: digits(outcome.pairs.cost.median)}
    yield line("", *[name for name, _ in rows], "ratio")
    for name, *values in zip(FIGURES, *(figures(score) for _, score in rows), strict=True):
        yield line(name, *values, ratios.get(name, ""))
    yield "came/s: requests a second while they arrived; random arrivals can be more or fewer than the rate asked for"
    if not outcome.pairs.has_middle:
        yield f"a pair near the middle of {len(outcome.pairs.scores)} is shown, and the median of all ratios"


def defaults(outcome: Outcome) -> list[Score]:
    """Their runs beside the best other, or all where it did not come to that."""
    if outcome.pairs is not None:
        return [other for _, other in outcome.pairs.scores]
    return [run for each in outcome.checked if not len(each.setting) for run in each.runs]


def unrest(scores: Sequence[Score]) -> float:
    """How far runs of the same settings lie apart in what their engine got done."""
    speeds = [max(score.tokens_per_busy_s, 1e-9) for score in scores]
    return max(speeds, default=1.0) / min(speeds, default=1.0)


def line(label: str, *cells: str) -> str:
    return f"{label:{LABEL}}{''.join(f'{cell:>{WIDTH}}' for cell in cells)}".rstrip()


def figures(score: Score) -> tuple[str, ...]:
    """In the order of FIGURES."""
    latencies = (score.ttft_p50_s, score.ttft_p99_s, score.tpot_p50_s, score.tpot_p99_s)
    shown = ["-" if value is None else f"{value * 1000:,.1f} ms" for value in latencies]
    came = "-" if score.came_per_s is None else f"{score.came_per_s:.3g}"
    return (f"{score.share:.1%}", f"{score.answered / score.measured:.1%}", came, f"{score.goodput:.3g}",
            f"{score.output_tokens_per_s:,.0f}", f"{score.tokens_per_busy_s:,.0f}", *shown)
