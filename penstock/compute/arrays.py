"""The array API namespace of an array, without what importing all of array_api_compat costs.

numpy (2.1 and later) is its own namespace; array_api_compat.numpy would import every part of numpy, a tenth of a second at start.
"""
import sys
from typing import Any

Array = Any


def array_namespace(array: Array) -> Any:
    """What `array` computes with. Raises TypeError for what is no array."""
    if is_numpy_array(array):
        return sys.modules["numpy"]
    from array_api_compat import array_namespace as compat

    return compat(array)


def device(array: Array) -> Any:
    return array.device


def is_numpy_array(array: Array) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(array, numpy.ndarray)
