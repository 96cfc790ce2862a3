"""Keeps the items of arrays apart (`uniqueItems`), which no grammar can: follows the JSON text of an answer, and strikes tokens from masks
that would end an item like one before it in its array, or could not be followed by anything else."""
from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.compute.arrays import Array

if TYPE_CHECKING:
    from penstock.compute.decoding.grammar.schema.places import Differing, Place
    from penstock.compute.decoding.grammar.vocabulary import Spelling

ROOT = 1  # see Place
INSIDE = re.compile(rb'(?:[^"\\]|\\.)*', re.DOTALL)  # of a string, up to its end or a backslash at the end of what is known
STRUCTURE = re.compile(rb'["{}\[\],]')
QUOTE, BEHIND_QUOTE = b'"', b"#"  # the next byte
ALL = 0xFFFFFFFF  # of a mask's word


class Frame(NamedTuple):
    """An open object or array. `at`: the index of the item that comes; `name`: of the property whose value comes, None where a name does;
    `seen`: items of an array that are compared, as they are written between the quotes."""

    place: int
    is_object: bool
    at: int = 0
    name: str | None = None
    seen: frozenset[bytes] = frozenset()


class State(NamedTuple):
    """Behind a text. `frames`: what is open, the innermost last; `text`: what is written of a string, as far as it matters, None outside
    of strings; `fails`: two items are alike, or are going to be."""

    frames: tuple[Frame, ...] = ()
    text: bytes | None = None
    fails: bool = False


class Differ:
    """For one answer. Advances by `take`; `strike` leaves it where it is."""

    __slots__ = ("_places", "_spelled", "_states")

    def __init__(self, places: Sequence[Place], spelled: Spelled) -> None:
        self._places = places
        self._spelled = spelled
        self._states: dict[tuple[int, ...], State] = {(): State()}  # behind drafts

    def take(self, token: int) -> bool:
        """Advances over a token of the answer. Whether items still differ."""
        state = self._behind((token,))
        self._states = {(): state}
        return not state.fails

    def strike(self, mask: Array, drafts: Sequence[int] = ()) -> None:
        """Takes tokens from the mask of what may follow the drafts."""
        state = self._behind(tuple(drafts))
        self._strike_endings(state, mask)
        for token in self._suspects(state, mask):
            if self._after(state, self._spelled.text(token)).fails:
                mask[token >> 5] &= ALL ^ 1 << (token & 31)

    def _behind(self, drafts: tuple[int, ...]) -> State:
        """Found once for each draft of a step, however many are behind it."""
        if drafts not in self._states:
            self._states[drafts] = self._after(self._behind(drafts[:-1]), self._spelled.text(drafts[-1]))
        return self._states[drafts]

    def _strike_endings(self, state: State, mask: Array) -> None:
        """Of an item that may be any text: tokens that end it like one before, or make it as long as any can be and like one before."""
        items = self._compared(state.frames)
        if items is None or items.values is not None or state.text is None:
            return
        for item in state.frames[-1].seen:
            if item.startswith(state.text):
                self._spelled.strike_endings(mask, item[len(state.text) :], is_full(item, items))

    def _suspects(self, state: State, mask: Array) -> list[int]:
        """Allowed tokens, among them all others that fail: they have the quotes to end an item and the next one, or to begin one."""
        items = self._compared(state.frames)
        if items is None:
            return self._spelled.allowed(mask, 4)
        fewer = items.values is not None or items.most is not None  # then an item may fail before its end
        seen = state.frames[-1].seen
        if state.text is not None:
            is_begun = items.values is not None and any(item.startswith(state.text) for item in seen)
            return self._spelled.allowed(mask, 0 if is_begun else 3 - fewer)
        if not seen:
            return self._spelled.allowed(mask, 4 - fewer)
        if items.values is not None:
            return self._spelled.allowed(mask, 1)
        begun = [token for item in seen if is_full(item, items) for token in self._spelled.ending(item)]
        return [*self._spelled.allowed(mask, 2), *begun]

    def _compared(self, frames: tuple[Frame, ...]) -> Differing | None:
        return None if not frames or frames[-1].is_object else self._places[frames[-1].place].items

    def _after(self, state: State, data: bytes) -> State:
        """Behind more of the text."""
        frames, text, fails = state
        at = 0
        while at < len(data):
            if text is not None:
                whole = text + data[at:]
                inside = INSIDE.match(whole)
                assert inside is not None
                end = inside.end()
                if whole[end : end + 1] != QUOTE:
                    text = whole if self._matters(frames) else whole[end:]
                    break
                at += end + 1 - len(text)
                frames, text, alike = self._closed(frames, whole[:end]), None, self._is_seen(frames, whole[:end])
                fails |= alike
            elif (found := STRUCTURE.search(data, at)) is None:
                break
            else:
                at = found.end()
                if found[0] == QUOTE:
                    text = b""
                else:
                    frames = self._moved(frames, found[0])
        return State(frames, text, fails or (text is not None and self._is_stuck(frames, text)))

    def _moved(self, frames: tuple[Frame, ...], byte: bytes) -> tuple[Frame, ...]:
        """Behind a bracket or a comma."""
        if byte in b"{[":
            return (*frames, Frame(self._next_place(frames), byte == b"{"))
        if byte in b"}]" or not frames:
            return frames[:-1]
        return (*frames[:-1], frames[-1]._replace(at=frames[-1].at + 1, name=None))

    def _next_place(self, frames: tuple[Frame, ...]) -> int:
        """Of the value that comes next."""
        if not frames:
            return ROOT
        around, place = frames[-1], self._places[frames[-1].place]
        if around.is_object:
            return place.names.get(around.name or "", place.others)
        return place.prefix[around.at] if around.at < len(place.prefix) else place.rest

    def _matters(self, frames: tuple[Frame, ...]) -> bool:
        """Whether the text of an open string does."""
        return bool(frames) and (frames[-1].name is None if frames[-1].is_object else self._compared(frames) is not None)

    def _is_seen(self, frames: tuple[Frame, ...], text: bytes) -> bool:
        return self._compared(frames) is not None and text in frames[-1].seen

    def _closed(self, frames: tuple[Frame, ...], text: bytes) -> tuple[Frame, ...]:
        """Behind a string."""
        if not self._matters(frames):
            return frames
        last = frames[-1]
        return (*frames[:-1], last._replace(name=read(text)) if last.is_object else last._replace(seen=last.seen | {text}))

    def _is_stuck(self, frames: tuple[Frame, ...], text: bytes) -> bool:
        """Whether an item that begins so can only become like one before it."""
        items = self._compared(frames)
        if items is None:
            return False
        seen = frames[-1].seen
        if items.values is None:
            return text in seen and is_full(text, items)
        begun = takewhile(lambda value: value.startswith(text), islice(items.values, bisect_left(items.values, text), None))
        return all(value in seen for value in begun)


class Spelled:
    """The texts of a vocabulary's tokens, for masks. Made with the first grammar whose items are compared."""

    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling
        counts = np.array([text.count(QUOTE) for text in spelling.tokens])
        self._quoting = {least: np.flatnonzero(counts >= least) for least in (1, 2, 3, 4)}
        ordered = sorted([(spelling.tokens[token], token) for token in self._quoting[1].tolist()])
        self._texts = [text for text, _ in ordered]
        self._tokens = np.array([token for _, token in ordered], np.int64)  # of the texts
        self._behind: dict[bytes, list[int]] = {}  # what stands behind a token's last quote -> the tokens
        for text, token in ordered:
            self._behind.setdefault(text.rpartition(QUOTE)[2], []).append(token)

    def text(self, token: int) -> bytes:
        return self._spelling.plain(token)

    def allowed(self, mask: Array, num_quotes: int) -> list[int]:
        """The tokens with at least so many quotes (up to 4) that a mask allows."""
        if num_quotes == 0:
            found = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        else:
            tokens = self._quoting[num_quotes]
            found = tokens[(mask[tokens >> 5] >> (tokens & 31).astype(np.uint32) & 1).astype(bool)]
        return list(map(int, found))

    def ending(self, text: bytes) -> list[int]:
        """The tokens that end in a quote and a text."""
        return self._behind.get(text, [])

    def strike_endings(self, mask: Array, text: bytes, itself: bool) -> None:
        """Takes tokens from a mask that begin with a text and a quote; `itself`: and those that are the text."""
        first, last = bisect_left(self._texts, text + QUOTE), bisect_left(self._texts, text + BEHIND_QUOTE)
        tokens = self._tokens[first:last]
        if itself:
            tokens = np.concatenate([tokens, np.array(self._spelling.being(text), np.int64)])
        np.bitwise_and.at(mask, tokens >> 5, np.uint32(ALL) ^ (np.uint32(1) << (tokens & 31).astype(np.uint32)))


def is_full(text: bytes, items: Differing) -> bool:
    """Whether an item is as long as any can be."""
    return items.most is not None and len(read(text)) >= items.most


def read(text: bytes) -> str:
    """A string from what stands between its quotes; "" where it is not whole."""
    try:
        found: str = json.loads(f'"{text.decode()}"')
    except ValueError:
        return ""
    return found
