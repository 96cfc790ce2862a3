import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.study.measure.client.precise import new_loop

GET_SLACK = 30  # prctl(2)


def slack_ns() -> int:
    return int(ctypes.CDLL(None).prctl(GET_SLACK, 0, 0, 0, 0))


def slack_after() -> int:
    new_loop().close()
    return slack_ns()


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_the_thread_of_a_loop_sleeps_as_long_as_it_says() -> None:
    """Threads are born with the slack of who made them, so both are others than the test's own."""
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        before = one.submit(slack_ns).result()
        assert other.submit(slack_after).result() == 1
        assert one.submit(slack_ns).result() == before > 1
