"""What is asked of a deployment: the lengths of requests, and either how many run at once or how many come a second."""
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.core.errors import UsageError
from penstock.study.measure.datasets import azure, burstgpt, mooncake
from penstock.study.measure.datasets.jsonl import read_text
from penstock.study.measure.datasets.traces import Row

ATTAINED = 0.9  # share of the requests that an SLO is kept for (Zhong et al., "DistServe", OSDI 2024)
INPUT, OUTPUT = 512, 128  # tokens, where nothing is told
MIN_RATE = 1e-6  # requests a second: a request in twelve days, above which a clock in seconds counts microseconds
MOST = 10**15  # requests at once, and tokens of a request: sums of them are still exact as floats
MAX_HEAD = 1 << 20  # characters of a first line; Mooncake's prompts are long lists
READERS: Sequence[tuple[Sequence[str], Callable[[str, str], list[Row]]]] = (  # what the first line has, and who reads the rest
    (azure.COLUMNS, azure.read), (burstgpt.COLUMNS, burstgpt.read), ([f'"{name}"' for name in mooncake.LENGTHS], mooncake.read))


@dataclass(frozen=True, slots=True)
class Load:
    """Tokens are means over requests; `longest` is the most that one of them takes. Without batch and rate, as many run as pay."""

    input: int = INPUT
    output: int = OUTPUT
    batch: int | None = None  # requests that run at once, one after the other for ever
    rate: float | None = None  # requests a second, on their own
    longest: int = 0  # prompt and answer, in tokens; 0: as the means
    told: str = ""  # where the numbers come from

    @property
    def most_tokens(self) -> int:
        return max(self.longest, self.input + self.output)


@dataclass(frozen=True, slots=True)
class Asked:
    """As given on the command line; None: not."""

    batch: int | None = None
    input: int | None = None
    output: int | None = None
    rate: float | None = None
    traffic: str | None = None


def load_of(asked: Asked, rows: Sequence[Row] = ()) -> Load:
    """`rows`: of the trace, where there is one. Raises UsageError for numbers below 1 or past MOST, and for --batch beside --rate or
    --traffic."""
    for name in ("batch", "input", "output"):
        value = getattr(asked, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name} must be at least 1, not {value}")
        if value is not None and value > MOST:
            raise UsageError(f"--{name} must be at most {MOST:,}")
    if asked.rate is not None and not MIN_RATE <= asked.rate < float("inf"):
        raise UsageError(f"--rate must be requests a second, finite and at least {MIN_RATE:g}, not {asked.rate:g}")
    if asked.batch is not None and (asked.rate is not None or asked.traffic is not None):
        raise UsageError("--batch is a steady load of its own: give it, or --rate or --traffic, not both")
    if asked.traffic is None:
        return Load(asked.input or INPUT, asked.output or OUTPUT, asked.batch, asked.rate)
    if asked.input is not None or asked.output is not None:
        raise UsageError("--traffic sets the lengths of requests: leave out --input and --output")
    return of_trace(rows, asked.rate, asked.traffic)


def of_trace(rows: Sequence[Row], rate: float | None, name: str) -> Load:
    """`rate`: instead of the trace's own."""
    whole = [row for row in rows if row.num_prompt > 0 and row.num_output > 0]
    seconds = whole[-1].at_s - whole[0].at_s if whole else 0.0
    if not seconds:
        raise UsageError(f"{name} has {len(whole):,} with a prompt and an answer of {len(rows):,} requests; a trace needs two, at "
                         "different times, also where --rate says how fast they come")
    own = (len(whole) - 1) / seconds
    if own < MIN_RATE:
        raise UsageError(f"{name} has {own:.3g} requests a second; a rate is planned for from {MIN_RATE:g} on")
    told = f"{name}: {len(whole):,} requests, {own:.3g} a second on average" + (f", taken at {rate:g}" if rate is not None else "")
    return Load(
        max(1, round(statistics.fmean(row.num_prompt for row in whole))), max(1, round(statistics.fmean(row.num_output for row in whole))),
        None, own if rate is None else rate, max(row.num_prompt + row.num_output for row in whole), told)


def within_context(rows: Sequence[Row], load: Load, context: int, rate: float | None) -> tuple[Sequence[Row], Load]:
    """A trace and its load without the requests that take more tokens than a model's context, since a server refuses these; the others come
    when they came, or at the `rate` that was asked for. Where fewer than two would be left, all of them, with a word of that."""
    fitting = [row for row in rows if row.num_prompt + row.num_output <= context]
    times = {row.at_s for row in fitting if row.num_prompt > 0 and row.num_output > 0}
    if len(fitting) == len(rows):
        return rows, load
    told = f"{load.told}; {len(rows) - len(fitting):,} that take more than the model's context of {context:,} tokens are"
    if len(times) < 2:
        return rows, replace(load, told=f"{told} too many to be left out")
    left = of_trace(fitting, rate, "what fits the model's context")
    leaves = "" if rate is not None else f", which leaves {left.rate:.3g} a second"
    return fitting, replace(left, told=f"{told} left out{leaves}")


def read_trace(path: str) -> list[Row]:
    """A trace of whichever kind it is; the file is read once. Raises UsageError when it is of none, naming the line that cannot be read."""
    if not Path(path).exists():
        raise UsageError(f"there is no trace {path!r}")
    text = read_text(path, "traffic")
    head = text[:MAX_HEAD].partition("\n")[0].strip()
    if not head:
        raise UsageError(f"{path} is empty, or its first line is")
    for marks, read in READERS:
        if all(mark in head for mark in marks):
            return read(path, text)
    raise UsageError(f"{path} is no trace of Azure, BurstGPT or Mooncake: its first line is {head[:80]!r}")
