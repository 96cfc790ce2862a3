"""Errors that a user may see. Each message is one sentence with the number that did not fit and the value that would.

`exit_status` is what a command ends with: 2 where what the command line asks for cannot be obeyed, 1 where it could be and the work failed.
"""
from typing import Any

FAILED, WRONG_USAGE = 1, 2
INTERRUPTS = (KeyboardInterrupt, SystemExit)  # meant for the process. All else is a failure: a panic of native code is no Exception


class PenstockError(Exception):
    """Anything that Penstock refuses or fails at on purpose; printed without a traceback."""

    exit_status = FAILED

    def __reduce__(self) -> tuple[Any, ...]:
        """Made again without `__init__`, whose parameters only its own class knows."""
        return _made_again, (type(self), self.args), vars(self)


def _made_again(kind: type[PenstockError], args: tuple[Any, ...]) -> PenstockError:
    return kind.__new__(kind, *args)


class UsageError(PenstockError):
    """An option that does not exist, a value that it cannot take, or a file that is not what the option needs."""

    exit_status = WRONG_USAGE


class ModelError(PenstockError):
    """A checkpoint that cannot be loaded: unknown architecture, missing or misshapen tensor, truncated file."""


class NoModelError(ModelError):
    """A name that no model has."""

    exit_status = WRONG_USAGE


class CapacityError(PenstockError):
    """Something that does not fit in memory or in the KV cache."""


class RequestError(PenstockError):
    """A request that is refused. `param` names the field at fault, `status` is the HTTP status, `code` the API's word for it."""

    def __init__(self, message: str, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.status = status
        self.code = code
        self.exit_status = WRONG_USAGE if status < 500 else FAILED


class OverloadedError(RequestError):
    """Too much is asked of the server for now; try again after `retry_after_s` seconds."""

    def __init__(self, message: str, retry_after_s: float, param: str | None = None, code: str = "rate_limit_exceeded") -> None:
        super().__init__(message, param, status=429, code=code)
        self.retry_after_s = retry_after_s
        self.exit_status = FAILED
