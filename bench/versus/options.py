"""The options that the benchmarks share."""
import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.config import EngineConfig
from penstock.core.errors import UsageError
from penstock.core.registry import fill, parse_pairs
from penstock.serve.engine.machine import num_cpus
from versus.arguments import RECORD, Parser, folder, listed, new_folder, one_of, said, whole
from versus.engines import check_words
from versus.ours import ALL, FILES, FORMATS
from versus.place import converted
from versus.shapes import open_shape

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


def parser(doc: str | None) -> Parser:
    made = Parser(doc)
    made.add_argument("--models", type=folder, help="folder of checkpoints and of <model>.<rival>-<format>; default: RIVALS/models")
    made.add_argument("--rivals", type=folder, help="folder with one folder per rival; default: none, only ours runs")
    made.add_argument("--engines", type=listed(one_of(ENGINES)), default=",".join(ENGINES), help="engines to run; default: %(default)s")
    made.add_argument("--threads", type=whole(), default=num_cpus(), help="threads of every engine; default: all processors")
    made.add_argument("--record", action="store_true", help=RECORD)
    measuring(made)
    return made


def measuring(made: Parser) -> None:
    """What is asked of ours alone too."""
    made.add_argument("--model", type=listed(said),
                      help=f"models or paths, comma-separated; default: those of {','.join(MODELS)} that are found")
    made.add_argument("--formats", type=listed(one_of(ALL)),
                      help=f"weight formats of ours, and so the bit widths of the rivals, or GGUF files that llama.cpp reads too; "
                           f"default: {','.join(FORMATS)}, and those of {','.join(FILES)} that are found")
    made.add_argument("--rounds", type=whole(), default=5, help="rounds in which each measures each point once; default: %(default)s")
    made.add_argument("--deep-rounds", type=whole(), default=1,
                      help="rounds of decode beyond 4,096 tokens of context; default: %(default)s")
    made.add_argument("--ours", default="", metavar="KEY=VALUE,...", help="fields of EngineConfig, for ours to differ from the defaults")
    made.add_argument("--logs", type=new_folder, default=Path(tempfile.gettempdir()) / "penstock-bench",
                      help="folder for the engines' logs; default: %(default)s")


def options(args: argparse.Namespace) -> Options:
    """Raises UsageError for fields that EngineConfig has not."""
    models = args.models or (args.rivals / "models" if args.rivals else None)
    model = models_to_run(args.model, models)
    formats = args.formats or (*FORMATS, *(format for format in FILES if having(model, models, format)))
    return Options(
        models, args.rivals, model, tuple(formats), tuple(args.engines), args.rounds, args.deep_rounds, args.threads,
        engine_fields(args.ours), args.logs, args.record)


def check(chosen: Options) -> None:
    """Raises PenstockError for a model that there is none of, for a file that no model has, and for what ours cannot be asked for."""
    for format in FILES:
        if format in chosen.formats and not having(chosen.model, chosen.models, format):
            raise UsageError(f"--formats {format}: --models has no {' or '.join(f'{model}.llamacpp-{format}' for model in chosen.model)}")
    for model in chosen.model:
        shape = open_shape(model, chosen.models)
        for format in chosen.formats:
            found = shape
            if format in FILES:
                if (file := converted(chosen.models, model, f"llamacpp-{format}")) is None:
                    continue
                found = open_shape(str(file), None)
            given: dict[str, Any] = {"dtype": "bfloat16", **FORMATS.get(format, (0, {}))[1], **dict(chosen.ours)}
            check_words(EngineConfig(model=found.path, **given), found.found)


def models_to_run(given: list[str] | None, models: Path | None) -> tuple[str, ...]:
    """Bundled models are always found."""
    if given:
        return tuple(given)
    return tuple(name for name in MODELS if name == "brook" or (models is not None and (models / name).is_dir()))


def having(model: Sequence[str], models: Path | None, format: str) -> list[str]:
    """Those that are there as a file of this format."""
    return [each for each in model if converted(models, each, f"llamacpp-{format}") is not None]


def engine_fields(text: str) -> tuple[tuple[str, Any], ...]:
    pairs = parse_pairs(text, "--ours")
    for name, option in (("model", "--model"), ("quant", "--formats"), ("threads", "--threads")):
        if name in pairs:
            raise UsageError(f"--ours {name}={pairs[name]}: {option} says it")
    config = fill(EngineConfig, pairs, "--ours")
    return tuple((name, getattr(config, name)) for name in pairs)
