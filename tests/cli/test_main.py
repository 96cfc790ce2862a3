"""What the command line says when something is wrong, and the status it ends with."""
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from penstock import __version__
from penstock.cli import COMMANDS, run
from penstock.compute.models.load.hub import HOME
from penstock.core.errors import CapacityError, ModelError, NoModelError, OverloadedError, PenstockError, RequestError, UsageError


@pytest.mark.parametrize("args", [["nonsense"], ["--nonsense"], ["generate", "--nonsense"], ["info", "a", "b"], ["generate", "-p"],
                                  ["generate", "-p", "x", "--max-tokens", "many"]])
def test_wrong_usage_ends_with_2_and_one_sentence(penstock: Any, called: Any, args: list[str]) -> None:
    status, out, err = penstock(args)
    assert status == 2 and not out and err.startswith("error: ") and err.count("\n") == 1


def test_an_unknown_command_is_answered_with_those_that_there_are(penstock: Any) -> None:
    assert penstock(["run", "brook"])[2].endswith(f"'run'. Commands: {', '.join(COMMANDS)}\n")
    assert "'generate'" in penstock(["generat"])[2] and "tune" not in penstock(["generat"])[2]


@pytest.mark.parametrize(("error", "status"), [
    (PenstockError("it broke"), 1), (ModelError("it broke"), 1), (CapacityError("it broke"), 1), (RequestError("it broke", status=503), 1),
    (OverloadedError("it broke", 1.0), 1), (UsageError("it broke"), 2), (NoModelError("it broke"), 2), (RequestError("it broke"), 2),
    (KeyboardInterrupt(), 130),
])
def test_errors_are_one_sentence(penstock: Any, called: Any, error: Exception, status: int) -> None:
    called.fail = error
    said = penstock(["generate", "-p", "x"])
    assert said == (status, "", "error: it broke\n" if status < 3 else said[2])


@pytest.mark.parametrize("command", ["info", "generate -p x", "serve", "chat", "bench", "plan --hardware l4", "tune --slo ttft=1s"])
def test_a_model_that_there_is_none_of_is_wrong_usage_and_a_broken_one_is_not(penstock: Any, tmp_path: Path, command: str) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "empty").mkdir()
    for model, wanted in ((tmp_path / "none", 2), ("brok", 2), (tmp_path / "broken", 1), (tmp_path / "empty", 1)):
        words = command.split()
        status, out, err = penstock([words[0], str(model), *words[1:]])
        assert (status, out) == (wanted, "") and str(model) in err and len(err.splitlines()) == 1, err


@pytest.mark.parametrize(("line", "said"), [
    ("rill --propose medusa:path=NONE", "NONE/medusa.safetensors is missing"),
    ("rill --propose eagle", "rill/eagle.safetensors is missing"),
    ("rill --propose medusa:path=BROOK/medusa.safetensors", "but heads fit one model alone, here rill"),
    ("brook --propose eagle:path=BROOK/medusa.safetensors", "holds medusa heads, not those of eagle"),
    ("brook --propose medusa:heads=9", "it holds 4 heads, 9 are asked for"),
])
def test_a_file_that_is_not_what_an_option_needs_is_wrong_usage(penstock: Any, tmp_path: Path, line: str, said: str) -> None:
    places = {"NONE": str(tmp_path), "BROOK": str(Path(HOME) / "brook")}
    for name, place in places.items():
        line, said = line.replace(name, place), said.replace(name, place)
    status, out, err = penstock(["generate", *line.split(), "-p", "x"])
    assert (status, out) == (2, "") and said in err and len(err.splitlines()) == 1, err


@pytest.mark.parametrize(("line", "said"), [
    ("serve --ctx-size 512", "--ctx-size: --max-model-len does that here"),
    ("serve -c 512", "-c: --max-model-len does that here"),
    ("serve --model brook", "--model: name the model without an option: penstock serve MODEL"),
    ("generate -m brook", "-m: name the model without an option: penstock generate MODEL"),
    ("generate --file x", "--file: --prompt-file does that here"),
    ("generate --n-predict 5", "--n-predict: --max-tokens does that here"),
    ("serve --enable-prefix-caching", "--enable-prefix-caching: it is on by default; --no-prefix-cache turns it off"),
    ("serve --tensor-parallel-size 2", "--tensor-parallel-size: splitting a model over devices is not supported"),
])
def test_an_option_of_another_engine_is_answered_with_what_stands_for_it(penstock: Any, called: Any, line: str, said: str) -> None:
    assert penstock(line.split()) == (2, "", f"error: No such option: {said}\n")


def test_only_options_that_the_command_has_are_advised(penstock: Any) -> None:
    for line in ("info --tool-call-parser x", "info --enable-auto-tool-choice"):
        status, _, err = penstock(line.split())
        assert status == 2 and "--tool-parser" not in err and len(err.splitlines()) == 1
    assert penstock(["plan", "--tensor-parallel-size", "2"])[2].endswith(": --tensor-parallel does that here\n")


def test_what_is_advised_exists() -> None:
    from penstock.cli.app import build
    from penstock.cli.foreign import NAMES, SENTENCES

    commands = [get_command(build([name])).commands[name] for name in ("serve", "generate", "plan")]
    options = {flag for command in commands for parameter in command.params for flag in parameter.opts + parameter.secondary_opts}
    advised = {*NAMES.values(), *(word for said in SENTENCES.values() for word in said.split() if word.startswith("--"))}
    assert not advised - options and not options & {*NAMES, *SENTENCES}


def test_a_bug_is_named_without_a_traceback(penstock: Any, called: Any) -> None:
    called.fail = ZeroDivisionError("division by zero")
    status, _, err = penstock(["generate", "-p", "x"])
    assert status == 1 and err == "error: unexpected ZeroDivisionError: division by zero (PENSTOCK_DEBUG=1 shows where)\n"


def test_too_little_memory_is_no_bug(penstock: Any, called: Any) -> None:
    called.fail = MemoryError("std::bad_alloc")
    status, _, err = penstock(["generate", "-p", "x"])
    assert status == 1 and err.startswith("error: out of memory: ") and "--kv-tokens" in err and len(err.splitlines()) == 1


def test_debugging_shows_the_traceback(penstock: Any, called: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    called.fail = ZeroDivisionError("division by zero")
    with pytest.raises(ZeroDivisionError):
        penstock(["generate", "-p", "x"])


def test_without_a_command_it_shows_what_there_is(penstock: Any) -> None:
    status, out, err = penstock([])
    assert status == 0 and not err and "generate" in out and "serve" in out


def test_the_version_is_the_packages(penstock: Any) -> None:
    assert penstock(["--version"]) == (0, f"penstock {__version__}\n", "")


def test_ctrl_c_during_the_import_ends_as_later(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "penstock.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "penstock.cli.app", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Impatient(), *sys.meta_path])
    assert run(["info"]) == 130 and capsys.readouterr() == ("", "")


def test_ctrl_c_while_python_ends_changes_nothing() -> None:
    late = "import atexit, os, signal; atexit.register(os.kill, os.getpid(), signal.SIGINT)"
    code = f"{late}; from penstock.cli import main; main(['--version'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"penstock {__version__}\n", "")


def test_a_closed_output_changes_nothing() -> None:
    assert subprocess.run(["sh", "-c", f"exec {sys.executable} -m penstock info >&- 2>&-"]).returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a Linux device")
def test_a_server_on_whose_disk_nothing_fits_serves_all_the_same() -> None:
    code = "from penstock.cli.serve import say; say('loaded'); say('served'); import sys; print('still there', file=sys.stderr)"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "warning: stdout takes nothing more: No space left on device\nstill there\n")
