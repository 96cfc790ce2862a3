"""A plan as lines for people: a table, and under it why each row stands where it does. Every figure beside it is in the plan's JSON."""
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.study.digits import digits
from penstock.study.plan.configuration import ARITHMETIC, MEASURED, Configuration
from penstock.study.plan.degrees import listed
from penstock.study.plan.evaluate import ms
from penstock.study.plan.here import HERE
from penstock.study.plan.memory import gb
from penstock.study.plan.model import unserved
from penstock.study.plan.request import Plan
from penstock.study.wrapping import wrapped

WORDS = ("hardware", "layout", "weights/KV", "steps", "bound")  # aligned to the left
LEAVE_OUT = ("kWh/year", "W", "chunk", "tok/s", "batch")  # where the terminal is too narrow, in this order
GAP = "  "
FEW = 8  # rows that are all shown
MANY = 3  # rows with the same note: it is told once
NOT_GIVEN = "not given"
NONE = "-"
UNSERVED = "!"


@dataclass(frozen=True, slots=True)
class Table:
    """`cells` of each row by heading, all with the same headings."""

    cells: Sequence[Mapping[str, str]]

    def lines(self, headings: Sequence[str]) -> list[str]:
        widths = {heading: max(len(heading), *(len(row[heading]) for row in self.cells)) for heading in headings}

        def line(words: Mapping[str, str]) -> str:
            told = [words[each].ljust(widths[each]) if each in WORDS else words[each].rjust(widths[each]) for each in headings]
            return GAP.join(told).rstrip()

        rule = "─" * (sum(widths.values()) + len(GAP) * (len(headings) - 1))
        return [line({heading: heading for heading in headings}), rule, *(line(row) for row in self.cells)]

    def within(self, width: int | None) -> tuple[list[str], list[str]]:
        """(lines of at most so many characters, if that can be had, the headings that are left out for it)."""
        headings, left_out = list(self.cells[0]), []
        found = self.lines(headings)
        for each in LEAVE_OUT:
            if width is None or max(map(len, found)) <= width:
                break
            if each not in headings:
                continue
            headings.remove(each)
            left_out.append(each)
            found = self.lines(headings)
        return found, left_out


def lines(plan: Plan, top: int | None, width: int | None) -> list[str]:
    """`top`: rows, at most; None: those that matter. `width`: of the terminal, in characters; None: none."""
    rows = shown(plan.configurations, top)
    table, left_out = Table(empty_left_out(alike_left_out([cells(number, row) for number, row in rows.items()]))).within(width)
    unserved = not_served(list(rows.values()))
    above = [wrapped(each, width, 2) for each in (head(plan), *unserved, *plan.doubts, *unmet(plan))]
    said = [*above, "", *table, "", *(wrapped(note, width, 6) for note in notes(rows))]
    if more := len(plan.configurations) - len(rows):
        beaten = ", which something beats or which do not do what is asked" if top is None else ""
        said.append(wrapped(f"... and {more} more{beaten}: --top N shows so many, --all and --json all of them", width))
    return [*said, "", *(wrapped(each, width, 2) for each in legend(plan, list(rows.values()), left_out))]


def shown(rows: Sequence[Configuration], top: int | None) -> dict[int, Configuration]:
    """Rows by number: the first so many; None: what nothing beats, and the best of each hardware that was asked about, or all where they
    are few."""
    numbered = dict(enumerate(rows, 1))
    if top is not None or len(rows) <= FEW:
        return dict(list(numbered.items())[:top])
    first = {row.hardware: number for number, row in reversed(numbered.items())}
    return {number: row for number, row in numbered.items() if row.pareto or first[row.hardware] == number}


def head(plan: Plan) -> str:
    load = plan.load
    rate = f"{load.rate or 0:{',.0f' if (load.rate or 0) >= 100 else '.3g'}} a second"
    much = f"{load.batch:,} at once" if load.batch else rate if load.rate else "as many as pay"
    return (f"{plan.model}: {plan.parameters:,} parameters; {load.input:,} tokens in, {load.output:,} out, {much}"
            + (f" ({load.told})" if load.told else "") + (f"; {plan.dtype_told}" if plan.dtype_told else "")
            + (f"; as stored: {plan.stored}" if plan.stored else "")
            + (f"; what if {plan.what_if}: the figures are for hardware changed like this" if plan.what_if else ""))


def unmet(plan: Plan) -> list[str]:
    """Where nothing keeps the SLO, how near each objective is."""
    able = [row for row in plan.configurations if row.tpot_s is not None]
    if not plan.most_s or not able or any(row.meets_slo for row in able):
        return []
    told, far = [], []
    for name, most in plan.most_s.items():
        value, row = min(((getattr(row, f"{name}_s"), row) for row in able), key=lambda each: each[0])
        told.append(f"the least mean {name} is {ms(value)}, of {row.called}, and {ms(most)} is asked for")
        far += [told[-1]] if value > most else []
    return [f"nothing that was tried keeps the SLO: {'; '.join(far or told)}"]


def cells(number: int, row: Configuration) -> dict[str, str]:
    marks = ("* " if row.pareto else "") + ("~ " if row.predicted_by != ARITHMETIC else "")
    first = {"": f"{marks}{number}", "hardware": row.hardware, "layout": layout(row), "weights/KV": formats(row), "steps": row.steps}
    if row.ttft_s is None or row.tpot_s is None:
        figures = ("batch", "chunk", "TTFT", "TPOT", "tok/s", "$/M out", "W", "kWh/year")
        return first | dict.fromkeys(figures, NONE) | {"bound": "too slow" if row.fits else "does not fit"}
    return first | {
        "batch": f"{row.batch:,}", "chunk": f"{row.chunk:,}",
        "TTFT": f"{digits(row.ttft_s * 1e3, 2)} ms", "TPOT": f"{row.tpot_s * 1e3:,.1f} ms",
        "tok/s": f"{row.output_tokens_per_s:,.0f}",
        "$/M out": given(row.usd_per_million_output_tokens, ".3g") if row.output_tokens_per_s else NONE,
        "W": given(row.watts, ",.0f"), "kWh/year": given(row.kwh_per_year, ",.0f"), "bound": row.bound or NONE}


def alike_left_out(rows: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Without the column `steps` where it says the same in every row: the legend does then."""
    alike = len({row["steps"] for row in rows}) == 1
    return [{heading: word for heading, word in row.items() if heading != "steps" or not alike} for row in rows]


def empty_left_out(rows: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Without the columns that nobody gave a figure for, where one is given for others."""
    empty = {heading for heading in rows[0] if {row[heading] for row in rows} <= {NOT_GIVEN, NONE}
             and any(row[heading] == NOT_GIVEN for row in rows)}
    return [{heading: word for heading, word in row.items() if heading not in empty} for row in rows]


def formats(row: Configuration) -> str:
    return f"{row.quant}/{row.kv_dtype}" + (f" {UNSERVED}" if unserved(row.quant, row.kv_dtype) else "")


def marked(row: Configuration) -> str:
    """What it is called, with the mark of formats that are not served."""
    return row.called + (f" {UNSERVED}" if unserved(row.quant, row.kv_dtype) else "")


def layout(row: Configuration) -> str:
    copies = ""
    if row.replicas > 1:
        apart = f"({row.prefill_replicas}P+{row.replicas - row.prefill_replicas}D)" if row.prefill_replicas else str(row.replicas)
        copies = f"{row.devices} = {apart} x "
    return copies + row.layout


def notes(rows: Mapping[int, Configuration]) -> list[str]:
    """A line for each row, by number, then what is told of many, once."""
    number = {row.called: at for at, row in rows.items()}
    told = {at: parts(row, number) for at, row in rows.items()}
    often = [part for part, count in Counter(part for each in told.values() for part in each).items() if count >= MANY]
    single = {at: "; ".join(part for part in each if part not in often) for at, each in told.items()}
    return [f"{at:4}  {text}" for at, text in single.items() if text] + [
        f"{spans([at for at, each in told.items() if part in each]):>4}  {part}" for part in often]


def parts(row: Configuration, number: Mapping[str, int]) -> list[str]:
    """`number`: of the rows that are seen, by what they are called."""
    reason = row.reason
    if row.beside in number:
        reason = reason.replace(row.beside, f"row {number[row.beside]}")
    named = f"routing {row.routing}" if row.routing else "routing"
    times = row.times_roofline
    measured = f"a prompt takes {times['ttft']:.2g}, a token {times['tpot']:.2g} times as long as the roofline says" if times else ""
    labelled = (("edge", row.edge_told), ("measured", measured), ("batch", row.batch_told), ("chunk", row.chunk_told),
                ("replicas", row.replicas_told), (named, row.routing_told))
    return [part for part in (reason, *(f"{label}: {text}" for label, text in labelled if text)) if part]


def spans(numbers: Sequence[int]) -> str:
    """1-3, 5"""
    found: list[list[int]] = []
    for each in numbers:
        if found and each == found[-1][-1] + 1:
            found[-1].append(each)
        else:
            found.append([each])
    return ", ".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in found)


def legend(plan: Plan, rows: Sequence[Configuration], left_out: Sequence[str]) -> list[str]:
    """`rows`: that are seen."""
    said = ["* nothing that it is compared with is both cheaper and faster"]
    if any(row.predicted_by != ARITHMETIC for row in rows):
        said.append("~ played by the twin, request by request: the real scheduler on a virtual clock; rows without it are arithmetic")
    said += on_what(plan, rows)
    said += [each.said for each in plan.undivided]
    if plan.left_out:
        said.append(plan.left_out)
    said += kept_back(rows)
    unknown = {option: names for option, figure in (("--price", "usd_per_hour"), ("--watts", "watts"))
               if (names := dict.fromkeys(row.hardware for row in rows if row.tpot_s is not None and getattr(row, figure) is None))}
    if unknown:
        whose = dict.fromkeys(name for names in unknown.values() for name in names)
        said.append(f"{NOT_GIVEN}: {listed(unknown)} of {listed(whose)}"
                    + ("; rows without a price go by goodput per device" if "--price" in unknown else ""))
    if left_out:
        said.append(f"not shown in this width: {', '.join(left_out)}; a wider terminal or --json has them")
    return said


def kept_back(rows: Sequence[Configuration]) -> list[str]:
    """What a device's memory is taken to hold beside what the table is about."""
    whose: dict[str, dict[str, None]] = {}  # hardware, by gigabytes
    for row in rows:
        if row.reserved_bytes:
            whose.setdefault(gb(row.reserved_bytes), {})[row.hardware] = None
    told = [f"{much} GB" + (f" of {listed(hardware)}" if len(whose) > 1 else "") for much, hardware in whose.items()]
    return [f"an engine keeps {listed(told)} of a device for itself (context, workspaces, buffers, graphs), which is counted: "
            "--what-if reserved=BYTES gives another figure"] if told else []


def not_served(rows: Sequence[Configuration]) -> list[str]:
    """What of these rows Penstock does not serve: formats, which are marked, whole parts and layouts."""
    said = []
    if formats := dict.fromkeys(each for row in rows for each in unserved(row.quant, row.kv_dtype)):
        said.append(f"{UNSERVED} for engines that have {listed(formats)}: this one does not serve them")
    wanting: dict[str, dict[str, None]] = {}  # hardware, by the first that is lacking there
    for row in rows:
        for each in [each for each in row.unserved if each not in formats][:1]:
            wanting.setdefault(each, {})[row.hardware] = None
    return said + [f"rows of {listed(hardware)} that need {each} are for other engines: nothing in Penstock serves them yet"
                   for each, hardware in wanting.items()]


def on_what(plan: Plan, rows: Sequence[Configuration]) -> list[str]:
    """What the figures rest on: the roofline of what, or steps that were timed; and how to time the others."""
    predicted = [row for row in rows if row.steps != MEASURED]
    sources = dict.fromkeys(
        "this machine's measured limits" if row.hardware == HERE else "the makers' figures and known shares of them" for row in predicted)
    roofline = [f"roofline: steps are predicted from {', or '.join(sources)}"] if predicted else []
    if len(predicted) < len(rows):
        apart = f"; such rows of `{HERE}` are not compared with measured ones, and come after those that keep the SLO as well"
        said = ["measured: steps were timed here by --calibrate", *(each + apart for each in roofline)]
    else:
        said = roofline
    if plan.what_if and any(row.hardware == HERE for row in rows):
        said.append("with --what-if, steps that were timed here are not used: they are those of the machine as it is")
    if plan.timed_where_played:
        said.append("steps that `--calibrate` times here count only where the twin plays: give --rate or --traffic")
    if plan.calibrate:
        said.append(f"to time what was not measured, some minutes a format: {plan.calibrate}")
    return said


def given(value: float | None, form: str) -> str:
    return NOT_GIVEN if value is None else format(value, form)
