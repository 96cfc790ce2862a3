import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.study.measure.client.precise import new_loop

SET_SLACK, GET_SLACK = 29, 30  # prctl(2)
USUAL_NS = 50_000


def prctl(option: int, value: int = 0) -> int:
    return int(ctypes.CDLL(None).prctl(option, value, 0, 0, 0))


def slack_after_a_loop() -> int:
    prctl(SET_SLACK, USUAL_NS)
    new_loop().close()
    return prctl(GET_SLACK)


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_the_thread_of_a_loop_sleeps_as_long_as_it_says() -> None:
    """And no other thread. Each has its own slack from the start, since the test's own may have made a loop before."""
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        one.submit(prctl, SET_SLACK, USUAL_NS).result()
        assert other.submit(slack_after_a_loop).result() == 1
        assert one.submit(prctl, GET_SLACK).result() == USUAL_NS
