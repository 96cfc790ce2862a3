"""`--log-requests DIR`: each request as one JSON file with a `curl` that sends it again."""
import itertools
import json
import logging
import os
import secrets
import shlex
import time
from pathlib import Path
from typing import Any

from penstock.core.config import ServerConfig
from penstock.core.errors import UsageError

log = logging.getLogger(__name__)
LONGEST_ARGUMENT = 100_000  # bytes; Linux takes 128 KiB


def base_url(config: ServerConfig) -> str:
    """Where the server is found, without a path."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"http://{host}:{config.port}"


class RequestLog:
    """Files appear whole: written under a temporary name, then renamed. They hold what users wrote, so only the owner may read them.

    The API key is left out: the curl takes it from $PENSTOCK_API_KEY. Where no file can be written, requests are served all the same.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.folder = Path(config.log_requests or ".")
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UsageError(f"--log-requests {self.folder} cannot be made: {error.strerror}") from None
        self._base_url = base_url(config)
        self._asks_key = config.api_key is not None or config.api_keys is not None
        self._token = secrets.token_hex(4)  # processes of several containers may have the same number
        self._numbers = itertools.count()
        self._warned = False

    def write(self, path: str, body: dict[str, Any], request_id: str = "") -> Path | None:
        """Writes one request, before it is checked. `request_id`: of the answer's `X-Request-Id`. Returns the file; None where it cannot be
        written, of which the first time is told."""
        try:
            return self._write(path, body, request_id)
        except OSError as error:
            if not self._warned:
                log.warning("--log-requests: %s cannot be written to, and requests are not logged: %s", self.folder, error.strerror)
            self._warned = True
            return None

    def _write(self, path: str, body: dict[str, Any], request_id: str) -> Path:
        name = f"{time.strftime('%Y%m%dT%H%M%S')}-{self._token}-{next(self._numbers):06d}"
        text = json.dumps(body, ensure_ascii=False)
        if len(text.encode()) > LONGEST_ARGUMENT:
            data = "@" + shlex.quote(str(self._put(f"{name}.body.json", text).absolute()))
        else:
            data = shlex.quote(text)
        key = ' -H "Authorization: Bearer $PENSTOCK_API_KEY"' if self._asks_key else ""
        curl = f"curl {shlex.quote(self._base_url + path)} -H 'Content-Type: application/json'{key} --data-binary {data}"
        record = {"time": time.time(), "x_request_id": request_id, "path": path, "body": body, "curl": curl}
        try:
            return self._put(f"{name}.json", json.dumps(record, ensure_ascii=False, indent=1))
        except OSError:
            (self.folder / f"{name}.body.json").unlink(missing_ok=True)
            raise

    def _put(self, name: str, text: str) -> Path:
        temporary = self.folder / f".{name}.tmp"
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            return temporary.rename(self.folder / name)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
