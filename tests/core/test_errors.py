"""Errors cross from one process to another whole, whatever they are made of."""
import pickle
from collections.abc import Iterator

import pytest

from penstock.compute.decoding.propose.contract import MissingHeadsError
from penstock.core.errors import OverloadedError, PenstockError, RequestError


def below(kind: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from below(each)


@pytest.mark.parametrize("kind", list(below(PenstockError)))
def test_every_error_is_pickled(kind: type[PenstockError]) -> None:
    given = {"retry_after_s": 1.5} if issubclass(kind, OverloadedError) else {}
    error = kind("too much of it", **given)
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is kind
    assert str(found) == "too much of it"
    assert (found.args, vars(found), found.exit_status) == (error.args, vars(error), error.exit_status)


@pytest.mark.parametrize("error", [
    OverloadedError("wait", 2.5, param="model", code="late"),
    RequestError("no", "n", 503, "aborted"),
    MissingHeadsError("lacking", present=("a", "b")),
])
def test_what_an_error_carries_is_pickled(error: PenstockError) -> None:
    found = pickle.loads(pickle.dumps(error))
    assert (found.args, vars(found)) == (error.args, vars(error))
