"""Stand-ins for what the commands call, so that parsing and printing are tested without a model."""
import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from penstock.cli import run
from penstock.core.config import EngineConfig
from penstock.core.drafting import Drafting
from penstock.core.types import Completion, Logprob, Output, SamplingParams
from penstock.serve.spans import Span

TEMPLATE = SimpleNamespace(render=lambda messages: "".join([message["content"] for message in messages]))


@dataclass(frozen=True)
class Timings:
    ttft_s: float = 0.25
    prefill_tokens_per_s: float = 80.0
    decode_tokens_per_s: float = 40.0
    mfu: float = 0.5
    mbu: float = 0.125


@dataclass
class Called:
    """What the commands asked for."""

    engine: EngineConfig | None = None
    prompts: list[Any] = field(default_factory=list)
    params: list[SamplingParams] = field(default_factory=list)
    fail: BaseException | None = None
    hardware: Any = "known"
    room: int = 1000  # characters of a prompt and tokens of its answer
    template: tuple[Any, str] | None = None  # the file that was asked for, the advice where there is none
    no_template: Exception | None = None
    drafted: str | None = None  # the piece of the answer that was
    reasoned: str | None = None  # likewise
    silent: bool = False  # all of the answer is reasoning
    drafting: Drafting = Drafting()


def make_llm(called: Called) -> type:
    class LLM:
        hardware = property(lambda self: called.hardware)

        @classmethod
        def from_config(cls, config: EngineConfig, progress: Callable[[int, int], None], say: Callable[[str], None]) -> "LLM":
            called.engine = config
            progress(1, 1)
            return cls()

        def get_default_sampling_params(self) -> SamplingParams:
            return SamplingParams(temperature=0.7, top_p=0.9)

        def chat_template(self, path: Any, advice: str) -> Any:
            called.template = path, advice
            if called.no_template:
                raise called.no_template
            return TEMPLATE

        def complete(
            self, prompt: Any, params: SamplingParams, on_text: Callable[[str], None] | None, bound: Callable[[int], int]
        ) -> tuple[Output, Timings]:
            room = called.room - len(prompt if isinstance(prompt, str) else TEMPLATE.render(prompt))
            params = params if params.max_tokens is not None else replace(params, max_tokens=max(1, bound(room)))
            called.prompts.append(prompt)
            called.params.append(params)
            if called.fail:
                raise called.fail
            for piece in ("Once ", "more") if on_text else ():
                on_text(piece)
            return self._output(params)

        def converse(
            self, messages: Any, params: SamplingParams, on_span: Callable[[Span], None], template: Any, bound: Callable[[int], int]
        ) -> tuple[Output, Timings]:
            assert template is TEMPLATE

            def show(text: str) -> None:
                on_span(Span(text, text == called.drafted, called.silent or text == called.reasoned))

            output, timings = self.complete(messages, params, show, bound)
            if called.silent:
                output.outputs[0].text = ""
            return output, timings

        def _output(self, params: SamplingParams) -> tuple[Output, Timings]:
            rows = [{7: Logprob(-0.5, 1, "Once "), 9: Logprob(-1.5, 2, "Twice ")}, {8: Logprob(-0.25, 1, "more")}]
            said = Completion(0, "Once more", [7, 8], logprobs=rows if params.logprobs is not None else None, finish_reason="length")
            return Output("r0", None, [1, 2, 3], [said], finished=True, drafting=called.drafting), Timings()

    return LLM


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Called:
    record = Called()
    module = ModuleType("penstock.serve.llm")
    module.LLM = make_llm(record)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "penstock.serve.llm", module)
    return record


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    return lambda data: monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.fixture
def penstock(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str]], tuple[int, str, str]]:
    """Runs a command line -> status, stdout, stderr. Lines are as long as they are, unless a test says how wide the terminal is."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(args: Sequence[str]) -> tuple[int, str, str]:
        status = run(args)
        said = capsys.readouterr()
        return status, said.out, said.err

    return call
