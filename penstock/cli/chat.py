"""`penstock chat [MODEL]`: talk to a model in the terminal, or feed it lines through a pipe."""
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.cli.options import option, takes
from penstock.cli.progress import LoadingBar
from penstock.cli.sampling import SamplingOptions, check, params_from, told_by_flags
from penstock.core.config import EngineConfig
from penstock.core.drafting import Drafting
from penstock.core.errors import PenstockError

COMMANDS = "/quit ends, /reset forgets the conversation, /system TEXT sets the system message"
GREEN, PLAIN = "\x1b[32m", "\x1b[39m"


@dataclass(frozen=True, slots=True)
class ChatOptions:
    system: str | None = option(None, "The system message")
    show_drafts: bool = option(False, "Show drafted tokens in green, with how many were accepted and how many tokens each pass made")


@dataclass(slots=True)
class Conversation:
    """What was said so far, in OpenAI's form."""

    system: str | None
    said: list[dict[str, str]] = field(default_factory=list)

    def with_question(self, text: str) -> list[dict[str, str]]:
        opening = [{"role": "system", "content": self.system}] if self.system else []
        return [*opening, *self.said, {"role": "user", "content": text}]

    def add(self, question: str, answer: str) -> None:
        self.said += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


@takes(ChatOptions, SamplingOptions, EngineConfig)
def chat(options: ChatOptions, sampling: SamplingOptions, engine: EngineConfig) -> None:
    """Talk to a model in the terminal."""
    check(sampling, engine.seed)
    from penstock.serve.llm import LLM

    if options.show_drafts and engine.propose is None:
        print("--show-drafts needs a proposer, for example --propose auto", file=sys.stderr)
    with LoadingBar(f"loading {engine.model}") as progress:
        llm = LLM.from_config(engine, progress=progress, say=progress.say)
    params = params_from(llm.get_default_sampling_params(), sampling, engine.seed)
    talk = Conversation(options.system)
    by_hand = sys.stdin.isatty()
    if by_hand:
        print(f"{engine.model}: {COMMANDS}")
    for line in lines(by_hand):
        try:
            if line.startswith("/"):
                if not obey(line, talk):
                    return
            elif line:
                answer(llm, params, talk, line, options.show_drafts)
        except PenstockError as error:
            if not by_hand:
                raise
            print(f"error: {error}", file=sys.stderr)


def lines(by_hand: bool) -> Iterator[str]:
    """What the user types, until the end of the input."""
    if not by_hand:
        yield from (line.strip() for line in sys.stdin)
        return
    import readline  # noqa: F401 - editing and history for input()

    while True:
        try:
            yield input("> ").strip()
        except EOFError:
            print()
            return


def obey(line: str, talk: Conversation) -> bool:
    """Does what a line that begins with a slash says; False ends the conversation. Raises PenstockError on any other word."""
    name, _, rest = line.partition(" ")
    if name == "/quit":
        return False
    if name == "/reset":
        talk.said.clear()
    elif name == "/system" and rest.strip():
        talk.system = rest.strip()
    else:
        raise PenstockError(f"{line!r} is not a command: {COMMANDS}")
    return True


def answer(llm: Any, params: Any, talk: Conversation, question: str, show_drafts: bool) -> None:
    painted = show_drafts and takes_colour()
    try:
        with told_by_flags():
            output, timings = llm.converse(
                talk.with_question(question), params, on_span=lambda text, drafted: write(text, painted and drafted))
    except KeyboardInterrupt:  # the terminal drops what it has not shown yet, the end of a colour included
        if painted:
            write(PLAIN, painted=False)
        raise
    said = output.outputs[0]
    talk.add(question, said.text)
    speed = f", {timings.decode_tokens_per_s:.1f} tokens/s" if timings.decode_tokens_per_s else ""
    cut = f", cut at --max-tokens {params.max_tokens}" if said.finish_reason == "length" else ""
    drafts = f", {told(output.drafting, len(said.token_ids))}" if show_drafts else ""
    print(f"\n[TTFT {short(timings.ttft_s)}, {len(said.token_ids)} tokens{speed}{drafts}{cut}]", flush=True)


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


def write(text: str, painted: bool) -> None:
    sys.stdout.write(f"{GREEN}{text}{PLAIN}" if painted else text)
    sys.stdout.flush()
