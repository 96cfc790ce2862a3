"""Tokens that end an answer, where a grammar refers to tokens: they cannot be a part of it."""
from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

from penstock.compute.decoding.grammar.written import Written
from penstock.core.errors import RequestError

RANGE = r"\+?\d{1,18}(?:-\+?\d{1,18})?"
LISTED = re.compile(rf"<\[(\^?)({RANGE}(?:,{RANGE})*)\]>")  # <[3-7,12]>, <[^3-7,12]>: any but these
ANY = "<[*]>"


def without_ends(written: Written, ends: Mapping[int, str], size: int) -> Written:
    """The grammar, in which a reference to any token, or to any but some, does not mean those that end an answer. `ends`: their texts by
    their numbers; `size`: of the vocabulary. Raises RequestError for a reference that names one of them, or leaves no other token."""
    changed = [(at, old, new) for at, old in written.tokens if (new := read(old, ends, size)) != old]
    if not changed:
        return written
    parts, done = [], 0
    for at, old, new in changed:
        parts += [written.text[done:at], new]
        done = at + len(old)
    places = [at for at, _, _ in changed]
    grown = [0, *accumulate(len(new) - len(old) for _, old, new in changed)]
    copied = tuple([(begin + grown[bisect_right(places, begin - 1)], source) for begin, source in written.copied])
    return replace(written, text="".join([*parts, written.text[done:]]), copied=copied)


def read(reference: str, ends: Mapping[int, str], size: int) -> str:
    """The reference without the tokens that end an answer. Raises RequestError if it names one of them, or leaves no other token."""
    listed = LISTED.fullmatch(reference)
    if reference == ANY:
        return f"<[^{','.join(map(str, ends))}]>"
    if listed is not None and listed[1]:
        denied = ",".join([listed[2], *(str(token) for token in ends if not holds(listed[2], token))])
        if is_all(denied, size):
            raise RequestError(f"grammar has {reference[:80]}, which leaves no token but those that end an answer", "grammar")
        return f"<[^{denied}]>"
    for token, text in ends.items():
        if reference == text or listed is not None and holds(listed[2], token):
            named = reference if reference == text else f"{reference[:80]}, and so the token {f'{token} {text}'.rstrip()}"
            raise RequestError(
                f"grammar has {named}, which ends every answer and may come wherever the grammar ends, but nowhere else: leave it out",
                "grammar")
    return reference


def holds(listed: str, token: int) -> bool:
    """Whether numbers and ranges, such as 3-7,12, include a token."""
    return any(low <= token <= high for low, high in bounds(listed))


def is_all(listed: str, size: int) -> bool:
    """Whether they include every token of a vocabulary."""
    at = 0
    for low, high in sorted(bounds(listed)):
        if low > at:
            return False
        at = max(at, high + 1)
    return at >= size


def bounds(listed: str) -> list[tuple[int, int]]:
    """The first and the last token of each range."""
    parts = [part.split("-") for part in listed.split(",")]
    return [(int(part[0]), int(part[-1])) for part in parts]
