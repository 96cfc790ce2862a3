"""The options that the benchmarks share."""
import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.config import EngineConfig
from penstock.core.errors import UsageError
from penstock.core.registry import fill, parse_pairs
from penstock.serve.engine.machine import num_cpus
from versus.ours import FORMATS

ENGINES = ("penstock", "llamacpp", "ik", "openvino", "vllm", "transformers")
MODELS = ("qwen3-0.6b", "llama-3.2-1b", "brook")


@dataclass(frozen=True, slots=True)
class Options:
    models: Path | None
    rivals: Path | None
    model: tuple[str, ...]
    formats: tuple[str, ...]
    engines: tuple[str, ...]
    rounds: int
    deep_rounds: int
    threads: int
    ours: tuple[tuple[str, Any], ...]  # fields of EngineConfig
    logs: Path
    record: bool


def parser(doc: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--models", type=Path, help="folder of checkpoints and of <model>.<rival>-<format>; default: RIVALS/models")
    made.add_argument("--rivals", type=Path, help="folder with one folder for each rival; default: none, ours alone runs")
    made.add_argument("--model", help=f"comma-separated; default: those of {','.join(MODELS)} that are found; also paths")
    made.add_argument("--formats", default=",".join(FORMATS), help="of ours, and so the bits of the rivals; default: %(default)s")
    made.add_argument("--engines", default=",".join(ENGINES), help="default: %(default)s")
    made.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    made.add_argument("--deep-rounds", type=int, default=1, help="rounds of decode beyond 4,096 tokens of context; default: %(default)s")
    made.add_argument("--threads", type=int, default=num_cpus(), help="default: all processors")
    made.add_argument("--ours", default="", metavar="KEY=VALUE,...", help="fields of EngineConfig, where ours is not to run as by default")
    made.add_argument("--logs", type=Path, default=Path(tempfile.gettempdir()) / "penstock-bench", help="default: %(default)s")
    made.add_argument("--record", action="store_true", help="keep the result in bench/results")
    return made


def options(args: argparse.Namespace) -> Options:
    """Raises UsageError for words that do not exist."""
    models = args.models or (args.rivals / "models" if args.rivals else None)
    if args.rounds < 1 or args.deep_rounds < 1:
        raise UsageError(f"--rounds {args.rounds} and --deep-rounds {args.deep_rounds} are at least 1")
    return Options(
        models, args.rivals, models_to_run(args.model, models), words(args.formats, tuple(FORMATS), "--formats"),
        words(args.engines, ENGINES, "--engines"), args.rounds, args.deep_rounds, args.threads, engine_fields(args.ours), args.logs,
        args.record)


def models_to_run(given: str | None, models: Path | None) -> tuple[str, ...]:
    """Bundled models are always found."""
    if given:
        return tuple(filter(None, given.split(",")))
    return tuple(name for name in MODELS if name == "brook" or (models is not None and (models / name).is_dir()))


def words(text: str, known: tuple[str, ...], option: str) -> tuple[str, ...]:
    found = tuple(filter(None, text.split(",")))
    for word in found:
        if word not in known:
            raise UsageError(f"{option} has no {word!r}; it has: {', '.join(known)}")
    if not found:
        raise UsageError(f"{option} names at least one of {', '.join(known)}")
    return found


def engine_fields(text: str) -> tuple[tuple[str, Any], ...]:
    pairs = parse_pairs(text, "--ours")
    config = fill(EngineConfig, pairs, "--ours")
    return tuple((name, getattr(config, name)) for name in pairs)
