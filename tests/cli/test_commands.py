"""The commands parse what they are told, call one function with it, and print what it found."""
import dataclasses
import io
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.core.config import EngineConfig, ServerConfig
from penstock.core.drafting import Drafting
from penstock.core.errors import RequestError
from penstock.core.types import SamplingParams
from penstock.serve.engine.ceilings import Ceilings


def test_generate_streams_text(penstock: Any, called: Any) -> None:
    status, out, err = penstock(["generate", "-p", "Tell me"])
    assert (status, out, err) == (0, "Once more\n", "")
    assert called.engine == EngineConfig() and called.prompts == ["Tell me"]


def test_generate_puts_what_was_given_over_the_models_own_parameters(penstock: Any, called: Any) -> None:
    penstock("generate rill -p x --temperature 0 --max-tokens 5 --stop a --stop b --seed 3 --ignore-eos".split())
    want = SamplingParams(temperature=0, top_p=0.9, max_tokens=5, stop=("a", "b"), seed=3, ignore_eos=True)
    assert called.params == [want] and called.engine == EngineConfig(model="rill", seed=3)


@pytest.mark.parametrize(("room", "most"), [(257, 256), (171, 170), (0, 1)])
def test_generate_takes_what_the_context_leaves_where_nothing_is_said(penstock: Any, called: Any, room: int, most: int) -> None:
    called.room = room
    for given, want in ([], most), (["--max-tokens", "500"], 500):
        penstock(["generate", "-p", "x", *given])
        assert called.params.pop().max_tokens == want


def test_generate_json_is_one_object(penstock: Any, called: Any) -> None:
    status, out, _ = penstock(["generate", "-p", "x", "--json", "--logprobs", "1"])
    said = json.loads(out)
    assert status == 0 and out.count("\n") == 1
    assert (said["text"], said["token_ids"], said["prompt_tokens"], said["completion_tokens"]) == ("Once more", [7, 8], 3, 2)
    speeds = ("ttft_s", "prefill_tokens_per_s", "decode_tokens_per_s", "mfu", "mbu")
    assert [said[name] for name in speeds] == [0.25, 80.0, 40.0, 0.5, 0.125]
    assert [(row["token_id"], row["logprob"], row["rank"]) for row in said["logprobs"]] == [(7, -0.5, 1), (8, -0.25, 1)]
    assert [top["token_id"] for top in said["logprobs"][0]["top"]] == [7, 9]


def test_generate_json_tells_what_became_of_drafts(penstock: Any, called: Any) -> None:
    names = ("drafted", "accepted", "tokens_per_pass", "draft_passes", "tokens_per_draft_pass", "acceptance")
    plain = json.loads(penstock(["generate", "-p", "x", "--json"])[1])
    assert [plain[name] for name in names] == [0, 0, None, 0, None, []]
    called.drafting = Drafting(1, 2, (1, 1), (1, 0))
    said = json.loads(penstock(["generate", "-p", "x", "--json"])[1])
    assert [said[name] for name in names] == [2, 1, 2.0, 1, 2.0, [1.0, 0.0]]


def test_generate_json_tells_how_shares_of_the_limits_are_had(penstock: Any, called: Any) -> None:
    _, _, silent = penstock(["generate", "-p", "x", "--json"])
    called.hardware = None
    status, out, err = penstock(["generate", "-p", "x", "--json"])
    assert silent == "" and status == 0 and json.loads(out) and "`penstock limits`" in err and err.count("\n") == 1


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("args", [["generate"], ["generate", "-p", "x", "--logprobs", "1"]])
def test_generate_refuses_what_it_could_not_obey(penstock: Any, called: Any, args: list[str]) -> None:
    status, out, err = penstock(args)
    assert status == 2 and not out and err.startswith("error: ") and called.engine is None


@pytest.mark.parametrize("command", [["generate"], ["generate", "-p", "x"], ["chat"]])
@pytest.mark.parametrize(("flag", "value", "said"), [
    ("--max-tokens", "-3", "--max-tokens is -3, but must be an integer of at least 1"),
    ("--temperature", "nan", "--temperature is NaN, but must be a finite number of at least 0"),
    ("--top-p", "2", "--top-p is 2.0, but must be a finite number above 0 and at most 1"),
    ("--top-k", "-5", "--top-k is -5, but must be an integer of at least -1"),
    ("--seed", str(1 << 64), f"--seed is {1 << 64}, but must be an integer from"),
    ("--stop", "", '--stop is [""], but must be a string or a list of strings, none of them empty'),
])
def test_values_that_no_model_takes_are_wrong_usage(
        penstock: Any, called: Any, command: list[str], flag: str, value: str, said: str) -> None:
    status, out, err = penstock([*command, flag, value])
    assert status == 2 and not out and err.startswith(f"error: {said}") and called.engine is None


def test_generate_refuses_numbers_of_logprobs_before_it_loads(penstock: Any, called: Any) -> None:
    status, _, err = penstock(["generate", "-p", "x", "--json", "--logprobs", "21"])
    assert status == 2 and err.startswith("error: --logprobs is 21, but must be an integer from 0 to 20") and called.engine is None


@pytest.mark.parametrize(("args", "stdin"), [(["generate", "-p", "x"], b""), (["chat"], b"x\n")])
def test_what_this_model_cannot_give_is_told_by_the_flag(
        penstock: Any, called: Any, pipe: Any, args: list[str], stdin: bytes) -> None:
    pipe(stdin)
    called.fail = RequestError("max_tokens is 9999, but the context leaves 20", param="max_tokens")
    status, _, err = penstock([*args, "--max-tokens", "9999"])
    assert (status, err) == (2, "error: --max-tokens is 9999, but the context leaves 20\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("never read"))


@pytest.mark.parametrize("args", [[], ["-p", "-"], ["-f", "-"], ["--prompt-file", "-"]])
@pytest.mark.parametrize(("data", "prompt"), [
    (b"Once upon\n", "Once upon"), (b"Once upon\r\n", "Once upon"), (b"a\r", "a\r"), (b"a\n\n", "a\n"), (b"\xc3\xa9 ", "é "),
])
def test_generate_reads_a_pipe(penstock: Any, called: Any, pipe: Any, args: list[str], data: bytes, prompt: str) -> None:
    pipe(data)
    assert penstock(["generate", "rill", *args]) == (0, "Once more\n", "")
    assert called.prompts == [prompt] and called.engine == EngineConfig("rill")


def test_generate_reads_a_terminal_that_is_asked_for_by_name(penstock: Any, called: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = io.TextIOWrapper(io.BytesIO(b"Once\n"))
    monkeypatch.setattr(typed, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", typed)
    assert penstock(["generate", "-p", "-"])[0] == 0 and called.prompts == ["Once"]


def test_generate_reads_a_file_and_no_pipe_beside_it(penstock: Any, called: Any, pipe: Any, tmp_path: Path) -> None:
    pipe(b"of the pipe")
    (tmp_path / "prompt.txt").write_text("Once\nupon\n")
    for flag in ("-f", "--prompt-file"):
        assert penstock(["generate", flag, str(tmp_path / "prompt.txt")])[0] == 0
    assert penstock(["generate", "-p", "given"])[0] == 0
    assert called.prompts == ["Once\nupon", "Once\nupon", "given"]


@pytest.mark.parametrize(("data", "args", "said"), [
    (b"", [], "there is no prompt: standard input is empty; give one with -p TEXT, as in: penstock generate brook -p"),
    (b"\n", ["-p", "-"], "there is no prompt: standard input is empty;"),
    (b"ab\xff", [], "standard input is not UTF-8: byte 2 is 0xff"),
    (b"x", ["-f", "/nowhere/at/all"], "cannot read --prompt-file /nowhere/at/all: No such file or directory"),
    (b"x", ["-f", "-", "-p", "x"], "-p TEXT and --prompt-file PATH both give a prompt"),
])
def test_generate_says_why_it_has_no_prompt(
        penstock: Any, called: Any, pipe: Any, data: bytes, args: list[str], said: str) -> None:
    pipe(data)
    status, out, err = penstock(["generate", *args])
    assert status == 2 and not out and err.startswith(f"error: {said}") and err.count("\n") == 1 and called.engine is None


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(("args", "hint"), [
    (["brook", "Once upon"], "-p, as in: penstock generate MODEL -p 'Once upon a time'"),
    (["brook"], "-p TEXT, as in: penstock generate brook -p 'Once upon a time'"),
    (["It's a fox"], """as in: penstock generate brook -p 'It'"'"'s a fox'"""),
])
def test_generate_says_where_the_text_goes(penstock: Any, called: Any, args: list[str], hint: str) -> None:
    status, out, err = penstock(["generate", *args])
    assert status == 2 and not out and hint in err and err.count("\n") == 1 and called.engine is None


def test_commands_without_text_hint_at_none(penstock: Any) -> None:
    assert "-p" not in penstock(["info", "brook", "Once upon"])[2]


@dataclasses.dataclass(frozen=True)
class Description:
    model: str = "brook"
    architecture: str = "LlamaForCausalLM"
    num_layers: int = 6
    parameters: int = 8_500_000
    dtype: str = "float32"
    weight_formats: tuple[str, ...] = ("float32",)
    weight_bytes: int = 34_000_000
    bits_per_weight: float = 32.0
    kv_dtype: str = "float32"
    kv_bytes_per_token: int = 6144
    held_kv_dtype: str = "float32"
    held_kv_bytes_per_token: int = 12288
    max_model_len: int = 1024
    memory_bytes: int = 1 << 34
    longest_context: int = 1024
    largest_batch: int = 2048
    served_tokens: int = 65536
    served_told: str = "64 sequences at full length"
    threads: int = 1
    ceilings: Ceilings | None = None
    reasons: dict[str, str] = dataclasses.field(default_factory=lambda: {"dtype": "as the checkpoint"})


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("penstock.serve.engine.describe")
    module.describe = lambda engine: Description(model=engine.model)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "penstock.serve.engine.describe", module)


def test_info_is_for_people(penstock: Any, described: None) -> None:
    status, out, _ = penstock(["info", "rill"])
    assert status == 0 and out.startswith("model                rill (LlamaForCausalLM, 6 layers)\n")
    assert "serve takes          a KV cache of 65,536 tokens: 64 sequences at full length; --max-num-seqs" in out
    assert "6 KiB per token in float32" in out and "8,500,000" in out and "as the checkpoint" in out


def test_info_tells_the_formats_of_weights(penstock: Any, monkeypatch: pytest.MonkeyPatch, described: None) -> None:
    assert "32 bits each, in float32\n" in penstock(["info"])[1]
    found = Description(bits_per_weight=5.0, weight_formats=("4 bits by 32 columns", "8 bits by row"))
    monkeypatch.setattr(sys.modules["penstock.serve.engine.describe"], "describe", lambda engine: found)
    assert "5 bits each, matrices in 4 bits by 32 columns and 8 bits by row, all else in float32\n" in penstock(["info"])[1]
    found = dataclasses.replace(found, weight_formats=("float16", *found.weight_formats))
    assert "matrices in float16, 4 bits by 32 columns and 8 bits by row, all else in float32\n" in penstock(["info"])[1]


def test_info_predicts_only_from_measured_limits(penstock: Any, described: None, monkeypatch: pytest.MonkeyPatch) -> None:
    _, out, _ = penstock(["info"])
    assert "run `penstock limits`" in out and "at most" not in out
    found = Description(ceilings=Ceilings(decode_tokens_per_s=88.25, prefill_tokens_per_s=12345.6, prompt_tokens=512))
    monkeypatch.setattr(sys.modules["penstock.serve.engine.describe"], "describe", lambda engine: found)
    _, out, _ = penstock(["info"])
    assert "88.2 tokens/s" in out and "12,346 tokens/s for a prompt of 512 tokens" in out
    assert "ceiling set by this machine's measured limits with 1 thread\n" in out
    assert "prefill, about       not predicted: such products were not measured; `penstock limits --fresh` measures those of the" in out
    found = Description(ceilings=Ceilings(88.25, 12345.6, 512, product_tokens_per_s=9876.5))
    _, out, _ = penstock(["info"])
    assert "prefill, about       9,876 tokens/s for it: what the kernels reach in this weight format\n" in out and "in doubt" not in out
    found = Description(ceilings=Ceilings(88.25, 12345.6, 512, doubts=("others ran", "so did more", "and more")))
    said = "in doubt             these limits: others ran, and 2 more like this; `penstock limits --fresh` measures again\n"
    assert said in penstock(["info"])[1]


def test_info_is_for_programs(penstock: Any, described: None) -> None:
    status, out, _ = penstock(["info", "--json"])
    assert status == 0 and json.loads(out)["kv_bytes_per_token"] == 6144


def test_serve_hands_over_both_configurations(penstock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    handed = []

    def serve(engine: EngineConfig, server: ServerConfig, say: Any, progress: Any) -> None:
        handed.append((engine, server))
        say("ready")

    module = ModuleType("penstock.serve.run")
    module.serve = serve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "penstock.serve.run", module)
    monkeypatch.setattr("penstock.serve.run", module, raising=False)
    assert penstock(["serve", "brook", "--port", "9000", "--no-prefix-cache", "--no-auth", "--kv-tokens", "2000"]) == (0, "ready\n", "")
    assert handed == [(EngineConfig(prefix_cache=False, kv_tokens=2000), ServerConfig(port=9000, no_auth=True))]
