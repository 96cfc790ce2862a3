"""The native module, imported only where its file is whole: one that a full disk cut short would end the process with SIGBUS."""
import importlib
import importlib.util
import os
import sys
from types import ModuleType

NAME = "penstock._native"
ELF64_LITTLE = b"\x7fELF\x02\x01"
ELF64_BYTES = 64  # of the file header


def native_module() -> ModuleType:
    """Raises ModuleNotFoundError where it was not built, ImportError where it is there and cannot be imported."""
    if NAME not in sys.modules:
        spec = importlib.util.find_spec(NAME)
        if spec is not None and spec.origin is not None:
            check_whole(spec.origin)
    return importlib.import_module(NAME)


def check_whole(path: str) -> None:
    """Raises ImportError for an ELF file that ends before its table of sections, which linkers write last."""
    with open(path, "rb") as file:
        head, size = file.read(ELF64_BYTES), os.fstat(file.fileno()).st_size
    needed = ELF64_BYTES
    if len(head) == ELF64_BYTES and head.startswith(ELF64_LITTLE):
        table, entry_bytes, num_entries = (int.from_bytes(head[at : at + width], "little") for at, width in ((40, 8), (58, 2), (60, 2)))
        needed = table + entry_bytes * num_entries
    if size < needed:
        raise ImportError(f"{path} is cut short: it has {size} bytes of {needed}; install Penstock again", name=NAME, path=path)
