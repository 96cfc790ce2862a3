"""What every test shares: the installed package, no network, one thread, Ctrl-C heard, and property tests that try the same cases every
time."""
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.sort(key=lambda folder: Path(folder).resolve() == Path(__file__).resolve().parents[1])  # what is installed before the checkout

import penstock
from penstock.core import message
from tests.guard import offline

ROOT, INSTALLED = Path(__file__).resolve().parents[1], Path(penstock.__file__).resolve().parents[1]
if INSTALLED != ROOT:  # programs that tests start take it too, and not the checkout's sources, which have no native module
    folders = (str(INSTALLED), str(ROOT), os.environ.get("PYTHONPATH"))
    os.environ |= {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(filter(None, folders))}

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
for _library in ("OMP", "OPENBLAS", "MKL"):  # tiny products gain nothing from threads, and wait for each other on a busy machine
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's `make test &` would have it so, also for what tests start
    signal.signal(signal.SIGINT, signal.default_int_handler)

message.message = dataclass(frozen=True, slots=True)  # before anything else of penstock is imported: whoever changes a message fails

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    with offline():
        yield


def pytest_report_header() -> str:
    return f"penstock: {Path(penstock.__file__).parent}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collecting makes a million objects that all stay: they are not searched for garbage, neither meanwhile nor by any test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Nor is what is left when a file is through, as modules and what its tests share."""
    try:
        return (yield)
    finally:
        if nextitem is not None and nextitem.path != item.path:
            gc.collect()
            gc.freeze()


def pytest_unconfigure() -> None:
    """What was set aside can go when the process ends: else native objects that it holds are reported as leaks."""
    gc.unfreeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--draws", type=int, default=0, metavar="N", help="draw other numbers in the tests of distributions (default: 0)")


@pytest.fixture(scope="session")
def first_seed(request: pytest.FixtureRequest) -> int:
    """The first of 2**32 seeds that a test of a distribution may draw with: others for each --draws."""
    return int(request.config.getoption("--draws")) << 32
