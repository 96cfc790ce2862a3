"""llama.cpp by its own benchmarks: llama-bench for one sequence, llama-batched-bench for equal requests, llama-server for mixed ones.

ik_llama.cpp has the same tools; see ik.py. A tool loads the model anew for each measurement, which is not counted.
"""
import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from versus.contest import Contestant, Entry, Measured
from versus.place import Place, questions
from versus.points import NEW, SERVED_IN, SERVED_OUT, Point
from versus.processes import said_by
from versus.served import Route, Served

FORMATS: Mapping[int, tuple[str, ...]] = {16: ("BF16",), 8: ("Q8_0",), 4: ("Q4_0", "Q4_K_M")}
COMPUTES = {16: "bf16", 8: "int8", 4: "int8"}  # rows that quantized matrices are multiplied with are quantized too
SLOTS = (16, 32)  # of the server
LONG = 1024  # tokens beyond which one repetition is enough


@dataclass(frozen=True, slots=True)
class Build:
    """Where the tools of one build lie, and its ways of saying things."""

    name: str
    folder: str  # among the rivals
    bench_flags: Mapping[str, tuple[str, ...]]  # setting -> flags of llama-bench
    batch_flags: Mapping[str, tuple[str, ...]]  # setting -> flags of llama-batched-bench
    depth_by_prompt: bool = False  # no -d: the context is that of -gp


LLAMA = Build(
    "llama.cpp", "llamacpp", {"fa": ("-fa", "on"), "no-fa": ("-fa", "off")}, {"fa": ("-fa", "on"), "no-fa": ("-fa", "off")})


class Tools:
    def __init__(self, entry: Entry, build: Build, place: Place, gguf: Path) -> None:
        self.entry = entry
        self._build = build
        self._place = place
        self._gguf = gguf

    def takes(self, point: Point) -> bool:
        tool = {"decode": "llama-bench", "prefill": "llama-bench", "streams": "llama-batched-bench"}.get(point.question)
        return tool is not None and self._place.tool(self._build.folder, tool) is not None

    def start(self) -> str:
        return self._place.version(self._build.folder)

    def measure(self, point: Point, round_number: int) -> Measured:
        if point.question == "streams":
            flags = (*self._build.batch_flags[self.entry.setting], *batch_arguments(point))
            return Measured(streams_tokens_per_s(self._said("llama-batched-bench", flags)))
        flags = (*self._build.bench_flags[self.entry.setting], *bench_arguments(point, self._build.depth_by_prompt))
        return Measured(statistics.median(samples(self._said("llama-bench", flags))))

    def end(self) -> None:
        pass

    def _said(self, tool: str, flags: tuple[str, ...]) -> str:
        path = self._place.tool(self._build.folder, tool)
        command = [str(path), "-m", str(self._gguf), "-t", str(self._place.threads), *flags]
        return said_by(command, self._place.openmp(), self._place.log(self._build.name, self.entry.format))


def bench_arguments(point: Point, depth_by_prompt: bool) -> tuple[str, ...]:
    """Of llama-bench: one row of JSON."""
    tail = ("-r", "1" if point.size > LONG else "2", "-o", "json")
    if point.question == "prefill":
        return ("-p", str(point.size), "-n", "0", *tail)
    if depth_by_prompt:
        return ("-p", "0", "-n", "0", "-gp", f"{point.depth},{NEW}", *tail)
    return ("-p", "0", "-n", str(NEW), "-d", str(point.depth), *tail)


def batch_arguments(point: Point) -> tuple[str, ...]:
    context = (SERVED_IN + SERVED_OUT) * point.size
    return ("-c", str(context), "-b", "2048", "-ub", "512", "-npp", str(SERVED_IN), "-ntg", str(SERVED_OUT), "-npl", str(point.size))


def samples(text: str) -> list[float]:
    """Tokens a second of each repetition, of the last row that llama-bench printed. Raises ValueError when there is none."""
    begin = text.find("[")
    rows = json.loads(text[begin:]) if begin >= 0 else []
    if not rows:
        raise ValueError("llama-bench printed no row")
    return [float(each) for each in rows[-1]["samples_ts"]]


def streams_tokens_per_s(text: str) -> float:
    """Output tokens a second, prompts included in the time, from the table of llama-batched-bench: | PP | TG | B | ... | T s | S t/s |.
    Raises ValueError when it has no row."""
    lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    named = [dict(zip(lines[0], line, strict=False)) for line in lines if line[0].isdigit()]
    if not named:
        raise ValueError("llama-batched-bench printed no row")
    row = named[-1]
    return int(row["TG"]) * int(row["B"]) / float(row["T s"])


def contestants(place: Place, bits: int) -> list[Contestant]:
    found = tools(LLAMA, place, bits, FORMATS[bits])
    server = place.tool(LLAMA.folder, "llama-server")
    if "mixed" not in questions(place.points) or server is None:
        return found
    for format in FORMATS[bits]:
        gguf = place.file(format)
        for slots in SLOTS if gguf is not None else ():
            entry = Entry(LLAMA.name, format, f"server np{slots}", bits, COMPUTES[bits])
            context = slots * (-(-place.max_tokens // 256) * 256)
            command = (str(server), "-m", str(gguf), "-t", str(place.threads), "-np", str(slots), "-c", str(context), "--host", "127.0.0.1")
            route = Route(
                command, place.shape.spec.vocab_size, place.version(LLAMA.folder), place.openmp(), place.log(LLAMA.name, "server", format))
            found.append(Served(entry, route, ("mixed",)))
    return found


def tools(build: Build, place: Place, bits: int, formats: tuple[str, ...]) -> list[Contestant]:
    """One for each format that the model was converted to and each setting."""
    found: list[Contestant] = []
    if not {"decode", "prefill", "streams"} & set(questions(place.points)) or place.tool(build.folder, "llama-bench") is None:
        return found
    for format in formats:
        gguf = place.file(format)
        if gguf is not None:
            entries = [Entry(build.name, format, setting, bits, COMPUTES[bits]) for setting in build.bench_flags]
            found += [Tools(entry, build, place, gguf) for entry in entries]
    return found
