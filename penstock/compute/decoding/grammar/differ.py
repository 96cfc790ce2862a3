"""Keeps the items of arrays apart (`uniqueItems`), which no grammar can: follows the JSON text of an answer, and strikes tokens from masks
that would end an item like one before it in its array, or could not be followed by anything else."""
from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.compute.arrays import Array
from penstock.compute.decoding.grammar.alike import texts_in, value_of

if TYPE_CHECKING:
    from penstock.compute.decoding.grammar.schema.places import Differing, Place
    from penstock.compute.decoding.grammar.vocabulary import Spelling

ROOT = 1  # see Place
ALONE = -1  # where no item begins that is compared as a whole
INSIDE = re.compile(rb'(?:[^"\\]|\\.)*', re.DOTALL)  # of a string, up to its end or a backslash at the end of what is known
STRUCTURE = re.compile(rb'["{}\[\],ntf]')
LITERALS = {b"n": b"null", b"t": b"true", b"f": b"false"}  # by a byte that nothing else has outside of strings
CLOSING = re.compile(rb'[}\]]|".*"|^[^"]*[ntf]', re.DOTALL)  # of a token behind which, outside of strings, an item may be determined
SEVERAL = re.compile(rb'[}\]"ntf].*,.*[}\]"ntf]', re.DOTALL)  # of a token in which two may
QUOTE, BEHIND_QUOTE = b'"', b"#"  # the next byte
ALL = 0xFFFFFFFF  # of a mask's word


class Frame(NamedTuple):
    """An open object or array. `at`: the index of the item that comes; `name`: of the property whose value comes, None where a name does.

    Of an array whose items are compared: `seen`: those before, texts as they are written between the quotes; `stuck`: beginnings of texts
    that could become nothing but one of these; `begins`: where in the text that is kept the item begins, if it may be no text; `texts`: all
    that are in those before."""

    place: int
    is_object: bool
    at: int = 0
    name: str | None = None
    seen: frozenset[bytes | str] = frozenset()
    stuck: frozenset[bytes] = frozenset()
    begins: int = ALONE
    texts: frozenset[bytes] = frozenset()


class State(NamedTuple):
    """Behind a text. `frames`: what is open, the innermost last; `text`: what is written of a string, as far as it matters, None outside
    of strings; `fails`: two items are alike, or are going to be; `kept`: the text from where the outermost item begins that is compared as
    a whole."""

    frames: tuple[Frame, ...] = ()
    text: bytes | None = None
    fails: bool = False
    kept: bytes = b""


class Differ:
    """For one answer. Advances by `take`; `strike` leaves it where it is."""

    __slots__ = ("_places", "_spelled", "_states", "_has_others")

    def __init__(self, places: Sequence[Place], spelled: Spelled) -> None:
        self._places = places
        self._spelled = spelled
        self._states: dict[tuple[int, ...], State] = {(): State()}  # behind drafts
        self._has_others = any(place.has_others for place in places)

    def take(self, token: int) -> bool:
        """Advances over a token of the answer. Whether items still differ."""
        state = self._behind((token,))
        self._states = {(): state}
        return not state.fails

    def strike(self, mask: Array, drafts: Sequence[int] = ()) -> None:
        """Takes tokens from the mask of what may follow the drafts."""
        state = self._behind(tuple(drafts))
        for text in self._endings(state):
            self._spelled.strike_endings(mask, text)
        suspects = np.fromiter({*self._suspects(state, mask), *self._suspects_of_others(state, mask)}, np.int64)
        for token in allowed_of(suspects, mask):
            if self._after(state, self._spelled.text(token)).fails:
                mask[token >> 5] &= ALL ^ 1 << (token & 31)

    def _behind(self, drafts: tuple[int, ...]) -> State:
        """Found once for each draft of a step, however many are behind it."""
        if drafts not in self._states:
            self._states[drafts] = self._after(self._behind(drafts[:-1]), self._spelled.text(drafts[-1]))
        return self._states[drafts]

    def _endings(self, state: State) -> list[bytes]:
        """What would end an item that is a text so that it is like one before."""
        frames, text = state.frames, state.text
        if text is None or self._compared(frames) is None:
            return []
        return [item[len(text) :] for item in frames[-1].seen if isinstance(item, bytes) and item.startswith(text)]

    def _suspects(self, state: State, mask: Array) -> list[int]:
        """Allowed tokens, among them all others that fail by items that are texts: they have the quotes to end an item and the next one, or
        to begin one."""
        items, text = self._compared(state.frames), state.text
        if items is None:
            return self._spelled.allowed(mask, 4)
        fewer = not items.is_free  # then an item may fail before its end
        last = state.frames[-1]
        if text is not None:
            begun = [begun[len(text) :] for begun in last.stuck if begun.startswith(text)]
            return [*self._spelled.allowed(mask, 3 - fewer), *(token for each in begun for token in self._spelled.being(each))]
        if not last.seen:
            return self._spelled.allowed(mask, 4 - fewer)
        return [*self._spelled.allowed(mask, 2), *self._spelled.ending(last.stuck)]

    def _suspects_of_others(self, state: State, mask: Array) -> list[int]:
        """The same, of those that fail by other items: they have brackets to end one, or a text that was in one before."""
        if not self._has_others:
            return []
        arrays = [frame for frame in state.frames if frame.begins != ALONE and frame.seen]
        if state.text is None:
            return self._spelled.closing(mask) if arrays else self._spelled.several(mask)
        begun = {text[len(state.text) :] for frame in arrays for text in frame.texts if text.startswith(state.text)}
        return [*self._spelled.several(mask), *(token for text in begun for token in self._spelled.endings(text))]

    def _compared(self, frames: tuple[Frame, ...]) -> Differing | None:
        return None if not frames or frames[-1].is_object else self._places[frames[-1].place].items

    def _after(self, state: State, data: bytes) -> State:
        """Behind more of the text."""
        frames, text, fails, kept = state
        at = cut = 0  # what is before `cut` is in what is kept, or is not kept
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
                frames, alike = self._closed(frames, whole[:end], kept + data[cut:at])
                text, fails = None, fails or alike
            elif (found := STRUCTURE.search(data, at)) is None:
                break
            else:
                at = found.end()
                if found[0] == QUOTE:
                    text = b""
                    continue
                frames, alike = self._moved(frames, found[0], kept + data[cut:at])
                fails |= alike
                if found[0] in b"[,]" and all(frame.begins == ALONE for frame in frames[:-1]):
                    kept, cut = b"", at  # whatever begins, begins here
                    if frames and frames[-1].begins != ALONE:
                        frames = (*frames[:-1], frames[-1]._replace(begins=0))
        is_kept = any(frame.begins != ALONE for frame in frames)
        return State(frames, text, fails or (text is not None and self._is_stuck(frames, text)), kept + data[cut:] if is_kept else b"")

    def _moved(self, frames: tuple[Frame, ...], byte: bytes, kept: bytes) -> tuple[tuple[Frame, ...], bool]:
        """Behind a bracket, a comma, or the first byte of a literal; and whether two items are alike."""
        if byte in b"{[":
            place = self._next_place(frames)
            is_compared = byte == b"[" and self._places[place].has_others
            return (*frames, Frame(place, byte == b"{", begins=len(kept) if is_compared else ALONE)), False
        if byte in b"}]":
            return self._ended(frames[:-1], kept)
        if byte in LITERALS:
            return self._ended(frames, kept + LITERALS[byte][1:])
        if not frames:
            return frames, False
        last = frames[-1]
        return (*frames[:-1], last._replace(at=last.at + 1, name=None, begins=ALONE if last.begins == ALONE else len(kept))), False

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
        if any(frame.begins != ALONE for frame in frames):
            return True
        return bool(frames) and (frames[-1].name is None if frames[-1].is_object else self._compared(frames) is not None)

    def _closed(self, frames: tuple[Frame, ...], text: bytes, kept: bytes) -> tuple[tuple[Frame, ...], bool]:
        """Behind a string; and whether two items are alike."""
        if frames and frames[-1].is_object and frames[-1].name is None:
            return (*frames[:-1], frames[-1]._replace(name=read(text))), False
        items = self._compared(frames)
        if items is None:
            return self._ended(frames, kept)
        last = frames[-1]
        seen = last.seen | {text}
        stuck = last.stuck if items.is_free else last.stuck.union(stuck_by(text, seen, items))
        texts = last.texts if last.begins == ALONE else last.texts | {text}
        return (*frames[:-1], last._replace(seen=seen, stuck=stuck, texts=texts)), text in last.seen

    def _ended(self, frames: tuple[Frame, ...], kept: bytes) -> tuple[tuple[Frame, ...], bool]:
        """Behind a value that is no item that is a text; and whether two items are alike."""
        found = self._determined(frames)
        if found is None:
            return frames, False
        array, closers = found
        item, last = self._item(frames, array, kept + closers), frames[-1]
        is_like = item is None or item in frames[array].seen
        if item is None or closers:
            return frames, is_like
        return (*frames[:-1], last._replace(seen=last.seen | {item}, texts=last.texts.union(texts_in(item)))), is_like

    def _determined(self, frames: tuple[Frame, ...]) -> tuple[int, bytes] | None:
        """Of which array an item is compared when the open value ends, and the brackets that are still needed: that value is the last
        property of all that are open in the item."""
        if self._has_others:
            for at in range(len(frames) - 1, -1, -1):
                frame = frames[at]
                if frame.begins != ALONE:
                    return at, b"}" * (len(frames) - 1 - at)
                if not frame.is_object or frame.name not in self._places[frame.place].ending.last:
                    break
        return None

    def _item(self, frames: tuple[Frame, ...], array: int, kept: bytes) -> str | None:
        """As it is compared. `kept`: up to its end."""
        behind = self._places[self._places[frames[array].place].rest].ending.behind
        return value_of(kept[frames[array].begins :], behind)

    def _is_stuck(self, frames: tuple[Frame, ...], text: bytes) -> bool:
        """Whether an item that begins so can only become like one before it."""
        return self._compared(frames) is not None and text in frames[-1].stuck


class Spelled:
    """The texts of a vocabulary's tokens, for masks. Made with the first grammar whose items are compared."""

    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling
        counts = np.array([text.count(QUOTE) for text in spelling.tokens])
        self._quoting = {least: np.flatnonzero(counts >= least) for least in (1, 2, 3, 4)}
        self._closing, self._several = (
            np.flatnonzero([pattern.search(text) is not None for text in spelling.tokens]) for pattern in (CLOSING, SEVERAL))
        ordered = sorted([(spelling.tokens[token], token) for token in self._quoting[1].tolist()])
        self._texts = [text for text, _ in ordered]
        self._tokens = np.array([token for _, token in ordered], np.int64)  # of the texts
        self._behind: dict[bytes, list[int]] = {}  # what stands behind a token's last quote -> the tokens
        for text, token in ordered:
            self._behind.setdefault(text.rpartition(QUOTE)[2], []).append(token)

    def text(self, token: int) -> bytes:
        return self._spelling.plain(token)

    def being(self, text: bytes) -> list[int]:
        """The tokens that are a text."""
        return self._spelling.being(text)

    def allowed(self, mask: Array, num_quotes: int) -> list[int]:
        """The tokens with at least so many quotes (1 to 4) that a mask allows."""
        return allowed_of(self._quoting[num_quotes], mask)

    def closing(self, mask: Array) -> list[int]:
        """The tokens that a mask allows and that may end an item that is no text, where no string is open."""
        return allowed_of(self._closing, mask)

    def several(self, mask: Array) -> list[int]:
        """The tokens that a mask allows and that may end two."""
        return allowed_of(self._several, mask)

    def ending(self, texts: frozenset[bytes]) -> list[int]:
        """The tokens that end in a quote and one of the texts."""
        return [token for text in self._behind.keys() & texts for token in self._behind[text]]

    def endings(self, text: bytes) -> list[int]:
        """The tokens that begin with a text and a quote."""
        first, last = bisect_left(self._texts, text + QUOTE), bisect_left(self._texts, text + BEHIND_QUOTE)
        found: list[int] = self._tokens[first:last].tolist()
        return found

    def strike_endings(self, mask: Array, text: bytes) -> None:
        """Takes tokens from a mask that begin with a text and a quote."""
        tokens = np.array(self.endings(text), np.int64)
        np.bitwise_and.at(mask, tokens >> 5, np.uint32(ALL) ^ (np.uint32(1) << (tokens & 31).astype(np.uint32)))


def allowed_of(tokens: Array, mask: Array) -> list[int]:
    """Those of the tokens that a mask allows."""
    found = tokens[(mask[tokens >> 5] >> (tokens & 31).astype(np.uint32) & 1).astype(bool)]
    return list(map(int, found))


def stuck_by(text: bytes, seen: frozenset[bytes | str], items: Differing) -> Iterator[bytes]:
    """Beginnings of an item that is now among those seen, which now can only become one of these."""
    for end in range(len(text), -1, -1):
        begun = text[:end]
        if sum([isinstance(item, bytes) and item.startswith(begun) for item in seen]) < items.num(begun):
            break
        yield begun


def read(text: bytes) -> str:
    """A string from what stands between its quotes; "" where it is not whole."""
    try:
        found: str = json.loads(f'"{text.decode()}"')
    except ValueError:
        return ""
    return found
