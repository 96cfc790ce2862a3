"""Tiny products gain nothing from threads."""
from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
