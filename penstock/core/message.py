"""What passes between floors for each token of each step."""
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def message(made: type[T]) -> type[T]:
    """A slotted dataclass that nobody changes once it is made: to type checkers it is frozen, and the tests run with it frozen.

    While serving it is not: `frozen=True` makes each object five times as slow to make, and a decoded token takes half a dozen.
    """
    return dataclass(slots=True)(made)
