"""Work that goes as deep as what it is given is nested, on a stack that holds it: a stack that overflows ends the process."""
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
STACK = 512 << 20  # bytes, of which only those that are used take memory: llguidance takes 10 kB for each of 10,000 parts in one another
_starting = threading.Lock()


def deeply(function: Callable[[], T]) -> T:
    """What `function` returns or raises, in a thread of its own. Raises RuntimeError where the system gives no such thread."""
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
