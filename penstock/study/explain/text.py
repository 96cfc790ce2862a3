"""An explanation as lines for people."""
from collections.abc import Iterator

from penstock.serve.engine.binding import LIMITS, evidence
from penstock.study.explain.explanation import CALLED, GOODPUT, LEAST_GAIN, Explanation, Moved, of_measure
from penstock.study.explain.figures import Figures
from penstock.study.explain.observed import Observed
from penstock.study.explain.words import SAME, relative, short


def lines(found: Explanation) -> Iterator[str]:
    case, limit, trust = found.case, found.case.limit, found.trust
    yield f"basis      {trust.told}"
    for doubt in trust.doubts:
        yield f"doubtful   {doubt}"
    for told_too in trust.beside:
        yield f"beside     {told_too}"
    yield f"limit      {LIMITS[limit.name]}"
    yield f"           {limit.sentence}"
    for line in seen(found):
        yield f"           {line}"
    yield f"traffic    {case.traffic.told()}"
    requests = f", {short(case.seen.requests_per_s)} requests/s"
    yield f"now        {short(case.seen.output_tokens_per_s)} output tokens/s{requests}{latencies(case.seen)}"
    yield f"the twin   {figures(found.present)}"
    if case.slo is not None:
        whose = "requests that were not refused" if case.seen.refused_share else "requests"
        kept = "" if case.seen.kept_share is None else f": {case.seen.kept_share:.0%} of the {whose} kept it"
        yield f"objective  {case.slo}{kept}"
    doubtful = "doubtful, see above: " if trust.doubts and trust.lost is None else ""
    yield f"verdict    {doubtful}{found.verdict}"
    if found.recommended:
        yield f"levers     {doubtful}the twin's {CALLED[found.measure]} for this traffic: now -> with the lever"
    for moved in found.recommended:
        yield from told(moved, found)
    if found.elsewhere:
        yield f"elsewhere  {doubtful}not on this machine, or not in this engine yet: the twin's {CALLED[found.measure]}"
    for moved in found.elsewhere:
        yield from told(moved, found)
    if idle := list(without_gain(found)):
        yield f"no gain    {doubtful}{', '.join(idle)}"
    for name, reason in found.unknown.items():
        yield f"not known  {name}: {reason}"
    for note in found.notes:
        yield f"note       {note}"


def told(moved: Moved, found: Explanation) -> Iterator[str]:
    none = found.measure == GOODPUT and not found.present.good_tokens_per_s
    becomes = "from none" if none else relative(of_measure(moved.gain, found.measure))
    yield f"  {becomes:>9}  {moved.change.called}  ({moved.lever})"
    yield f"             {moves(found.present, moved.figures)}"
    if moved.costs:
        yield f"             costs: {'; '.join(moved.costs)}"
    if moved.change.source:
        yield f"             step times {moved.change.source}"


def without_gain(found: Explanation) -> Iterator[str]:
    """Each lever that was tried in vain, by its best move."""
    for moved in found.tried:
        if moved.gain < LEAST_GAIN:
            ratio = of_measure(moved.gain, found.measure)
            yield f"{moved.change.option} ({'0%' if abs(ratio - 1) < SAME else relative(ratio)})"


def seen(found: Explanation) -> Iterator[str]:
    """The evidence."""
    numbers = evidence(found.case.seen.tally)
    shares = {name.removesuffix("_share"): value for name, value in numbers.items()
              if name.endswith("_share") and not name.startswith(("waits", "busy", "idle"))}
    if shares:
        yield "of the time: " + ", ".join(
            f"{value:.0%} {name.replace('_', ' ')}" for name, value in sorted(shares.items(), key=lambda each: -each[1]) if value >= 0.005)
    yield (f"busy {numbers['busy_share']:.0%}, idle {numbers['idle_share']:.0%}; {numbers['mean_running']:.3g} run and "
           f"{numbers['mean_waiting']:.3g} wait on average, over {short(numbers['seconds'])} s")


def figures(found: Figures) -> str:
    kept = "" if found.kept_share is None else f", {found.kept_share:.0%} keep the objective"
    return f"{short(found.output_tokens_per_s)} tokens/s{latencies(found)}{kept}"


def moves(old: Figures, new: Figures) -> str:
    """What the twin has as it is, and with a lever."""
    named = (("TTFT", old.ttft_s, new.ttft_s), ("TPOT", old.tpot_s, new.tpot_s), ("e2e", old.e2e_s, new.e2e_s))
    times = "".join([f", {name} {short(before * 1e3)} -> {short(after * 1e3)} ms" for name, before, after in named if before or after])
    kept = "" if new.kept_share is None else f", {old.kept_share or 0.0:.0%} -> {new.kept_share:.0%} keep the objective"
    return f"{short(old.output_tokens_per_s)} -> {short(new.output_tokens_per_s)} tokens/s{times}{kept}"


def latencies(found: Figures | Observed) -> str:
    named = (("TTFT", found.ttft_s), ("TPOT", found.tpot_s), ("e2e", found.e2e_s))
    return "".join([f", {name} {short(value * 1e3)} ms" for name, value in named if value])
