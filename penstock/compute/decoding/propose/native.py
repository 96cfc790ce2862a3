"""Which of two forms of an index is taken: the native one where it was built, else the one in Python that specifies it."""
from typing import TypeVar

from penstock.compute.native import native_module

Form = TypeVar("Form")


def native_or(python: type[Form], name: str) -> type[Form]:
    """The class of the native module with this name, where there is one."""
    try:
        found: type[Form] = getattr(native_module(), name, python)
    except ImportError:
        return python
    return found
