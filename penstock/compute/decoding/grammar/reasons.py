"""Translates llguidance's error messages for the user who wrote the grammar, the schema or the regex.

Its own messages name its internals and quote the generated grammar. Those that users can cause are reworded here, with the line in the
user's text or the place in the schema. Of an unknown message only the place is reported.
"""
import contextlib
import json
import re
from collections.abc import Mapping

from penstock.compute.decoding.grammar.schema.errors import left_nothing
from penstock.compute.decoding.grammar.vocabulary import TOO_SLOW
from penstock.compute.decoding.grammar.written import Written

MAX_QUOTED = 80  # characters of the user's text in a message
MAX_REASON = 400
LIMITS = {  # messages of grammars that are too complex
    "Unable to determine if regex is empty": "its patterns and lengths are too complex together to tell whether any text fits all",
    "can't determine if patternProperty": "the patterns of patternProperties are too complex to be told apart",
    "fuel exhausted when checking relevance": "its regexes are too complex together to tell whether any text fits",
    "lexer precomputation failed": "its patterns and lengths are too complex together",
    "initial lexer configuration (grammar) too big": "its texts and patterns are too long, all together",
    "Current row has": "it is at more than 2,000 places at once; fewer optional properties, or choices that begin alike, could be followed",
    "Too many items": "what may come next is found in more than 50,000 steps",
    "too many expressions constructed": "its patterns and lengths have too many states",
    "grammar.symbols.len()": "it has more than 65,000 parts",
    "grammar size (number of symbols) too big": "it has more than 500,000 parts",
    TOO_SLOW: TOO_SLOW,
}
NO_STRING, NO_VALUE = "Unsatisfiable schema: Regex is empty", "Unsatisfiable schema"
Q = r'("(?:[^"\\]|\\.)*")'  # quoted text of the user
IN_TERMINAL = "cannot stand in a terminal, whose name is in upper case; it can in a rule, in lower case"
OF_TOKENS = "tokens are listed by their numbers, as in <[3-7,12]>"
# Pattern of a message -> its translation; {0} is the first group. No pattern backtracks far, however long the message is.
FAULTS = {
    f"unknown name: {Q}": "unknown name {0}: it is not defined, or not as a terminal where only terminals can be named",
    "lexer (?:error|special token)":
        "it cannot be read: a string in double quotes or a regex between slashes does not end, or a character means nothing in Lark",
    r"Expected token (.+?), found (.+?)(?: \(at .*)?": "{0} should stand here, not {1}",
    rf"expecting rule, token or statement \(at {Q} .*": 'a definition such as rule: "text" should begin here, not {0}',
    rf"Expected value \(at {Q} .*": "a string, a regex, a name or a group should stand here, not {0}",
    "End number in range cannot be 0.*": "what is repeated 0 times at most says nothing",
    r"range end must be >= start, got \((.+), (.+)\)": "it repeats at least {0} and at most {1} times",
    "range start must be >= 0, got (.+)": "it repeats {0} times",
    "range (?:start|end) must be a single character": 'a range has one character at either end, as "a".."z" has',
    "invalid range order: (.+)": "the range {0} ends before it begins",
    rf"invalid regex {Q} \(in [^)]*\): lookarounds not supported yet;.*":
        "the regex {0} has an anchor, \\b or \\B, which are not supported: in a grammar each regex matches from its beginning to its end",
    rf"invalid regex {Q} \(in [^)]*\): .*\nerror: look-around, .*":
        "the regex {0} looks ahead or behind, which is not supported in a grammar",
    rf"invalid regex {Q} \(in [^)]*\): .*\nerror: ([^\n]*)": "the regex {0} cannot be read: {1}",
    rf"invalid regex {Q} .*": "the regex {0} cannot be read",
    "no start rule found": "it has no rule that is called start, where a grammar begins",
    rf"duplicate (?:rule|token)(?: \(in import\))?: {Q}": "{0} is defined twice",
    rf"unknown special token: {Q}.*": "the tokenizer has no special token {0}",
    "Token range end too large: (.+)": "there is no token {0}",
    "(?:[iI]nvalid token range|empty token range|negat|wildcard token range|invalid digit).*": OF_TOKENS,
    "unknown grammar (.+)": "there is no other grammar that {0} could name",
    "numeric grammar references .*": "there are no other grammars that numbers could name",
    rf"(?:grammar references|special tokens) \(like {Q}\) cannot be used in terminals": "{0} " + IN_TERMINAL,
    "(?:nested )?(%json|%lark) .*cannot be used in terminals": "{0} " + IN_TERMINAL,
    "'%if' is not supported in terminals": "%if " + IN_TERMINAL,
    "& is only supported for tokens.*": "& combines parts of terminals alone: a name in upper case makes this rule one",
    r"Unknown common regex: (\S+); following are available: (.+)": "{0} cannot be imported; there are {1}",
    "(declare|override) statement not supported yet": "%{0} is not supported",
    "priority not supported yet": "priorities, as in name.2, are not supported",
    "(?:params|template usage) not supported yet": "templates, as in name{{x}}, are not supported",
    r"Unknown attribute: (\S+).*": "rules have no attribute {0}; they may be lazy or have a suffix",
    "(?:Cannot have multiple stop/suffix conditions|stop= and suffix=).*": "a rule may be lazy or have one suffix, not both",
    "(?:failed to parse %regex|no fields set on %regex|only one field can be set on %regex).*":
        "%regex is followed by an object with one of substring_chunks, substring_words and substring_chars",
    'failed to parse "?%llguidance.*': "%llguidance is followed by an object of its options, such as {{}}",
    "(?:l-flag is not supported in regexes|flags not allowed in this context).*": "regexes have no flag l, and strings no flag but i",
    "lark grammar too deeply nested.*": "its groups are nested more than 28 deep",
    "ValueError: Value is not JSON serializable.*": "it has half of a surrogate pair, which is no character",
}
SHOWN = {  # names of llguidance's tokens
    "'rule_name'": "the name of a rule", "'TOKEN_NAME'": "the name of a terminal", '"string..."': "a string", "/regexp.../": "a regex",
    "<special_token>": "a special token", "@grammar_name": "the name of a grammar", "end of input": "the end of the text",
    r"'\n'": "the end of the line", r'"\n"': "the end of the line",
}
UNREAD, UNOBEYED = "it cannot be read", "it cannot be obeyed"
QUOTED = re.compile(r" *\d+ \|(?: |$)| *\^$")  # a quoted line of the grammar, or the marker below it
AT = re.compile(r"(at )?(\d+)\((\d+)\): ")
IN_SCHEMA = re.compile(r"\n  while processing json-schema:///#/\$defs/(\w+)$")


def told(error: str, written: Written) -> tuple[str, bool]:
    """The reason in one sentence, and whether the reason is that the grammar is too complex."""
    text = message(error)
    found = AT.match(text)
    text = text if found is None else text[found.end() :]
    inside = IN_SCHEMA.search(text)
    place, keywords = ("", []) if inside is None else written.schema_place(inside[1])
    text = (text if inside is None else text[: inside.start()]).removeprefix("failed to compile JSON schema: ").removeprefix("at EOF: ")
    is_limit = False
    if text.startswith(NO_STRING):
        reason = left_nothing([keyword for keyword in keywords if keyword != "type"], "no string")
    elif text.startswith(NO_VALUE):
        reason = left_nothing(keywords, "no value")
    elif not (reason := in_other_words(text, FAULTS)):
        limit = next((ours for theirs, ours in LIMITS.items() if theirs in text), None)
        is_limit = limit is not None
        reason = limit or (UNOBEYED if found is None or found[1] else UNREAD)
    where = [f"at {place}"] if place else []
    if found is not None and (own := written.source_place(int(found[2]), int(found[3]))) is not None:
        where.append(f"{'in what begins at ' if found[1] else ''}line {own[0]}, column {own[1]}")
    return reason + (f" ({', '.join(where)})" if where else ""), is_limit


def message(error: str) -> str:
    """The message without the lines of the grammar quoted after it."""
    lines = error.rstrip("\n").split("\n")
    while len(lines) > 1 and QUOTED.match(lines[-1]):
        lines.pop()
    return "\n".join(lines).rstrip()


def in_other_words(error: str, faults: Mapping[str, str]) -> str:
    """The translation of a message by `faults`; "" if it is not among them."""
    for theirs, ours in faults.items():
        if found := re.fullmatch(theirs, error, re.DOTALL):
            reason = " ".join(ours.format(*map(shown, found.groups())).split())
            return reason if len(reason) <= MAX_REASON else reason[: MAX_REASON - 3] + "..."
    return ""


def shown(quoted: str) -> str:
    """Text quoted by a message, as the user wrote it."""
    found = SHOWN.get(quoted, quoted)
    if found.startswith('"'):
        with contextlib.suppress(ValueError):  # spelled as Rust spells what cannot be seen
            found = f'"{json.loads(found)}"'
    return found if len(found) <= MAX_QUOTED or found.startswith("common.") else found[: MAX_QUOTED - 3] + "..."
