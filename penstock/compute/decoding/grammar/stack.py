"""Runs deeply recursive native code on a thread with a large stack: overflowing the stack would end the process."""
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
STACK = 512 << 20  # bytes, committed only when used: llguidance takes 10 kB per level of nesting, of which there may be 10,000
_starting = threading.Lock()


def deeply(function: Callable[[], T]) -> T:
    """Calls `function` in a thread of its own; returns or raises what it does. Raises RuntimeError if the thread cannot be started."""
    found: Future[T] = Future()

    def work() -> None:
        try:
            found.set_result(function())
        except BaseException as error:
            found.set_exception(error)

    thread = threading.Thread(target=work, name="penstock-grammar", daemon=True)
    with _starting:
        before = threading.stack_size(STACK)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    return found.result()
