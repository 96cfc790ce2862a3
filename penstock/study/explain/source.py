"""Where a case comes from: a running server that is asked, or the report of a `penstock bench`."""
import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, get_type_hints

from penstock.compute.fitted import Fitted
from penstock.core.amount import MOST, above_zero, amount
from penstock.core.catalogue.part import Part
from penstock.core.config import MAX_THREADS, EngineConfig
from penstock.core.errors import PenstockError, RequestError, UsageError
from penstock.core.hardware import Hardware, hardware_of
from penstock.core.modelspec import DTYPE_BYTES
from penstock.core.slo import NO_OBJECTIVES, Objectives
from penstock.core.work import StepTimer
from penstock.serve.engine import build
from penstock.serve.engine import state as stated
from penstock.serve.engine.binding import limit_of
from penstock.study.explain.arrivals import as_they_came
from penstock.study.explain.calibrations import Calibrations
from penstock.study.explain.case import Case, Form, Forms
from penstock.study.explain.learn import Span, Steps, error, learn, steps_of, told_apart
from penstock.study.explain.observed import Observed, answered, observed
from penstock.study.explain.predict import Way, play
from penstock.study.explain.traffic import Traffic, known_users, traffic_of
from penstock.study.explain.trust import counted
from penstock.study.measure.client.connections import reason, tcp
from penstock.study.measure.client.http import BadAnswer
from penstock.study.measure.client.openai import Wish
from penstock.study.measure.client.precise import new_loop
from penstock.study.measure.client.server import Access, Server
from penstock.study.measure.client.target import Stopwatch
from penstock.study.measure.counters import Values, began_anew, growth, values_of
from penstock.study.measure.result import FORMAT
from penstock.study.measure.slo import NAMES, Slo
from penstock.study.plan.model import Model

A_HUNDREDTH = 0.005  # of the requests, below which it would read 0 %
LEAST_STEPS = 8  # that teach something
MOST_SEATS, MOST_TOKENS = 1 << 20, 1 << 30  # of an engine
COUNTS = {"max_num_seqs": MOST_SEATS, "threads": MAX_THREADS,
          **dict.fromkeys(("max_num_batched_tokens", "block_size", "kv_tokens", "max_model_len"), MOST_TOKENS)}
OLD_S = 3600.0  # of limits, beyond which a shared machine may have changed its pace
UNATTAINABLE = "slo_unattainable"  # the code of an error
EVERYBODY = "none"  # are admitted: decide/scheduler/admission
MOST_TIMES = 8  # of the present rows of a step: as far as levers go
TURNS = 2  # of a user
HOST_BYTES = 8 << 20  # of the caches, that the host and whoever reads answers fill between two steps: a guess that fits brook on Zen 4
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Counters' growth over a stretch of time and since the engine's start, and what the engine says of itself (serve/engine/state.py).
    `slo`: what a good request keeps; `kept_share` of those that were not refused did. `came_per_s`: requests that came, while they did.
    `arrivals`: how, as `penstock bench` names it. `sent`: objectives that it sent with each request, None where nobody knows."""

    grown: Values
    ever: Values | None
    state: Mapping[str, Any]
    name: str
    slo: Slo | None = None
    kept_share: float | None = None
    came_per_s: float | None = None
    arrivals: str | None = None
    sent: Objectives | None = None


def ask(access: Access, seconds: float, say: Say) -> Evidence:
    """Counters' growth over so many seconds; 0: since the start. Raises PenstockError where the server is no Penstock server."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_ask(access, seconds, say))


async def _ask(access: Access, seconds: float, say: Say) -> Evidence:
    loop = asyncio.get_running_loop()
    server = Server(access, Wish(), tcp(access.address), Stopwatch(loop.time))
    name = f"{access.address.scheme}://{access.address.host_header}{access.address.root}"
    try:
        first, began = await _scrape(server, name), check_state(await server.state(), name)
        grown, state = first, began
        if seconds:
            say(f"watching {name} for {seconds:g} s")
            await asyncio.sleep(seconds)
            last = await _scrape(server, name)
            if began_anew(first, last):
                raise PenstockError(f"{name} was restarted while it was watched: try again")
            grown, state = growth(first, last), check_state(await server.state(), name)
    finally:
        await server.close()
    return Evidence(grown, first, stated.with_begin(state, began if seconds else None) or state, name)


def check_state(state: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    """Raises PenstockError for a server that tells none."""
    if state is None:
        raise PenstockError(f"{name} does not describe itself (/v1/penstock/state): it is not a Penstock server")
    return state


async def _scrape(server: Server, name: str) -> Values:
    try:
        status, body = await server.fetch("GET", "/metrics")
    except (OSError, BadAnswer, TimeoutError) as error:
        raise PenstockError(f"{name} cannot be reached: {reason(error)}") from None
    if status in (401, 403):
        raise PenstockError(f"{name} answers only to a valid key (status {status}): give one with --api-key")
    if status != 200:
        raise PenstockError(f"{name} does not show its counters: /metrics answered with status {status}")
    return values_of(body.decode("utf-8", "replace"))


def read_report(path: Path) -> Evidence:
    """Raises UsageError for a file that is no report of a Penstock engine's run."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; explain takes the URL of a running server, as http://127.0.0.1:8000, or a "
                         "report of `penstock bench --save FILE`") from None
    except ValueError:
        raise UsageError(f"{path} is no text: give what `penstock bench --save FILE` writes") from None
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"{path} {unread(text)}: give what `penstock bench --save FILE` writes") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT or not isinstance(told.get("server"), dict):
        raise UsageError(f"{path} is not a report of `penstock bench` with the counters of a server")
    if not isinstance(told.get("engine"), dict):
        raise UsageError(f"{path} does not describe its engine: it is not of a Penstock server, or older than `explain`")
    cut = told.get("cut_short")
    if isinstance(cut, dict) and cut.get("warmup_s") is not None:
        raise UsageError(f"{path} is of a run that was cut short within its warm-up, so that nothing was measured: run it again to its end")
    try:
        came = amount(told["came_per_s"]) if told.get("came_per_s") is not None and cut is None else None
    except ValueError:
        raise UsageError(f"{path} is not a report of `penstock bench`: its came_per_s is not a number from 0 on") from None
    try:
        slo, kept_share = kept_of(told.get("goodput"), told.get("requests"))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UsageError(f"{path} is not a report of `penstock bench`: its goodput has no objectives or no share that kept them") from None
    load = told["load"] if isinstance(told.get("load"), dict) else {}
    arrivals = load.get("arrivals")
    if not isinstance(arrivals, str | None):
        raise UsageError(f"{path} is not a report of `penstock bench`: its arrivals are not named")
    sent = slo.objectives if slo is not None and load.get("send_slo") is True else None
    counters = grown_of(told["server"], arrivals)
    if counters is None:
        raise UsageError(f"{path} is not a report of `penstock bench`: a counter in it is not a number from 0 on")
    return Evidence(counters, None, told["engine"], str(path), slo, kept_share, came, arrivals, sent)


def grown_of(server: Mapping[str, Any], arrivals: str | None) -> Values | None:
    """Of users who take turns, until the last of them asked for the last time, since later fewer are there; but all where they had few
    turns by then, of which the first, when all came at once, is no measure. None where a counter is none."""
    counters, while_sent = server.get("counters"), server.get("counters_while_sent")
    for each in (counters, {} if while_sent is None else while_sent):
        if not isinstance(each, dict) or not all(type(value) in (int, float) and 0 <= value < MOST for value in each.values()):
            return None
    users = known_users(arrivals)
    return while_sent if users and while_sent and answered(while_sent) >= TURNS * users else counters


def unread(text: str) -> str:
    """What is wrong with a report that is no JSON."""
    begin = text.lstrip()[:1]
    if begin == "<":
        return "is a page, as --report writes it, and no JSON"
    return "is empty" if not begin else "is JSON that is cut off or broken" if begin == "{" else "is not JSON"


def kept_of(goodput: Mapping[str, Any] | None, requests: Any) -> tuple[Slo | None, float | None]:
    """The objectives of a report, and the share that kept them of those of its requests that were not refused, which is what the counters
    and the twin are of. Raises KeyError, TypeError, ValueError or AttributeError for what is neither."""
    if goodput is None:
        return None, None
    most_s = {name.removesuffix("_s"): above_zero(seconds) for name, seconds in goodput["slo"].items()}
    if strange := most_s.keys() - NAMES.keys():
        raise ValueError(f"there is no {', '.join(strange)}")
    kept, measured, refused = amount(goodput["kept_share"]["value"]), amount(requests["measured"]), amount(requests["refused"])
    return Slo(most_s), min(1.0, kept * measured / (measured - refused)) if measured > refused else None


def case_of(told: Evidence, parts: Mapping[str, Part], notes: list[str]) -> Case:
    """`notes` gains what is missing. Raises PenstockError where counters or state do not suffice."""
    state = told.state
    if state.get("format") != stated.FORMAT:
        raise PenstockError(f"{told.name} describes itself in format {state.get('format')}, not {stated.FORMAT}: it is of another version")
    try:
        config, limits, model = config_of(state["config"]), state["limits"], state["model"]
        hardware = None if limits is None else hardware_of(limits)
        weights, kv_bytes = int(amount(model["weight_bytes"])), amount(model["kv_bytes_per_token"])
        free = amount(state["free_memory_bytes"])
        age_s = None if hardware is None else apart_s(hardware.measured, state.get("at", ""))
        begin = steps_of(state.get(stated.AT_BEGIN, []), model["windows"])
        steps, earlier = told_apart(steps_of(state["steps"], model["windows"]), begin)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PenstockError(
            f"{told.name} describes itself in a way that cannot be read ({error}): it is of another version, or was changed") from None
    seen = replace(observed(told.grown, told.ever), kept_share=told.kept_share)
    seen = replace(seen, objectives=objectives_of(told, seen, config, notes))
    if age_s is not None and age_s > OLD_S:
        notes.append(
            f"the limits of the engine's machine were measured {span_told(age_s)} before this was observed, which misleads where its speed "
            "changes, as on a shared machine: measure again with `penstock limits --fresh`, then restart the server")
    forms, form = forms_of(config, hardware, seen.step_kv_bytes + HOST_BYTES, notes)
    traffic = traffic_of(seen, told.came_per_s, told.arrivals)
    calibrations = Calibrations(config, steps, notes)
    timer = timer_of((steps, earlier), lambda: calibrations.of(config), form, seen, Span(
        MOST_TIMES * max(config.max_num_batched_tokens, config.max_num_seqs), MOST_TIMES * config.max_num_seqs,
        traffic.prompt.mean + traffic.output.mean / 2, traffic.prompt.mean), notes)
    way, came = who_came(Way(config, timer, seen.drafted), traffic, seen, told, notes)
    if seen.refused_share:
        notes.append(refused_told(seen.refused_share, bool(seen.objectives and seen.late_ratio) and way.config.admission != EVERYBODY))
    return Case(
        way, came, seen, limit_of(seen.tally), weights, kv_bytes, free, forms, form, calibrations.of, parts, told.slo,
        doubts_of(hardware))


def doubts_of(hardware: Hardware | None) -> tuple[str, ...]:
    """What follows where the limits of the engine's machine are in doubt, in a sentence."""
    if hardware is None or not hardware.doubts:
        return ()
    return ("the limits of the engine's machine are in doubt, and with them what binds, what formats gain, and what steps of sizes that it "
            f"did not make take, as of larger batches and other chunks: {hardware.doubts[0]}; "
            "measure again with `penstock limits --fresh` while nothing else runs there, then restart the server",)


def who_came(way: Way, traffic: Traffic, seen: Observed, told: Evidence, notes: list[str]) -> tuple[Way, Traffic]:
    """How the twin serves, and whom. It refuses none where that cannot be played: of lengths that are drawn some may be longer than any
    that the engine let in, and how soon a user asks again who was refused is not known. Raises PenstockError for other requests that
    cannot be played."""
    patient = replace(way, config=replace(way.config, admission=EVERYBODY))
    if traffic.closed and seen.bounded:
        notes.append("some requests were refused for their objectives, of users who ask again: the twin refuses none, and takes those "
                     "attempts for pauses, so that what lets more in may gain more than is told")
        return patient, traffic
    known = known_users(told.arrivals) is not None or seen.bounded
    try:
        came = as_they_came(way, traffic, seen, known)
        if came.objectives and came is traffic:  # nobody has played it
            play(way, came)
        return way, came
    except RequestError as error:
        if error.code != UNATTAINABLE:
            raise
    notes.append("some requests of the twin's are too long to keep the objectives even alone, as none was that the engine let in: the twin "
                 "refuses none, and has no more than were answered")
    if traffic.users is None and traffic.crowd is None:
        traffic = replace(traffic, rate=seen.requests_per_s)
    return patient, as_they_came(patient, traffic, replace(seen, late_ratio=0.0), known)


def refused_told(refused_share: float, twin_too: bool) -> str:
    """`twin_too`: the twin refuses some itself."""
    share = f"{refused_share:.0%}" if refused_share >= A_HUNDREDTH else "less than 1%"
    twin = "the twin refuses some, too" if twin_too else "so is the twin's traffic"
    return f"{share} of the requests were refused for their objectives or for lack of room: all figures are of the others, and {twin}"


def objectives_of(told: Evidence, seen: Observed, config: EngineConfig, notes: list[str]) -> Objectives:
    """That the requests carried, where the engine works for them. Its counters tell how many carried any, not which."""
    if not seen.asking_share or not build.times_steps(config):
        return NO_OBJECTIVES
    if told.sent is not None:
        return told.sent
    carried = f"{seen.asking_share:.0%} of the requests carried objectives, which the engine served them for and the counters do not tell"
    found = NO_OBJECTIVES if told.slo is None else told.slo.objectives
    notes.append(f"{carried}: they are taken to be {found}, of all" if found else
                 f"{carried}: the twin serves all as if they had none, unless --slo gives them")
    return found


def apart_s(earlier: str, later: str) -> float | None:
    """Seconds from one moment to another, in ISO 8601; None where one of them is empty. Raises ValueError or TypeError for what is no
    moment."""
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds() if earlier and later else None


def span_told(seconds: float) -> str:
    """5 hours, 3 days."""
    days, hours = round(seconds / 86400), round(seconds / 3600)
    return counted(days, "day") if hours >= 48 else counted(hours, "hour")


def timer_of(
    timed: tuple[Steps, Steps], calibrated: Callable[[], Fitted | None], form: Form | None, seen: Observed, span: Span, notes: list[str],
) -> StepTimer:
    """The steps that the engine timed, (in the time that is explained, before), else a calibration, else the roofline. Raises
    PenstockError without any."""
    roof = None if form is None else form.roof
    steps, earlier = timed
    if steps.num_steps < LEAST_STEPS:
        steps, earlier = earlier, steps
    if steps.num_steps >= LEAST_STEPS:
        timer = learn(steps, roof, seen.host_s, span, earlier)
        more = f", and from {earlier.num_steps:,} before" if earlier.num_steps else ""
        own = f"{steps.num_steps:,} of the engine's own steps in that time, {error(timer, steps):.1%} off on average"
        notes.append(f"step times: learned from {own}{more}")
        if roof is None:
            most = max(each.sizes[:, 0].max() for each in (steps, earlier) if each.num_steps)
            notes.append(
                f"steps of more than {most:,.0f} rows were not seen; without the machine's limits (`penstock limits --fresh`) "
                "they are assumed to take no longer, so the gains of more seats or larger chunks are upper bounds")
        return timer
    if (kept := calibrated()) is not None:
        notes.append("step times: from a kept calibration of this model on this machine")
        return kept
    if roof is None:
        raise PenstockError(f"{steps.num_steps} steps were timed, and predicting others takes {LEAST_STEPS}, or the machine's limits "
                            "(`penstock limits --fresh`)")
    notes.append("step times: the roofline of the machine's measured limits, which no engine reaches")
    return roof


def forms_of(
    config: EngineConfig, hardware: Hardware | None, beside: float, notes: list[str]
) -> tuple[Forms | None, Form | None]:
    """What the model would be in other formats, where its config is found from here. `beside`: see Roof."""
    try:
        found = build.find(config)
        forms = Forms(Model(config.model, found, config.dtype), found, hardware, beside)
        form = forms.of(config)
    except PenstockError as error:
        notes.append(f"the model is not known here, so formats and other hardware are not judged: {error}")
        return None, None
    if hardware is None:
        notes.append("the limits of the engine's machine were not measured (`penstock limits`), so formats are not judged")
    if form.lacking:
        notes.append(f"the limits of the engine's machine lack the rates of products in {', '.join(form.lacking)}, so formats are not "
                     "judged: measure them there with `penstock limits --fresh`, then restart the server")
    return forms, form


def config_of(told: Mapping[str, Any]) -> EngineConfig:
    """What is known of it here. Raises TypeError or ValueError for what is no config of an engine that runs."""
    types = get_type_hints(EngineConfig)
    given = {name: value for name, value in told.items() if name in types}
    for name, value in given.items():
        if not isinstance(value, types[name]) or (isinstance(value, bool) and types[name] is not bool):
            raise TypeError(f"{name} is {value!r:.40}")
        if name in COUNTS and value is not None and not 1 <= value <= COUNTS[name]:
            raise ValueError(f"{name} is {value}, not from 1 to {COUNTS[name]:,}")
    config = EngineConfig(**given)
    if config.dtype not in DTYPE_BYTES:
        raise ValueError(f"dtype is {config.dtype!r:.40}")
    return config
