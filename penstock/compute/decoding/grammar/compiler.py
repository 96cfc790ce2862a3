"""Grammars compiled: each once, however many requests ask for it."""
from __future__ import annotations

import dataclasses
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from penstock.compute.decoding.grammar.compiled import Compiled
from penstock.compute.decoding.grammar.contract import Structure
from penstock.compute.decoding.grammar.effort import Effort, TooLargeError
from penstock.compute.decoding.grammar.lark import with_schemas
from penstock.compute.decoding.grammar.matcher import Matcher
from penstock.compute.decoding.grammar.syntax import HEADER, MAX_SIZE, named
from penstock.compute.decoding.grammar.vocabulary import Vocabulary
from penstock.core.errors import RequestError
from penstock.core.types import SamplingParams, StructuredOutputsParams

FIELD = "structured_outputs"
TOO_COMPLEX = "grammar_too_complex"
KEPT = 32 << 20  # characters of all grammars that are kept, though nobody uses them
OVERHEAD = 64 << 10  # what a grammar counts beside its characters: at most 512 are kept
MAX_REASON = 400  # characters
REASONS = {  # of llguidance, in other words
    "Unable to determine if regex is empty": "its patterns and lengths are too complex together to tell whether any text fits all",
    "can't determine if patternProperty": "the patterns of patternProperties are too complex to be told apart",
    "fuel exhausted when checking relevance": "its regexes are too complex together to tell whether any text fits",
    "initial lexer configuration (grammar) too big": "its texts and patterns are too long, all together",
    "Current row has": "it is at more than 2,000 places at once; fewer optional properties, or choices that begin alike, could be followed",
    "Too many items": "what may come next is found in more than 50,000 steps",
    "too many expressions constructed": "its patterns and lengths have too many states",
    "grammar.symbols.len()": "it has more than 65,000 parts",
}


class Compiler:
    """May be asked from several threads; those that ask for the same grammar at once may compile it twice."""

    def __init__(self, structures: Mapping[str, Structure], vocabulary: Vocabulary) -> None:
        """`structures` by the field of StructuredOutputsParams that they read."""
        self.vocabulary = vocabulary
        self._structures = structures
        self._lock = threading.Lock()
        self._live: weakref.WeakValueDictionary[StructuredOutputsParams, Compiled] = weakref.WeakValueDictionary()
        self._kept: OrderedDict[StructuredOutputsParams, Compiled] = OrderedDict()  # the latest used last
        self._kept_size = 0

    def compile(self, wanted: StructuredOutputsParams, pause: Callable[[], None] | None = None) -> Compiled:
        """Raises RequestError, with the reason, for what is not a structure, is larger than the limits, or cannot be obeyed.

        `pause` is called about every millisecond of the work that holds Python's lock: it may sleep, and what it raises ends the work.
        """
        wanted = self.checked(wanted)
        compiled = self.known(wanted)
        if compiled is None:
            compiled = self._compile(wanted, Effort(pause))
            self._keep(compiled)
        return compiled

    def prepare(self, params: SamplingParams) -> tuple[SamplingParams, Compiled | None]:
        """The same parameters with their structure checked, and its grammar, compiled; None where they ask for none."""
        if params.structured_outputs is None:
            return params, None
        compiled = self.compile(params.structured_outputs)
        return dataclasses.replace(params, structured_outputs=compiled.wanted), compiled

    def known(self, wanted: StructuredOutputsParams) -> Compiled | None:
        """One that has been compiled; `wanted` is checked."""
        with self._lock:
            compiled = self._live.get(wanted)
            if compiled is not None and wanted in self._kept:
                self._kept.move_to_end(wanted)
            return compiled

    def checked(self, wanted: StructuredOutputsParams) -> StructuredOutputsParams:
        """In one form that can be compared. Raises RequestError unless exactly one structure is given, in the right type."""
        if not isinstance(wanted, StructuredOutputsParams):
            raise RequestError(f"{FIELD} must be StructuredOutputsParams, not {wanted!r:.80}", FIELD)
        names = [name for name in self._structures if getattr(wanted, name) is not None]
        if len(names) != 1:
            given = " and ".join(names) or "nothing"
            raise RequestError(f"{FIELD} must have one of {', '.join(self._structures)}, not {given}", FIELD)
        for switch in ("disable_any_whitespace", "disable_additional_properties"):
            if not isinstance(getattr(wanted, switch), bool):
                raise RequestError(f"{FIELD}.{switch} must be true or false, not {getattr(wanted, switch)!r:.80}", FIELD)
        return dataclasses.replace(wanted, **{names[0]: self._structures[names[0]].checked(getattr(wanted, names[0]))})

    def matcher(self, params: SamplingParams, output: Sequence[int] = ()) -> Matcher:
        """For a sequence of a request that asks for a structure, behind the tokens that it has chosen already."""
        assert params.structured_outputs is not None
        matcher = Matcher(self.compile(params.structured_outputs), self.vocabulary, params)
        matcher.take(output)
        return matcher

    def _compile(self, wanted: StructuredOutputsParams, effort: Effort) -> Compiled:
        structure = next(each for name, each in self._structures.items() if getattr(wanted, name) is not None)
        try:
            grammar = structure.grammar(wanted, effort)
            frame = None if wanted.frame is None else with_schemas(wanted.frame, wanted, effort)
        except TooLargeError as error:
            raise RequestError(str(error), FIELD, code=TOO_COMPLEX) from None
        if frame is not None:
            grammar = named({"whole": f"{HEADER}start: frame\n{frame}", "body": grammar})
        if len(grammar) > MAX_SIZE:
            raise RequestError(f"the grammar has {len(grammar)} characters; at most {MAX_SIZE} are compiled", FIELD)
        start = self.vocabulary.matcher(grammar)
        effort.rest()
        if start.is_error():
            trouble = start.get_error()
            raise RequestError(reason(trouble), FIELD, code=TOO_COMPLEX if any(theirs in trouble for theirs in REASONS) else None)
        if trouble := self.vocabulary.trouble(start):
            raise RequestError(f"it is too complex to be followed: {reason(trouble)}", FIELD, code=TOO_COMPLEX)
        if not self.vocabulary.has_text(start):
            raise RequestError("nothing but an empty answer is possible" if start.is_accepting() else "no answer is possible", FIELD)
        return Compiled(wanted, len(grammar), lambda: self.vocabulary.matcher(grammar), start)

    def _keep(self, compiled: Compiled) -> None:
        """The least recently used are forgotten when there are too many."""
        with self._lock:
            self._live[compiled.wanted] = compiled
            if compiled.wanted in self._kept:
                return
            self._kept[compiled.wanted] = compiled
            self._kept_size += compiled.size + OVERHEAD
            while self._kept_size > KEPT and len(self._kept) > 1:
                _, oldest = self._kept.popitem(last=False)
                self._kept_size -= oldest.size + OVERHEAD


def reason(error: str) -> str:
    """llguidance's error in one sentence: of a regex error its last line, which says what is wrong."""
    for theirs, ours in REASONS.items():
        if theirs in error:
            return ours
    fault = re.findall(r"^error: (.*)$", error, re.MULTILINE)
    text = f"invalid regex: {fault[-1]}" if fault else error.split("\n   1 |")[0]
    text = " ".join(text.split()).replace("Regex is empty:", "no text is as all of these want it:")
    return text if len(text) <= MAX_REASON else text[: MAX_REASON - 3] + "..."
