"""`penstock chat [MODEL]`: talk to a model in the terminal, or feed it lines through a pipe."""
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.cli.fields import SERVER
from penstock.cli.options import option, takes
from penstock.cli.progress import LoadingBar
from penstock.cli.prompt import as_text
from penstock.cli.sampling import SamplingOptions, check, params_from, told_by_flags
from penstock.core.config import EngineConfig
from penstock.core.drafting import Drafting
from penstock.core.errors import PenstockError, UsageError

COMMANDS = "/quit ends, /reset forgets the conversation, /system TEXT sets the system message"
ADVICE = "start with --chat-template FILE, or give a prompt to `penstock generate`"
GREEN, PLAIN = "\x1b[32m", "\x1b[39m"
REASONING, ANSWER = "[reasoning]\n", "[answer]\n"  # what stands before each, where there is reasoning


@dataclass(frozen=True, slots=True)
class ChatOptions:
    system: str | None = option(None, "The system message")
    chat_template: str | None = option(None, SERVER["chat_template"])
    show_drafts: bool = option(False, "Show drafted tokens in green, with how many were accepted and how many tokens each pass made")


@dataclass(slots=True)
class Conversation:
    """What was said so far, in OpenAI's form."""

    system: str | None
    said: list[dict[str, str]] = field(default_factory=list)

    def with_question(self, text: str) -> list[dict[str, str]]:
        opening = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*opening, *self.said, {"role": "user", "content": text}]

    def add(self, question: str, answer: str) -> None:
        self.said += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


@dataclass(frozen=True, slots=True)
class Partner:
    """A model, the template of its conversations, and how it answers."""

    llm: Any
    template: Any
    params: Any

    def answer(self, messages: Sequence[dict[str, str]], on_span: Any) -> Any:
        """What LLM.converse returns. With no bound of its own an answer leaves room for the rest of the conversation."""
        return self.llm.converse(messages, self.params, on_span, self.template, lambda room: room // 2)

    @property
    def bound(self) -> str:
        most = self.params.max_tokens
        return "half of what the context left; --max-tokens sets another bound" if most is None else f"--max-tokens {most}"


@takes(ChatOptions, SamplingOptions, EngineConfig)
def chat(options: ChatOptions, sampling: SamplingOptions, engine: EngineConfig) -> None:
    """Talk to a model in the terminal."""
    check(sampling, engine.seed)
    path = None if options.chat_template is None else Path(options.chat_template)
    if path is not None:
        from penstock.serve.text.chat import check_file

        check_file(path)
    from penstock.serve.llm import LLM

    if options.show_drafts and engine.propose is None:
        print("--show-drafts needs a proposer, for example --propose auto", file=sys.stderr)
    with LoadingBar(f"loading {engine.model}") as progress:
        llm = LLM.from_config(engine, progress=progress, say=progress.say)
    params = params_from(llm.get_default_sampling_params(), sampling, engine.seed)
    partner, talk = Partner(llm, llm.chat_template(path, ADVICE), params), Conversation(options.system)
    by_hand = sys.stdin.isatty()
    if by_hand:
        print(f"{engine.model}: {COMMANDS}, Ctrl-C ends an answer")
    for line in lines(by_hand):
        try:
            if line.startswith("/"):
                if not obey(line, talk):
                    return
            elif line:
                answer(partner, talk, line, options.show_drafts)
        except PenstockError as error:
            if not by_hand:
                raise
            print(f"error: {error}", file=sys.stderr)
        except KeyboardInterrupt:
            if not by_hand:
                raise
            print("\n[interrupted; neither this question nor its answer is kept]", flush=True)


def lines(by_hand: bool) -> Iterator[str]:
    """What the user types, until the end of the input."""
    if not by_hand:
        yield from (as_text(line, f"line {number} of standard input").strip() for number, line in enumerate(sys.stdin.buffer, 1))
        return
    import readline  # noqa: F401 - editing and history for input()

    while True:
        try:
            yield input("> ").strip()
        except EOFError:
            print()
            return


def obey(line: str, talk: Conversation) -> bool:
    """Does what a line that begins with a slash says; False ends the conversation. Raises UsageError on any other word."""
    name, _, rest = line.partition(" ")
    if name == "/quit":
        return False
    if name == "/reset":
        talk.said.clear()
    elif name == "/system" and rest.strip():
        talk.system = rest.strip()
    else:
        raise UsageError(f"{line!r} is not a command: {COMMANDS}")
    return True


def answer(partner: Partner, talk: Conversation, question: str, show_drafts: bool) -> None:
    painted = show_drafts and takes_colour()
    try:
        with told_by_flags():
            output, timings = partner.answer(talk.with_question(question), Writer(painted))
    except KeyboardInterrupt:  # the terminal drops what it has not shown yet, the end of a colour included
        if painted:
            write(PLAIN)
        raise
    said = output.outputs[0]
    if said.text:  # templates refuse turns with nothing in them
        talk.add(question, said.text)
    speed = f", {timings.decode_tokens_per_s:.1f} tokens/s" if timings.decode_tokens_per_s else ""
    cut = f", cut at {partner.bound}" if said.finish_reason == "length" else ""
    drafts = f", {told(output.drafting, len(said.token_ids))}" if show_drafts else ""
    lost = "" if said.text else ", without an answer: the question is not kept"
    print(f"\n[TTFT {short(timings.ttft_s)}, {len(said.token_ids)} tokens{speed}{drafts}{cut}{lost}]", flush=True)


def told(drafting: Drafting, num_tokens: int) -> str:
    rate = drafting.tokens_per_pass(num_tokens)
    if rate is None:
        return "nothing was drafted"
    return (f"{drafting.num_accepted} of {drafting.num_drafted} drafts accepted, {rate:.2f} tokens per pass "
            f"({drafting.tokens_per_draft_pass:.2f} in those with drafts)")


def short(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1e3 * seconds:.1f} ms"


def takes_colour() -> bool:
    """Whether stdout is a terminal whose user wants colours (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Writer:
    """Shows an answer's spans as they come: its reasoning apart, and drafts in green where they are `painted`."""

    def __init__(self, painted: bool) -> None:
        self._painted = painted
        self._reasons = False
        self._break = ""  # before what is shown under another name

    def __call__(self, span: Any) -> None:
        if span.reasoning != self._reasons:
            write(self._break + (REASONING if span.reasoning else ANSWER))
            self._reasons = span.reasoning
        write(f"{GREEN}{span.text}{PLAIN}" if self._painted and span.drafted else span.text)
        self._break = "\n"


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
