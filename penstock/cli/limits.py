"""`penstock limits`: this machine's measured roofline, from the cache or measured now."""
import json as jsonlib
import sys
from dataclasses import dataclass
from typing import Any

from penstock.cli.options import option, takes

SHOWN = 5  # doubts
COLOURS = {"fp32": "cyan", "bf16": "green", "int16": "magenta", "int8": "yellow"}


@dataclass(frozen=True, slots=True)
class LimitsOptions:
    threads: int | None = option(None, "Threads to measure with; default: all processors (only that result is kept)")
    fresh: bool = option(False, "Measure again, even if a result is kept")
    json: bool = option(False, "Print one JSON object as the last line")


@takes(LimitsOptions)
def limits(options: LimitsOptions) -> None:
    """Measure this machine's memory bandwidth and arithmetic rates."""
    from penstock.study.measure.now import limits_of_this_machine

    found = limits_of_this_machine(options.threads, options.fresh, say=lambda line: print(line, file=sys.stderr))
    if options.json:
        print(jsonlib.dumps(found.as_json()))
    else:
        show(found)


def show(found: Any) -> None:
    """A table and a plot."""
    from rich.console import Console
    from rich.text import Text

    from penstock.cli.terminal import columns
    from penstock.study.measure.roofline import draw
    from penstock.study.wrapping import wrapped

    width = columns(sys.stdout)
    console = Console(highlight=False, soft_wrap=True)
    count = found.processor.num_cpus
    machine = f"{found.processor.model}, {count} processor{'s' * (count > 1)}; measured {found.measured} ({found.method})"
    console.print(f"{wrapped(machine, width)}\n")
    console.print(table(found))
    console.print()
    for line in draw(found.hardware, width=width, encoding=sys.stdout.encoding):
        console.print(Text.assemble(*((cell.text, COLOURS.get(cell.dtype or "", "")) for cell in line)), no_wrap=True, crop=False)
    for doubt in doubts(found):
        console.print(wrapped(doubt, width, 2))


def doubts(found: Any) -> list[str]:
    """What says that these are not the machine's limits, and what to do."""
    if not found.doubts:
        return []
    told = [f"in doubt: {doubt}" for doubt in found.doubts[:SHOWN]]
    if len(found.doubts) > SHOWN:
        told.append(f"in doubt: {len(found.doubts) - SHOWN} more like these, all of them in --json")
    return ["", *told, "Something else seems to have run during the measurement: stop it, then measure again with penstock limits --fresh."]


def table(found: Any) -> Any:
    """Working sets and types, with one thread and with all."""
    from rich import box
    from rich.table import Table

    rows = Table(box=box.SIMPLE, show_edge=False)
    threads = found.all_threads.threads
    for heading in ("", "1 thread", f"{threads} threads") if threads > 1 else ("", "1 thread"):
        rows.add_column(heading, justify="right", overflow="fold")
    crews = (found.one_thread, found.all_threads) if threads > 1 else (found.one_thread,)
    for size in found.all_threads.read_bytes_per_s:
        rows.add_row(f"reading {size >> 20:,} MiB", *(f"{crew.read_bytes_per_s[size] / 1e9:.1f} GB/s" for crew in crews))
    rows.add_section()
    for dtype, kernel in found.kernels.items():
        rows.add_row(f"{dtype} ({kernel})", *(f"{crew.ops_per_s[dtype] / 1e9:,.0f} Gop/s" for crew in crews))
    rows.add_section()
    longest = max((point[1:] for point in found.all_threads.products), default=None)
    for form, *size in found.all_threads.products:
        if (*size,) == longest:
            told = (f"{crew.products[form, *size] / 1e9:,.0f} Gop/s" if (form, *size) in crew.products else "" for crew in crews)
            rows.add_row(f"{size[1]} rows times {form}", *told)
    return rows
