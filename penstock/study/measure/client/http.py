"""One HTTP/1.1 answer, read as its bytes come in (RFC 9112): status, headers, and a body by length, in chunks, or until the end."""
from collections.abc import Mapping

from penstock.core.errors import PenstockError

MAX_HEAD = 64 << 10  # bytes
HEX = frozenset(b"0123456789abcdefABCDEF")
NO_BODY = (204, 304)


class BadAnswer(PenstockError):
    """What the server sent is no HTTP."""


class Reply:
    """Fed with bytes, gives the body's. `done` when it is complete; `reusable` when another request may follow on the connection."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.begun = False  # something of it has come
        self.done = False
        self.reusable = False
        self._buffer = b""
        self._at = 0  # of it, what was read
        self._read = self._read_head
        self._left = 0  # bytes of the body, or of its chunk

    def feed(self, data: bytes) -> bytes:
        """The body's part in `data`. Raises BadAnswer."""
        self.begun = True
        self._buffer = self._buffer[self._at :] + data if self._at < len(self._buffer) else data
        self._at = 0
        pieces: list[bytes] = []
        while not self.done and (found := self._read()) is not None:
            if found:
                pieces.append(found)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def ended(self) -> None:
        """The connection was closed. Raises BadAnswer when more was to come."""
        if self._read == self._read_to_end:
            self.done = True
        elif not self.done:
            raise BadAnswer("the server closed the connection in the middle of its answer" if self.begun else
                            "the server closed the connection without an answer")

    def _read_head(self) -> bytes | None:
        end = self._buffer.find(b"\r\n\r\n", self._at)
        if end < 0:
            if len(self._buffer) - self._at > MAX_HEAD:
                raise BadAnswer(f"the answer's head is longer than {MAX_HEAD} bytes")
            return None
        lines = self._buffer[self._at : end].decode("latin-1").split("\r\n")
        self._at = end + 4
        version, _, rest = lines[0].partition(" ")
        if not version.startswith("HTTP/1.") or not is_number(rest[:3]):
            raise BadAnswer(f"the answer begins with {lines[0]!r:.60}, not with HTTP/1.1 and a status")
        status = int(rest[:3])
        if 100 <= status < 200:
            return b""  # another head follows
        self.status = status
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        closes = "close" in self.headers.get("connection", "").lower() or version == "HTTP/1.0"
        self._choose_body(closes)
        return b""

    def _choose_body(self, closes: bool) -> None:
        length = self.headers.get("content-length")
        if self.status in NO_BODY:
            self.done, self.reusable = True, not closes
        elif "chunked" in self.headers.get("transfer-encoding", "").lower():
            self._read, self.reusable = self._read_size, not closes
        elif length is not None:
            if not is_number(length):
                raise BadAnswer(f"the answer's content-length is {length!r:.30}")
            self._left, self._read, self.reusable = int(length), self._read_length, not closes
            self.done = self._left == 0
        else:
            self._read = self._read_to_end

    def _read_length(self) -> bytes | None:
        found = self._take(self._left)
        self._left -= len(found)
        self.done = self._left == 0
        return found or None

    def _read_to_end(self) -> bytes | None:
        return self._take(len(self._buffer)) or None

    def _read_size(self) -> bytes | None:
        """A chunk's size, and what is there of the chunk."""
        end = self._buffer.find(b"\r\n", self._at)
        if end < 0:
            if len(self._buffer) - self._at > MAX_HEAD:
                raise BadAnswer(f"a chunk's size is longer than {MAX_HEAD} bytes")
            return None
        size = self._buffer[self._at : end].partition(b";")[0].strip()
        if not size or not HEX.issuperset(size):
            raise BadAnswer(f"a chunk's size is {size!r:.30}")
        self._left, self._at = int(size, 16), end + 2
        self._read = self._read_chunk if self._left else self._read_trailer
        return self._read()

    def _read_chunk(self) -> bytes | None:
        """Of a chunk that is not all there yet, what is there."""
        if len(self._buffer) >= self._at + self._left + 2:
            found = self._take(self._left)
            self._at += 2
            self._read = self._read_size
            return found
        found = self._take(self._left)
        self._left -= len(found)
        return found or None

    def _read_trailer(self) -> bytes | None:
        end = self._buffer.find(b"\r\n", self._at)
        if end < 0:
            return None
        self.done = end == self._at
        self._at = end + 2
        return b""

    def _take(self, size: int) -> bytes:
        """So many of the next bytes, or as many as there are."""
        found = self._buffer[self._at : self._at + size]
        self._at += len(found)
        return found


def is_number(text: str) -> bool:
    """Whether it is digits as HTTP knows them: Python knows more."""
    return text.isascii() and text.isdigit()


def merged(*headers: Mapping[str, str]) -> dict[str, str]:
    """Of one that is named several times, in whichever case, the last."""
    found = {name.lower(): (name, value) for each in headers for name, value in each.items()}
    return dict(found.values())


def request_bytes(method: str, path: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    """A request's bytes; `headers` includes Host."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
