"""Who asks: named API keys, each with the objectives and the priority that its requests have unless they say otherwise.

`--api-keys FILE` is TOML, a table for each name:

    [chat]
    key_env = "CHAT_KEY"              # or key = "...", or key_sha256 = "...": what `printf %s KEY | sha256sum` says
    slo = "ttft=300ms,tpot=50ms"
    [nightly]
    key_sha256 = "..."
    priority = 10                     # its requests may ask for a higher number, but not for a lower one
"""
import hashlib
import hmac
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.config import ServerConfig
from penstock.core.errors import UsageError
from penstock.core.slo import NO_OBJECTIVES, Objectives, parse_objectives

SECRETS = ("key", "key_env", "key_sha256")
FIELDS = (*SECRETS, "slo", "priority")
DIGEST_LENGTH = 64  # hexadecimal digits
UNSENT = "\0\n\v\f\r"  # what a header's value must not hold


@dataclass(frozen=True, slots=True)
class Asker:
    """`priority`: the least number, which is the highest place, that its requests may have; None: any."""

    name: str
    objectives: Objectives = NO_OBJECTIVES
    priority: int | None = None


class Keys:
    """`anybody`: who needs no key, where none was given out."""

    def __init__(self, known: Sequence[tuple[str, Asker]], anybody: Asker) -> None:
        """`known`: SHA-256 of each key in hexadecimal, and whose it is."""
        self._known = [(digest.encode(), asker) for digest, asker in known]
        self._anybody = anybody

    def asker(self, headers: Iterable[tuple[bytes, bytes]]) -> Asker | None:
        """Who sent a request with these headers; None where a key is needed and there is none, or a wrong one."""
        if not self._known:
            return self._anybody
        sent = next((value for name, value in headers if name == b"authorization"), b"")
        scheme, _, key = sent.partition(b" ")
        digest = hashlib.sha256(key.strip()).hexdigest().encode()
        found = None
        for known, asker in self._known:  # all of them: the time it takes tells nothing
            if hmac.compare_digest(known, digest):
                found = asker
        return found if scheme.lower() == b"bearer" else None


def read_keys(config: ServerConfig, environ: Mapping[str, str] = os.environ) -> Keys:
    """Raises UsageError, naming the key, for one that no request can send and a file that cannot be obeyed."""
    usual = NO_OBJECTIVES if config.slo_default is None else parse_objectives(config.slo_default, "--slo-default")
    known = [] if config.api_key is None else [(digest_of("--api-key", config.api_key), Asker("api-key", usual))]
    if config.api_keys is not None:
        for name, told in read_file(config.api_keys).items():
            known.append(read_key(f"{config.api_keys}: [{name}]", name, told, usual, environ))
    owners: dict[str, str] = {}
    for digest, asker in known:
        if owners.setdefault(digest, asker.name) != asker.name:
            raise UsageError(f"the API keys {owners[digest]} and {asker.name} are the same; each name needs its own")
    return Keys(known, Asker("anybody", usual))


def read_file(path: str) -> dict[str, Any]:
    """The tables of a file of keys, by name. Raises UsageError for one that cannot be read, is not TOML, or is empty."""
    try:
        told = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--api-keys: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"--api-keys: {path} is not TOML: {error}") from None
    if not told:
        raise UsageError(f"--api-keys: {path} has no key; it has a table for each name, like [chat] with key, slo and priority")
    return told


def read_key(owner: str, name: str, told: Any, usual: Objectives, environ: Mapping[str, str]) -> tuple[str, Asker]:
    """(SHA-256 of the key, whose it is). `usual`: objectives where the table has none."""
    if not isinstance(told, dict):
        raise UsageError(f"{owner} must be a table with {', '.join(FIELDS)}")
    for field in told:
        if field not in FIELDS:
            raise UsageError(f"{owner} has no {field!r}; it has: {', '.join(FIELDS)}")
    slo, priority = told.get("slo"), told.get("priority")
    if slo is not None and not isinstance(slo, str):
        raise UsageError(f"{owner} slo must be a string like \"ttft=200ms,tpot=50ms\", not {slo!r}")
    if priority is not None and type(priority) is not int:
        raise UsageError(f"{owner} priority must be a whole number, not {priority!r}")
    objectives = usual if slo is None else parse_objectives(slo, f"{owner} slo")
    return read_digest(owner, told, environ), Asker(name, objectives, priority)


def read_digest(owner: str, told: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """SHA-256 of a table's key, in hexadecimal. Raises UsageError unless there is just one, and for one that no request can send."""
    given = [field for field in SECRETS if field in told]
    if len(given) != 1:
        raise UsageError(f"{owner} needs one of {', '.join(SECRETS)}, and has {' and '.join(given) or 'none'}")
    value = told[given[0]]
    if not isinstance(value, str) or not value:
        raise UsageError(f"{owner} {given[0]} must be a string that is not empty")
    if "key_sha256" in told:
        if len(value) != DIGEST_LENGTH or not set(value.lower()) <= set("0123456789abcdef"):
            raise UsageError(f"{owner} key_sha256 must have {DIGEST_LENGTH} hexadecimal digits")
        return value.lower()
    if "key_env" in told:
        if not environ.get(value):
            raise UsageError(f"{owner} key_env: the environment has no {value}")
        value = environ[value]
    return digest_of(owner, value)


def digest_of(owner: str, key: str) -> str:
    """Raises UsageError for a key that no request can send."""
    if not key:
        raise UsageError(f"{owner}: the key is empty, which no request can send")
    if key != key.strip():
        raise UsageError(f"{owner}: the key begins or ends with white space, which no request can send")
    if held := next((char for char in key if char in UNSENT), None):
        raise UsageError(f"{owner}: the key holds {held!r}, which no request can send")
    return hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()  # of an argument or a variable in whatever encoding
