"""The messages of gpt-oss (https://github.com/openai/harmony): a header, `<|message|>`, a body and a tag that ends it.

    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>

An answer begins behind `<|start|>assistant`. The recipient stands behind the role or behind the channel. The body's type, with
`<|constrain|>` before it or not, may be left out.
"""
import re

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, RETURN, CALL = "<|end|>", "<|return|>", "<|call|>"
ENDS = (END, RETURN, CALL)
MARKUP = (START, CHANNEL, CONSTRAIN, MESSAGE, *ENDS)
ASSISTANT, ANALYSIS, COMMENTARY, FINAL = "assistant", "analysis", "commentary", "final"
RECIPIENT, NAMESPACE = " to=", "functions."
MAX_HEADER = 256  # characters
FUNCTION = re.compile(re.escape(RECIPIENT + NAMESPACE) + r"([^\s<]+)")


def is_analysis(header: str) -> bool:
    return header.partition(CHANNEL)[2].startswith(ANALYSIS)


def called_by(header: str) -> str | None:
    """The function that a message calls, whatever its channel: models call some in their analysis. None where it calls none."""
    found = FUNCTION.search(header)
    return None if found is None else found[1]


def open_message(prompt: str) -> str | None:
    """The header of the message in which a prompt ends; None where it has no such message."""
    last = prompt.rpartition(START)[2]
    header, tag, body = last.partition(MESSAGE)
    return header if tag and not any(end in body for end in ENDS) else None
