"""Errors that a user may see. Each message is one sentence with the number that did not fit and the value that would."""


class PenstockError(Exception):
    """Anything that Penstock refuses or fails at on purpose; printed without a traceback, exit status 1."""


class UsageError(PenstockError):
    """An option that does not exist, or a value that it cannot take; exit status 2."""


class ModelError(PenstockError):
    """A checkpoint that cannot be loaded: unknown architecture, missing or misshapen tensor, truncated file."""


class CapacityError(PenstockError):
    """Something that does not fit in memory or in the KV cache."""


class RequestError(PenstockError):
    """A request that is refused. `param` names the field at fault, `status` is the HTTP status, `code` the API's word for it."""

    def __init__(self, message: str, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.status = status
        self.code = code


class OverloadedError(RequestError):
    """Too much is asked of the server for now; try again after `retry_after_s` seconds."""

    def __init__(self, message: str, retry_after_s: float, param: str | None = None, code: str = "rate_limit_exceeded") -> None:
        super().__init__(message, param, status=429, code=code)
        self.retry_after_s = retry_after_s
