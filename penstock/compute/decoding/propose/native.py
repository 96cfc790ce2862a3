"""Which of two forms of an index is taken: the native one where it was built, else the one in Python that specifies it."""
from typing import TypeVar

Form = TypeVar("Form")


def native_or(python: type[Form], name: str) -> type[Form]:
    """The class of the native module with this name, where there is one."""
    try:
        from penstock import _native
    except ImportError:
        return python
    found: type[Form] = getattr(_native, name, python)
    return found
