"""`penstock plan MODEL --hardware NAME[,NAME]`: does a model fit hardware that need not be here, how fast would it be, at what cost."""
import dataclasses
import json as jsonlib
from dataclasses import dataclass
from typing import Any

from penstock.cli.options import option, takes
from penstock.core.errors import UsageError

WIDTH = 170  # of the table: a line that a terminal wraps can be read, one that is cut cannot
HEADINGS = ("", "hardware", "layout", "weights", "KV", "batch", "chunk", "TTFT", "TPOT", "tok/s", "$/M out", "W", "kWh/year", "bound")
NOT_GIVEN = "not given"
WORDS = ("hardware", "layout", "weights", "KV", "bound")


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The fields of study/plan/request.Request, with help."""

    model: str = option("brook", "A folder (config.json is enough), a GGUF file, a hub, bundled or well-known name such as llama-3-70b")
    hardware: str | None = option(None, "Parts to choose from, separated by commas; here: this machine; all: every one that is known")
    batch: int | None = option(None, "Requests that run at once, one after the other: one steady load")
    input: int | None = option(None, "Tokens of a prompt; default: 512")
    output: int | None = option(None, "Tokens of an answer; default: 128")
    rate: float | None = option(None, "Requests a second, which come at random")
    traffic: str | None = option(None, "A trace of Azure, BurstGPT or Mooncake: its mean lengths, and its rate unless --rate is given")
    slo: str | None = option(None, "Latency that is asked for, as ttft=200ms,tpot=50ms,e2e=10s")
    quant: tuple[str, ...] = option((), "Weight format, as name:key=value,...; may be given several times; all: none, fp8, int8, int4")
    kv_dtype: tuple[str, ...] = option((), "KV format: auto, float16, bfloat16, fp8, int8, int4; may be given several times; or all")
    dtype: str = option("auto", "Type of what is not quantized: auto (the checkpoint's), float32, bfloat16, float16")
    tensor_parallel: str | None = option(None, "Devices that a layer is divided among, or several such numbers; default: all that fit")
    pipeline_parallel: str | None = option(None, "Stages that layers are divided among, or several such numbers; default: all that fit")
    max_devices: int | None = option(None, "Devices at most; default: eight for a replica, replicas as needed")
    chunk: str | None = option(None, "Tokens of prompts in a step, or several such numbers; default: 512,2048,8192")
    prefill_split: bool = option(True, "Whether replicas that only compute prompts are considered, at a rate")
    price: str | None = option(None, "Dollars a device-hour, or NAME=DOLLARS,...; default: the catalogue's, which knows none of `here`")
    watts: str | None = option(None, "Watts of a device at full load, or NAME=WATTS,...; default: likewise")
    what_if: str | None = option(None, "Figures to replace, in SI units: memory_bandwidth=8e12,ops.bf16=2e15,link=nvlink-5,...")
    catalogue: str | None = option(None, "A folder with parts of your own: NAME.toml, links/NAME.toml")
    simulate: bool = option(True, "Whether the best rows are played through by the twin, request for request, at a rate or with a trace")
    routing: str = option("auto", "Which replica a request goes to, where the twin plays several; auto: as prompts begin alike or not")


@dataclass(frozen=True, slots=True)
class ShowOptions:
    fleet: str | None = option(None, "A TOML file of several models and the devices there are: tell who runs where")
    calibrate: bool = option(False, "First measure what steps take on this machine, in each --quant: for --hardware here, explain and tune")
    top: int = option(20, "Rows of the table")
    json: bool = option(False, "Print one JSON object as the last line")


@takes(PlanOptions, ShowOptions)
def plan(options: PlanOptions, show: ShowOptions) -> None:
    """Tell what hardware a model needs, how fast and at what cost."""
    from pathlib import Path

    from penstock.cli.progress import StatusLine
    from penstock.study.plan import request, shared

    if show.top < 1:
        raise UsageError(f"--top must be at least 1, not {show.top}")
    asked = request.Request(**{field.name: getattr(options, field.name) for field in dataclasses.fields(options)})
    if show.fleet is not None:
        with StatusLine() as status:
            placed = shared.shared(Path(show.fleet), asked, status.say)
        print(jsonlib.dumps(placed.as_json())) if show.json else tell_fleet(placed)
        return
    if show.calibrate:
        calibrate(options)
        if options.hardware is None:
            return
    with StatusLine() as status:
        found = request.plan(asked, status.say)
    if show.json:
        print(jsonlib.dumps(found.as_json()))
    else:
        tell(found, show.top)


def calibrate(options: PlanOptions) -> None:
    """Puts load on the model, in each weight format that is named, and keeps what steps take."""
    import sys

    from penstock.cli.progress import LoadingBar
    from penstock.core.config import EngineConfig
    from penstock.study.plan import request, sweep
    from penstock.study.plan.known import check_weights

    check_weights(options.model, "--calibrate")
    for quant in request.calibrated(options.quant):
        config = EngineConfig(options.model, dtype=options.dtype, quant=quant)
        with LoadingBar(f"loading {options.model}") as progress:
            found = sweep.run(config, progress.say, progress)
        for line in sweep.lines(config, found):
            print(line, file=sys.stderr)


def tell(found: Any, top: int) -> None:
    """A table, the best first; the frontier of goodput per dollar against latency is marked."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, width=max(WIDTH, Console().width))
    load = found.load
    much = f"{load.batch} at once" if load.batch else f"{load.rate:.3g} a second" if load.rate else "as many as pay"
    console.print(f"{found.model}: {found.parameters:,} parameters; {load.input:,} tokens in, {load.output:,} out, {much}"
                  + (f" ({load.told})" if load.told else ""))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in WORDS else "right", no_wrap=True)
    for number, row in enumerate(found.configurations[:top], 1):
        table.add_row(("* " if row.pareto else "") + ("~ " if row.predicted_by != "arithmetic" else "") + str(number), *cells(row))
    console.print(table)
    for number, row in enumerate(found.configurations[:top], 1):
        batch = f"; batch {row.batch:,}: {row.batch_told}" if row.batch_told else ""
        named = f"routing {row.routing}: " if row.routing else ""
        routing = f"; {named}{row.routing_told}" if row.routing_told else ""
        chunk = f"; chunk {row.chunk:,}: {row.chunk_told}" if row.chunk_told else ""
        console.print(f"{number:3} {row.reason}{batch}{chunk}{routing}", soft_wrap=True)
    if len(found.configurations) > top:
        console.print(f"... and {len(found.configurations) - top} more: --top or --json")
    console.print("* nothing is both cheaper and faster; predicted from the figures of the makers and known shares of them; `here` from "
                  "measured ones")
    unknown = [option for option, figure in (("--price", "usd_per_hour"), ("--watts", "watts"))
               if any(row.tpot_s is not None and getattr(row, figure) is None for row in found.configurations)]
    if unknown:
        console.print(f"{NOT_GIVEN}: {' and '.join(unknown)} tell it; without a price the rows go by goodput per device")
    if any(row.predicted_by != "arithmetic" for row in found.configurations):
        console.print("~ by the twin: the scheduler itself on a virtual clock, request for request")


def cells(row: Any) -> list[str]:
    layout = f"{row.devices} = " if row.replicas > 1 else ""
    apart = f"({row.prefill_replicas}P+{row.replicas - row.prefill_replicas}D)" if row.prefill_replicas else str(row.replicas)
    layout += f"{apart} x " if row.replicas > 1 else ""
    layout += f"TP{row.tensor_parallel}" + (f" PP{row.pipeline_parallel}" if row.pipeline_parallel > 1 else "")
    head = [row.hardware, layout, row.quant, row.kv_dtype]
    if row.tpot_s is None:
        return [*head, *["-"] * 8, "does not fit" if not row.fits else "too slow"]
    return [*head, str(row.batch), f"{row.chunk:,}", f"{row.ttft_s * 1e3:,.0f} ms", f"{row.tpot_s * 1e3:,.1f} ms",
            f"{row.output_tokens_per_s:,.0f}", given(row.usd_per_million_output_tokens, ".3g"), given(row.watts, ",.0f"),
            given(row.kwh_per_year, ",.0f"), row.bound]


def given(value: float | None, form: str) -> str:
    return NOT_GIVEN if value is None else format(value, form)


def tell_fleet(placed: Any) -> None:
    for each in placed.placements:
        if each.configuration is None:
            print(f"{each.model}: not placed: {each.reason}")
        else:
            where = ", ".join(f"{placed.devices[number]} {number}" for number in each.devices)
            print(f"{each.model}: {each.configuration.called} on {where}; adds {each.added_usd_per_hour:.2f} dollars an hour")
    print(f"in all {placed.usd_per_hour:.2f} dollars an hour")
