"""How the small objects are made that every step makes anew for every token."""
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def message(made: type[T]) -> type[T]:
    """A slotted dataclass that nobody changes once it is made. To type checkers it is frozen, and the tests run with it frozen.

    Serving runs without: `frozen=True` makes an object of ten fields in 1.1 us instead of 0.2 (CPython 3.11), and a decoded token
    takes half a dozen of them.
    """
    return dataclass(slots=True, unsafe_hash=True)(made)
