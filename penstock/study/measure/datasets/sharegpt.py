"""Recorded conversations in ShareGPT's form, replayed turn by turn: `{"conversations": [{"from": "human", "value": ...}, ...]}`.

Objects with `messages` (role and content) are read as well; the file is a JSON list, or has an object a line. Each turn is sent when the
one before was answered; what was answered then goes on as recorded, or as generated. Answers are as long as the recorded ones.
"""
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import UsageError
from penstock.study.measure.datasets.jsonl import Lines, messages_of, read_text
from penstock.study.measure.load import Session, Turn, Writer

ROLES = {"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant", "bing": "assistant",
         "bard": "assistant", "system": "system"}
HISTORIES = ("recorded", "generated")


@dataclass(frozen=True, slots=True)
class ShareGptOptions:
    path: str = ""
    turns: int = 0  # of a conversation at most; 0: all
    history: str = "recorded"  # what the model reads as its own earlier answers: recorded or generated
    output: int = 128  # tokens of an answer, where there is no tokenizer to count the recorded one
    max_output: int = 0  # longer answers are asked for up to here; 0: no limit
    wait: float = 0.0  # seconds between an answer and the next turn


class ShareGpt:
    Options = ShareGptOptions
    has_times = False

    def __init__(
        self, options: ShareGptOptions, writer: Writer, seed: str, recorded: Iterable[tuple[str, Any]] | None = None
    ) -> None:
        """`recorded`: conversations and where they stand, where they were read already."""
        if options.history not in HISTORIES:
            raise UsageError(f"sharegpt: history is {' or '.join(HISTORIES)}, not {options.history!r}")
        if options.turns < 0 or options.output < 1 or options.max_output < 0 or not 0 <= options.wait < math.inf:
            raise UsageError("sharegpt: turns, max_output and wait must be 0 or more and finite, output 1 or more")
        self._options = options
        self._writer = writer
        self._recorded = recorded
        self._skipped = 0
        self._uncounted = False

    def sessions(self) -> Iterator[Session]:
        self._skipped = found = 0
        for at, told in self._conversations():
            turns = tuple(self._turns(messages(told, at)))
            if turns:
                yield Session(turns)
                found += 1
            else:
                self._skipped += 1
        if not found:
            none = f"none of the {self._skipped:,} conversations" if self._skipped else "no conversation"
            raise UsageError(f"{self._options.path} has nothing to ask: in {none} a user says anything that was answered")

    def notes(self) -> list[str]:
        said = []
        if self._skipped:
            many = f"{self._skipped} conversations were" if self._skipped > 1 else "1 conversation was"
            said.append(f"{many} left out: no user says anything that was answered")
        if self._uncounted:
            said.append(f"answers have {self._options.output} tokens, because without --tokenizer the recorded ones cannot be counted")
        return said

    def anew(self, writer: Writer, seed: str) -> "ShareGpt":
        return ShareGpt(self._options, writer, seed, self._conversations())

    def _conversations(self) -> Iterable[tuple[str, Any]]:
        if self._recorded is None:
            self._recorded = conversations(self._options.path)
        return self._recorded

    def _turns(self, said: list[dict[str, str]]) -> Iterator[Turn]:
        """What stands before an answer, and the answer; what nobody answered is not sent."""
        waiting: list[dict[str, str]] = []
        count = 0
        for message in said:
            if message["role"] != "assistant":
                waiting.append(message)
            elif any(each["role"] == "user" for each in waiting):
                answer = message["content"] if self._options.history == HISTORIES[0] else None
                yield Turn(messages=tuple(waiting), num_output=self._length(message["content"]), answer=answer,
                           wait_s=self._options.wait if count else 0.0)
                waiting, count = [], count + 1
                if count == self._options.turns:
                    return

    def _length(self, answer: str) -> int:
        counted, added = self._writer.count(answer), self._writer.count("")  # what a tokenizer adds, no model writes
        self._uncounted |= counted is None
        length = max(1, self._options.output if counted is None else counted - (added or 0))
        return min(length, self._options.max_output) if self._options.max_output else length


def conversations(path: str) -> Iterable[tuple[str, Any]]:
    """(where it stands, what is there) of each. Raises UsageError for a file that cannot be read."""
    text = read_text(path, "sharegpt")
    if not text.lstrip().startswith("["):
        return Lines(path, "sharegpt", text)
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    return [(f"{path}, conversation {number}", told) for number, told in enumerate(listed, 1)]


def messages(told: Any, at: str) -> list[dict[str, str]]:
    """A conversation as role and content. Raises UsageError for what is none."""
    if isinstance(told, dict) and "messages" in told:
        return [dict(message) for message in messages_of(told["messages"], at)]
    listed = told.get("conversations", told.get("conversation")) if isinstance(told, dict) else None
    if not isinstance(listed, list):
        raise UsageError(f"{at}: a conversation is an object with conversations (from and value) or messages (role and content)")
    found = []
    for message in listed:
        said = message if isinstance(message, dict) else {}
        role, value = ROLES.get(str(said.get("from"))), said.get("value")
        if role is None or not isinstance(value, str):
            raise UsageError(f"{at}: a message has from ({', '.join(ROLES)}) and value, not {message!r:.60}")
        found.append({"role": role, "content": value})
    return found
