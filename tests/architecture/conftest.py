"""The parsed sources, ten million objects, are let go of when these tests end: whatever collects garbage later would go through them."""
from collections.abc import Iterator

import pytest

from tests.architecture.source import forget


@pytest.fixture(scope="package", autouse=True)
def parsed() -> Iterator[None]:
    yield
    forget()
