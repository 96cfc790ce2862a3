"""Every field of a configuration is one option; flags override the file, and nothing unknown is let through."""
import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from penstock.cli import COMMANDS
from penstock.cli.app import build
from penstock.cli.bench import BenchOptions
from penstock.cli.fields import HELP, TABLES
from penstock.cli.options import THREAD_VARIABLES, option, options_of, takes
from penstock.cli.plan import PlanOptions
from penstock.cli.train_heads import TrainHeadsOptions
from penstock.core.config import EngineConfig, ServerConfig


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(text: str) -> str:
        path = tmp_path / "options.toml"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize("kind", HELP)
def test_every_field_has_help_and_nothing_else_does(kind: type) -> None:
    assert list(HELP[kind]) == [field.name for field in dataclasses.fields(kind)]


@pytest.mark.parametrize(("command", "kinds"), [
    ("serve", (EngineConfig, ServerConfig)), ("chat", (EngineConfig,)), ("info", (EngineConfig,)),
], ids=["serve", "chat", "info"])
def test_help_shows_every_option(penstock: Any, command: str, kinds: tuple[type, ...]) -> None:
    status, out, _ = penstock([command, "--help"])
    flags = {f"--{field.name.replace('_', '-')}" for kind in kinds for field in dataclasses.fields(kind)} - {"--model"}
    assert status == 0 and flags <= set(out.replace(",", " ").split())


def test_help_lists_the_plugins(penstock: Any) -> None:
    _, out, _ = penstock(["serve", "--help"])
    known = {option.name: option for kind in (PlanOptions, EngineConfig, ServerConfig, TrainHeadsOptions, BenchOptions)
             for option in options_of(kind)}
    for name in TABLES:
        option = known[name]
        assert ": " in option.help and (option.default is None or option.default in option.help)
    shown = " ".join(out.split())
    assert "lru, lfu, slru" in shown and "phi4_mini, pythonic, qwen3_coder" in shown and "think, harmony, mistral" in shown


def test_help_lists_the_options_of_the_plugins(penstock: Any) -> None:
    _, out, _ = penstock(["serve", "--help"])
    shown = " ".join(out.partition("--propose options, as name:key=value,...")[2].split())
    assert "ngram n=4, least=2, k=8" in shown and "eagle path=none, k=8" in shown
    assert "typical epsilon=0.09, delta=0.3" in shown.partition("--accept options")[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented(penstock: Any, command: str) -> None:
    _, out, _ = penstock(["--help"])
    line = next(line for line in out.splitlines() if line.split()[:1] == [command])
    assert len(line.split()) > 3 and not line.endswith("...")


def test_flags_override_the_file(penstock: Any, called: Any, file: Any) -> None:
    path = file("""
        model = "rill"
        prompt = "from the file"
        max-num-seqs = 4
        block_size = 8
        prefix_cache = false
        stop = ["x"]
        temperature = 0
    """)
    status, _, err = penstock(["generate", "--config", path, "--block-size", "32", "--prefix-cache"])
    assert (status, err) == (0, "")
    assert called.engine == EngineConfig(model="rill", max_num_seqs=4, block_size=32, prefix_cache=True)
    assert called.prompts == ["from the file"] and called.params[0].stop == ("x",) and called.params[0].temperature == 0.0


@pytest.mark.parametrize("command", COMMANDS)
def test_whatever_is_on_or_off_has_a_flag_for_both(command: str) -> None:
    parameters = get_command(build([command])).commands[command].params
    switches = {each.name: each.opts + each.secondary_opts for each in parameters if getattr(each, "is_flag", False)}
    assert all(len(flags) == 2 for flags in switches.values()), switches
    assert command != "serve" or switches["no_auth"] == ["--no-auth", "--auth"]


@pytest.mark.parametrize(("flags", "ignores"), [([], True), (["--no-ignore-eos"], False), (["--ignore-eos"], True)])
def test_a_flag_turns_off_what_the_file_turns_on(penstock: Any, called: Any, file: Any, flags: list[str], ignores: bool) -> None:
    status, out, err = penstock(["generate", "-p", "x", "--config", file("ignore_eos = true\njson = true"), "--no-json", *flags])
    assert (status, out, err) == (0, "Once more\n", "") and called.params[0].ignore_eos is ignores


def test_help_tells_what_is_on_and_what_is_off(penstock: Any) -> None:
    shown = " ".join(penstock(["serve", "--help"])[1].split())
    assert "--prefix-cache / --no-prefix-cache Reuse the KV of prompt prefixes seen before; default: on." in shown
    assert "--no-auth / --auth Serve anyone without a key, even from other machines; default: off." in shown


@pytest.mark.parametrize(("flags", "proposes"), [([], "ngram"), (["--propose", "none"], None), (["--propose", "suffix"], "suffix")])
def test_a_flag_leaves_out_a_plugin_of_the_file(penstock: Any, called: Any, file: Any, flags: list[str], proposes: str | None) -> None:
    status, _, err = penstock(["generate", "--config", file('propose = "ngram"'), "--prompt", "x", *flags])
    assert (status, err) == (0, "") and called.engine.propose == proposes


@pytest.mark.parametrize("line", ["bench --requests 1 --arrivals none", "bench --dataset none"])
def test_what_may_not_be_left_out_is_not(penstock: Any, line: str) -> None:
    status, out, err = penstock(line.split())
    assert (status, out) == (2, "") and "'none'; known: " in err and len(err.splitlines()) == 1


@pytest.mark.parametrize(("text", "says"), [
    ("evitc = 'lru'", "'evitc' is not an option of penstock generate"),
    ("port = 8000", "'port' is not an option of penstock generate"),
    ("max_num_seqs = '4'", "max_num_seqs must be a whole number, not '4'"),
    ("max_num_seqs = true", "max_num_seqs must be a whole number, not True"),
    ("prefix_cache = 1", "prefix_cache must be true or false, not 1"),
    ("stop = [1]", "stop must be a list of strings, not [1]"),
    ("max-num-seqs = 4\nmax_num_seqs = 8", "max_num_seqs is given twice, with - and with _ in its name"),
    ("max_num_seqs = ", "is not TOML"),
])
def test_a_file_that_cannot_be_obeyed_is_refused(penstock: Any, called: Any, file: Any, text: str, says: str) -> None:
    status, _, err = penstock(["generate", "-p", "x", "--config", file(text)])
    assert status == 2 and says in err and called.engine is None


def test_a_command_is_named_as_it_is_typed(penstock: Any, file: Any) -> None:
    assert "'port' is not an option of penstock train-heads; it has: " in penstock(["train-heads", "--config", file("port = 1")])[2]


def test_a_missing_file_is_refused(penstock: Any, called: Any, tmp_path: Path) -> None:
    status, _, err = penstock(["generate", "-p", "x", "--config", str(tmp_path / "none.toml")])
    assert status == 2 and "No such file" in err


def test_a_file_without_a_name_is_refused(penstock: Any, called: Any) -> None:
    said = "error: --config needs the name of a file, and is empty\n"
    assert penstock(["generate", "-p", "x", "--config", ""]) == (2, "", said) and called.engine is None


def test_threads_are_told_to_the_libraries(penstock: Any, called: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, "7")
    assert penstock(["generate", "-p", "x", "--threads", "3"])[0] == 0
    assert [os.environ[name] for name in THREAD_VARIABLES] == ["3"] * len(THREAD_VARIABLES)
    assert called.engine == EngineConfig(threads=3)
    assert penstock(["generate", "-p", "x", "--threads", "0"])[0] == 2


@pytest.mark.parametrize("command", [["generate", "-p", "x"], ["info", "rill"], ["limits"], ["train-heads"]], ids=lambda each: each[0])
@pytest.mark.parametrize("threads", ["0", "1025", "2147483648"])
def test_more_threads_than_there_may_be_are_refused(penstock: Any, called: Any, command: list[str], threads: str) -> None:
    status, out, err = penstock([*command, "--threads", threads])
    assert (status, out, err) == (2, "", f"error: --threads must be from 1 to 1024, not {threads}\n") and called.engine is None


def test_a_field_without_help_is_an_error() -> None:
    @dataclasses.dataclass(frozen=True)
    class Undocumented:
        secret: int = 1

    with pytest.raises(KeyError):
        options_of(Undocumented)


def test_two_configurations_may_not_share_a_field() -> None:
    @dataclasses.dataclass(frozen=True)
    class Other:
        port: int = option(1, "Another port")

    with pytest.raises(ValueError, match="a field appears in two of ServerConfig, Other"):
        takes(ServerConfig, Other)(lambda server, other: None)
