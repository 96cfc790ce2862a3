"""Compiles grammars, and keeps them, so that requests for the same grammar share one."""
from __future__ import annotations

import dataclasses
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.compute.decoding.grammar.compiled import Compiled
from penstock.compute.decoding.grammar.contract import Structure
from penstock.compute.decoding.grammar.effort import Effort, TooLargeError
from penstock.compute.decoding.grammar.ends import without_ends
from penstock.compute.decoding.grammar.lark import with_schemas
from penstock.compute.decoding.grammar.matcher import Matcher
from penstock.compute.decoding.grammar.reasons import told
from penstock.compute.decoding.grammar.syntax import HEADER, MAX_SIZE, named
from penstock.compute.decoding.grammar.vocabulary import MOST_S, Vocabulary
from penstock.compute.decoding.grammar.written import Written
from penstock.core.errors import RequestError
from penstock.core.types import Rules, SamplingParams, StructuredOutputsParams

FIELD = "structured_outputs"
TOO_COMPLEX = "grammar_too_complex"
KEPT = 32 << 20  # characters of all grammars that are cached although no request uses them
OVERHEAD = 64 << 10  # characters that a grammar counts for besides its own: at most 512 are cached
OPTIONS: Mapping[str, tuple[Any, Any, str]] = {  # of JSON: the default value, the type, and what that is called
    "whitespace_pattern": (None, str | None, "a string"), "disable_any_whitespace": (False, bool, "true or false"),
    "disable_additional_properties": (False, bool, "true or false"),
}


class Compiler:
    """Thread-safe. Threads that request the same new grammar at once may both compile it, and get the one that was ready first."""

    def __init__(self, structures: Mapping[str, Structure], vocabulary: Vocabulary, max_len: int) -> None:
        """`structures`: by the field of StructuredOutputsParams that they read. `max_len`: tokens of a prompt and its answer together."""
        self.vocabulary = vocabulary
        self._structures = structures
        self._max_len = max_len
        self._lock = threading.Lock()
        self._live: weakref.WeakValueDictionary[StructuredOutputsParams, Compiled] = weakref.WeakValueDictionary()
        self._kept: OrderedDict[StructuredOutputsParams, Compiled] = OrderedDict()  # the latest used last
        self._kept_size = 0

    def compile(self, wanted: StructuredOutputsParams, pause: Callable[[], None] | None = None) -> Compiled:
        """Raises RequestError, with the reason, for a structure that is invalid, too large, or not supported.

        `pause` is called about every millisecond of work that holds the GIL: it may sleep, and ends the compilation by raising.
        """
        wanted = self.checked(wanted)
        compiled = self.known(wanted)
        if compiled is None:
            compiled = self._first(self._compile(wanted, Effort(pause)))
        return compiled

    def prepare(self, params: SamplingParams) -> tuple[SamplingParams, Compiled | None]:
        """The parameters with their structure validated, and its compiled grammar; None if they have no structure."""
        if params.structured_outputs is None:
            return params, None
        compiled = self.compile(params.structured_outputs)
        return dataclasses.replace(params, structured_outputs=compiled.wanted), compiled

    def known(self, wanted: StructuredOutputsParams) -> Compiled | None:
        """The grammar if it is compiled already, and good for another answer, else None. `wanted`: from `checked`."""
        with self._lock:
            compiled = self._live.get(wanted)
            if compiled is None or compiled.is_spent:
                return None
            self._use(compiled)
            return compiled

    def checked(self, wanted: StructuredOutputsParams) -> StructuredOutputsParams:
        """Validates `wanted`, and brings it to one form, hashable. Raises RequestError unless exactly one structure is given, of the right
        type."""
        if not isinstance(wanted, StructuredOutputsParams):
            raise RequestError(f"{FIELD} must be StructuredOutputsParams, not {wanted!r:.80}", FIELD)
        names = [name for name in self._structures if getattr(wanted, name) is not None]
        if len(names) != 1:
            given = " and ".join(names) or "nothing"
            raise RequestError(f"{FIELD} must have one of {', '.join(self._structures)}, not {given}", FIELD)
        for option, (_, kind, called) in OPTIONS.items():
            if not isinstance(getattr(wanted, option), kind):
                raise RequestError(f"{FIELD}.{option} must be {called}, not {getattr(wanted, option)!r:.80}", option)
        if not isinstance(wanted.frame, Rules | None):
            raise RequestError(f"{FIELD}.frame must be Rules, not {wanted.frame!r:.80}", FIELD)
        return dataclasses.replace(wanted, **{names[0]: self._structures[names[0]].checked(getattr(wanted, names[0]))})

    def matcher(self, params: SamplingParams, output: Sequence[int] = ()) -> Matcher:
        """A matcher for a sequence whose parameters have a structure, advanced over the output that it has already. `params`: from
        `prepare`. Nothing is compiled as long as somebody holds what `prepare` returned with them."""
        assert params.structured_outputs is not None
        with self._lock:
            compiled = self._live.get(params.structured_outputs)
        matcher = Matcher(compiled or self.compile(params.structured_outputs), self.vocabulary, params)
        matcher.take(output)
        return matcher

    def _compile(self, wanted: StructuredOutputsParams, effort: Effort) -> Compiled:
        structure = next(each for name, each in self._structures.items() if getattr(wanted, name) is not None)
        room = self._max_len * self.vocabulary.longest  # characters, each of a byte or more
        try:
            body = without_ends(structure.grammar(wanted, effort, room), self.vocabulary.ends, self.vocabulary.size)
            frame = None
            if wanted.frame is not None:
                frame = with_schemas(wanted.frame, wanted, effort, room, f"{HEADER}start: frame\n", "frame")
        except TooLargeError as error:
            raise RequestError(str(error), FIELD, code=TOO_COMPLEX) from None
        check_options(wanted, body)
        grammar, origin = body.text, body
        if frame is not None:
            grammar = named({"whole": frame.text, "body": body.text})
            origin = dataclasses.replace(body, schemas={**frame.schemas, **body.schemas})
        if len(grammar) > MAX_SIZE:
            raise RequestError(f"the grammar has {len(grammar)} characters; at most {MAX_SIZE} are compiled", FIELD)
        start, seconds = self.vocabulary.matcher(grammar)
        effort.rest()
        if start.is_error():
            reason, is_limit = told(start.get_error(), origin)
            raise RequestError(reason, FIELD, code=TOO_COMPLEX if is_limit else None)
        if trouble := self.vocabulary.trouble(start):
            reason, is_limit = told(trouble, origin)
            raise RequestError(f"it is too complex to be followed{f': {reason}' if is_limit else ''}", FIELD, code=TOO_COMPLEX)
        if body.places:
            _ = self.vocabulary.spelled  # made here, because no step waits for this thread
        if not (opening := self.vocabulary.opening(start)):
            raise RequestError("nothing but an empty answer is possible" if start.is_accepting() else "no answer is possible", FIELD)
        make = (lambda: self.vocabulary.matcher(grammar)[0]) if seconds <= MOST_S else None
        return Compiled(wanted, len(grammar), body, make, start, opening)

    def _first(self, compiled: Compiled) -> Compiled:
        """The one that all requests for this grammar share: this one, unless another thread was faster."""
        with self._lock:
            known = self._live.get(compiled.wanted)
            if known is None or known.is_spent:
                self._live[compiled.wanted] = known = compiled
            self._use(known)
            return known

    def _use(self, compiled: Compiled) -> None:
        """Adds a grammar to the cache as the latest used, and drops the least recently used ones beyond its limit. With the lock."""
        known = self._kept.pop(compiled.wanted, None)
        if known is not None:
            self._kept_size -= known.size + OVERHEAD
        self._kept[compiled.wanted] = compiled
        self._kept_size += compiled.size + OVERHEAD
        while self._kept_size > KEPT and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._kept_size -= oldest.size + OVERHEAD


def check_options(wanted: StructuredOutputsParams, body: Written) -> None:
    """Raises RequestError if an option for JSON is set but the grammar contains no JSON."""
    for option, (unset, _, _) in OPTIONS.items():
        if not body.has_json and getattr(wanted, option) != unset:
            raise RequestError(f"{option} is of use only with json, json_object or a grammar with %json; leave it out", option)
