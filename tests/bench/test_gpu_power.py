"""Power that nvidia-smi does not tell is a failure beside the energy that is counted, and no end of the run."""
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from gpu import power


def test_samples_are_summed_up() -> None:
    watts: Iterator[float] = iter((300.0, 500.0))

    def read() -> float:
        try:
            return next(watts)
        except StopIteration:
            raise ValueError("no more") from None

    with power.sampling(read) as sampled:
        while not sampled.failure:
            time.sleep(0.001)
    assert sampled.watts == [300.0, 500.0] and power.Sampled(sampled.watts).told() == {"sampled_watts": 400.0, "samples": 2}
    assert power.Sampled().told().keys() == {"failure"}


def test_a_thread_that_starts_late_samples_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late:
        def __init__(self, target: Callable[[], None]) -> None:
            self.join = target

        def start(self) -> None:
            pass

    monkeypatch.setattr(power.threading, "Thread", Late)
    with power.sampling(lambda: 300.0) as sampled:
        pass
    assert sampled.watts == [300.0]


@pytest.mark.parametrize(("told", "why"), [("[N/A]\n", "ValueError"), ("", "IndexError"), (None, "FileNotFoundError")])
def test_a_gpu_that_tells_no_power_is_a_failure(told: str | None, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: tuple[str, ...], **options: object) -> subprocess.CompletedProcess[str]:
        if told is None:
            raise FileNotFoundError(command[0])
        return subprocess.CompletedProcess(command, 0, told)

    monkeypatch.setattr(subprocess, "run", run)
    with power.sampling() as sampled:
        pass
    assert sampled.told()["failure"].startswith(why)
