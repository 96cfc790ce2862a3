"""Server-sent events: bytes in, each event's data out (WHATWG HTML, section 9.2; lines end in LF or CR LF)."""


class EventReader:
    def __init__(self) -> None:
        self._rest = bytearray()  # of an event that is not complete

    def feed(self, body: bytes) -> list[bytes]:
        """The data of the events that are complete with these bytes."""
        at = max(0, len(self._rest) - 3)  # an empty line may be cut
        self._rest += body
        if self._rest.find(b"\n\n", at) < 0 and self._rest.find(b"\n\r\n", at) < 0:
            return []
        text = bytes(self._rest)
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        *events, rest = text.split(b"\n\n")
        self._rest = bytearray(rest)
        return [data for event in events if (data := data_of(event))]  # an empty one is a keep-alive


def data_of(event: bytes) -> bytes | None:
    """The data of one event; None for a comment or one without data."""
    if event.startswith(b"data: ") and b"\n" not in event:
        return event[6:]
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
