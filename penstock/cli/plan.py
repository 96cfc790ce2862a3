"""`penstock plan MODEL --hardware NAME[,NAME]`: does a model fit hardware that need not be here, how fast would it be, at what cost."""
import dataclasses
import json as jsonlib
from dataclasses import asdict, dataclass
from typing import Any

from penstock.cli.options import option, takes
from penstock.core.errors import UsageError

MEASURED = ("model", "quant", "dtype")  # what the engine that --calibrate times is made of
QUANTS = ("none", "fp8", "int8", "int4")  # those of study/plan/request.py, which takes long to import


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The fields of study/plan/request.Request, with help; its own default where no model is given."""

    model: str | None = option(
        None, "A folder, a config.json, a GGUF file, or a hub, bundled or well-known name like llama-3-70b; default: brook")
    hardware: str | None = option(None, "Hardware to choose from, separated by commas; here: this machine; all: everything that is known")
    batch: int | None = option(None, "Requests that run at once, each followed by the next: a steady load")
    input: int | None = option(None, "Tokens per prompt; default: 512")
    output: int | None = option(None, "Tokens per answer; default: 128")
    rate: float | None = option(None, "Requests per second, arriving at random")
    traffic: str | None = option(None, "A trace of Azure, BurstGPT or Mooncake, for its mean lengths, and its rate unless --rate is given")
    slo: str | None = option(None, "Latency to meet, as ttft=200ms,tpot=50ms,e2e=10s")
    quant: tuple[str, ...] = option(
        (), "Weight format, as name:key=value,..., or stored (a quantized checkpoint's); repeatable; or all", choices=QUANTS)
    kv_dtype: tuple[str, ...] = option((), "KV format: auto, float32, float16, bfloat16, fp8, int8, int4; repeatable; or all")
    dtype: str = option("auto", "Type of everything not quantized: auto (the checkpoint's), float32, bfloat16, float16")
    tensor_parallel: str | None = option(None, "Devices to split each layer over: a number, or some with commas; default: all that fit")
    pipeline_parallel: str | None = option(None, "Stages to split the layers into: a number, or some with commas; default: all that fit")
    expert_parallel: str | None = option(None, "Of --tensor-parallel devices, those to deal a mixture's experts to; default: 1 and all")
    max_devices: int | None = option(None, "Most devices to use; default: eight per replica, and as many replicas as needed")
    chunk: str | None = option(None, "Prompt tokens per step: a number, or some with commas; default: 512,2048,8192")
    prefill_split: bool = option(True, "Consider replicas that only compute prompts (with a rate)")
    price: str | None = option(None, "Dollars per device-hour, or NAME=DOLLARS,...; default: the catalogue's, which has none for `here`")
    watts: str | None = option(None, "Watts per device at full load, or NAME=WATTS,...; default: likewise")
    what_if: str | None = option(None, "Figures to override, in SI units: memory_bandwidth=8e12,ops.bf16=2e15,link=nvlink-5,...")
    catalogue: str | None = option(None, "A folder with your own hardware: NAME.toml, links/NAME.toml")
    simulate: bool = option(True, "Let the twin replay the best rows request by request (with a rate or a trace)")
    routing: str = option("auto", "Which replica gets a request, where the twin plays several (auto: by whether prompts begin alike)")


@dataclass(frozen=True, slots=True)
class ShowOptions:
    fleet: str | None = option(None, "A TOML file of several models and the available devices: show which model runs where")
    calibrate: bool = option(False, "First measure step times on this machine, in each --quant, for --hardware here, explain and tune")
    top: int | None = option(None, "Rows to show; default: those that nothing beats, and the best of each hardware")
    all: bool = option(False, "Show every row")
    json: bool = option(False, "Print one JSON object as the last line")


@takes(PlanOptions, ShowOptions)
def plan(options: PlanOptions, show: ShowOptions) -> None:
    """Predict the hardware, speed and cost of serving a model."""
    from pathlib import Path

    from penstock.cli.progress import StatusLine
    from penstock.study.plan import request, shared

    if show.top is not None and show.top < 1:
        raise UsageError(f"--top must be at least 1, not {show.top}")
    if show.top is not None and show.all:
        raise UsageError(f"--all shows every row, --top {show.top} only some: give one of them")
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    if options.model is None:
        del given["model"]
    asked = request.Request(**given)
    if show.fleet is not None:
        check_fleet(options, show)
        with StatusLine() as status:
            placed = shared.shared(Path(show.fleet), asked, status.say)
        print(jsonlib.dumps(placed.as_json(), allow_nan=False)) if show.json else tell_fleet(placed)
        return
    if show.calibrate:
        if options.hardware is None:
            check_alone(options, show)
        else:
            request.check_here(asked)
        timed = calibrate(asked)
        if options.hardware is None:
            if show.json:
                print(jsonlib.dumps({"model": asked.model, "calibrations": timed}, allow_nan=False))
            return
    with StatusLine() as status:
        found = request.plan(asked, status.say)
    if show.json:
        print(jsonlib.dumps(found.as_json(), allow_nan=False))
    else:
        tell(found, len(found.configurations) if show.all else show.top)


def check_fleet(options: PlanOptions, show: ShowOptions) -> None:
    """Raises UsageError for what says nothing beside --fleet."""
    if options.model is not None:
        raise UsageError(f"--fleet {show.fleet} names the models, so {options.model} is one too many: leave it out, or add it to the file")
    for name in ("calibrate", "top", "all"):
        if getattr(show, name) != getattr(ShowOptions(), name):
            raise UsageError(f"--{name} is for a plan of one model, and --fleet plans several: leave one of them out")


def check_alone(options: PlanOptions, show: ShowOptions) -> None:
    """Raises UsageError for what only a plan takes, where --calibrate is asked for without one."""
    given = [name for name in asdict(options) if name not in MEASURED and getattr(options, name) != getattr(PlanOptions(), name)]
    given += [name for name in ("top", "all") if getattr(show, name) != getattr(ShowOptions(), name)]
    if given:
        name = given[0].replace("_", "-")
        raise UsageError(f"--{name} is for a plan, and --calibrate without --hardware makes none: add --hardware here, or leave it out")


def calibrate(asked: Any) -> dict[str, Any]:
    """Puts load on the model of a Request, in each weight format that it names, and keeps what steps take -> that, by format."""
    import sys

    from penstock.cli.progress import LoadingBar
    from penstock.study.plan import request, sweep
    from penstock.study.plan.known import check_weights

    check_weights(asked.model, "--calibrate")
    timed = {}
    for quant, config in request.calibrated(asked).items():
        try:
            with LoadingBar(f"loading {asked.model}") as progress:
                found = sweep.run(config, progress.say, progress)
        except KeyboardInterrupt:
            print("interrupted: run the same command again to continue from here", file=sys.stderr)
            raise
        for line in sweep.lines(config, found):
            print(line, file=sys.stderr)
        timed[quant] = found.as_json()
    return timed


def tell(found: Any, top: int | None) -> None:
    """A table as wide as the terminal, the best first, and why; elsewhere as wide as it takes."""
    import sys

    from penstock.cli.terminal import columns
    from penstock.study.plan import text

    print("\n".join(text.lines(found, top, columns(sys.stdout))))


def tell_fleet(placed: Any) -> None:
    from penstock.study.plan.text import marked, not_served

    for line in not_served([each.configuration for each in placed.placements if each.configuration is not None]):
        print(line)
    for each in placed.placements:
        if each.configuration is None:
            print(f"{each.model}: not placed: {each.reason}")
        else:
            where = ", ".join(f"{placed.devices[number]} {number}" for number in each.devices)
            print(f"{each.model}: {marked(each.configuration)} on {where}; adds {each.added_usd_per_hour:.2f} dollars an hour")
    for line in dict.fromkeys(f"{model}: {each.said}" for model, each in placed.undivided):
        print(line)
    print(f"total: {placed.usd_per_hour:.2f} dollars an hour")
