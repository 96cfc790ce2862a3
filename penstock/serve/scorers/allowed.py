"""Which URLs a request may have the server ask: those below the prefixes that the server was started with."""
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from penstock.core.errors import UsageError

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Place:
    scheme: str
    host: str
    port: int
    path: str

    def holds(self, other: "Place") -> bool:
        """Whether `other` is this place or below it."""
        same = (self.scheme, self.host, self.port) == (other.scheme, other.host, other.port)
        path = self.path.rstrip("/")
        return same and (other.path == path or other.path.startswith(path + "/"))


def place_of(url: str) -> Place:
    """Raises ValueError, saying what is wrong, unless it is an absolute http or https URL that can be read in one way only."""
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise ValueError("it has characters that a URL cannot have")
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError("it does not begin with http:// or https:// and a host")
    if "@" in parts.netloc:
        raise ValueError("it has a user name before its host")
    if parts.fragment:
        raise ValueError("it has a fragment")
    if any(unquote(part) in (".", "..") for part in parts.path.split("/")) or "%2f" in parts.path.lower() or "%5c" in parts.path.lower():
        raise ValueError("its path goes up or hides a slash")
    return Place(parts.scheme, parts.hostname, port_of(parts), parts.path or "/")


def port_of(parts: SplitResult) -> int:
    """Raises ValueError for a port that is none."""
    port = parts.port
    if port == 0:
        raise ValueError("port 0 cannot be connected to")
    return PORTS[parts.scheme] if port is None else port


@dataclass(frozen=True, slots=True)
class Allowed:
    """`places` None: any URL, for whoever calls the engine in a process of their own."""

    places: tuple[Place, ...] | None

    def __call__(self, url: str) -> bool:
        if self.places is None:
            return True
        return any(place.holds(place_of(url)) for place in self.places)


def allowed(prefixes: Sequence[str] | None) -> Allowed:
    """What is at these URLs and below; None: any URL. Raises UsageError, naming it, for a prefix that is no URL, or has a query."""
    return Allowed(None if prefixes is None else tuple([prefix_place(prefix) for prefix in prefixes]))


def prefix_place(prefix: str) -> Place:
    try:
        place = place_of(prefix)
        if urlsplit(prefix).query:
            raise ValueError("it has a query, which requests may choose; leave it out")
    except ValueError as error:
        raise UsageError(f"--scorer-url {prefix} cannot be used: {error}") from None
    return place
