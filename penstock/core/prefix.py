"""What two sequences begin with."""
from collections.abc import Sequence
from typing import Any


def num_common(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Length of the longest common prefix of two strings, two lists or two tuples."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
