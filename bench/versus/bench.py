"""The course of every benchmark: for each model and each number of bits the engines take turns; then one table and one line of JSON."""
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from penstock.core.hardware import processor_model
from penstock.serve.engine.machine import num_cpus
from penstock.study.measure.probes import best_probe
from versus import ours, rivals
from versus.contest import Contestant, Rules, contest
from versus.meter import meter
from versus.options import Options
from versus.place import Place
from versus.points import GAP_S, Point
from versus.record import Record, keep, merged, today
from versus.rows import rows_of
from versus.shapes import open_shape
from versus.table import report

Say = Callable[[str], None]


def run(name: str, points: Sequence[Point], options: Options, say: Say) -> Record:
    """Points that a model's context does not hold are left out, and said to be."""
    parts = [part for model in options.model for part in run_model(name, model, points, options, say)]
    return merged(parts) if parts else Record(name, processor_model(), options.threads, today(), ())


def run_model(name: str, model: str, points: Sequence[Point], options: Options, say: Say) -> list[Record]:
    shape = open_shape(model, options.models)
    fitting = tuple(point for point in points if shape.holds(point))
    if len(fitting) < len(points):
        say(f"{model} holds {shape.spec.max_position} tokens, so without: {', '.join(p.name for p in points if p not in fitting)}")
    if not fitting:
        return []
    place = Place(shape, fitting, options.threads, options.logs, options.rivals, options.models, options.ours)
    rules = Rules(options.rounds, options.deep_rounds, meter(shape, best_probe(), options.threads), say)
    told = asked(points, options)
    found = []
    for bits, file in contests(place, options.formats, say):
        outcome = contest(field(place, bits, file, options), fitting, rules)
        rows = tuple(rows_of(outcome.samples, shape, file))
        failures = {f"{model}, {key}": why for key, why in outcome.failures.items()}
        found.append(Record(name, processor_model(), options.threads, today(), rows, outcome.versions, failures, told))
        if options.record:  # hours may follow, and end early
            say(f"kept in {keep(found[-1], say=say)}")
    return found


def asked(points: Sequence[Point], options: Options) -> dict[str, Any]:
    """What of the way of measuring is not as by default."""
    gap = next((point.gap_s for point in points if point.question == "mixed"), GAP_S)
    return {**({} if options.threads == num_cpus() else {"threads": options.threads}), **({} if gap == GAP_S else {"gap_s": gap}),
            **({"ours": dict(options.ours)} if options.ours else {})}


def contests(place: Place, formats: Sequence[str], say: Say) -> list[tuple[int, str]]:
    """Bits of a weight and, where engines read one GGUF file, its format."""
    found = {(ours.bits_of(format), format if format in ours.FILES else "") for format in formats}
    gone = {file for _, file in found if file and place.file(file) is None}
    if gone:
        say(f"{place.shape.model} is not there as {', '.join(sorted(gone))}, so without")
    return sorted((each for each in found if each[1] not in gone), key=lambda each: (-each[0], each[1]))


def field(place: Place, bits: int, file: str, options: Options) -> list[Contestant]:
    """Everyone who takes part at these bits: with formats of their own, or those that read this GGUF file."""
    found: list[Contestant] = []
    if "penstock" in options.engines:
        own = (format for format in options.formats if ours.bits_of(format) == bits and format not in ours.FILES)
        found += ours.contestants(place, (file,) if file else tuple(own))
    for name in options.engines:
        if name in rivals.ROSTER and place.rivals is not None:
            found += [one for one in rivals.ROSTER[name](place, bits) if file in ("", one.entry.format)]
    return found


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def conclude(record: Record) -> None:
    """Prints; the last line is JSON."""
    for line in report(record.rows, record.failures):
        print(line)
    print(json.dumps(record.as_json()))
