"""The native module is imported where its file is whole, and a file that is not never reaches the linker."""
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.compute.native import NAME, check_whole, native_module

SAYS = """
import sys
from penstock.compute.native import native_module
try:
    native_module()
except ImportError as error:
    sys.exit(str(error))
"""


def elf(sections_at: int, num_sections: int, size: int) -> bytes:
    """A header of ELF for 64 bits, and zeros."""
    head = bytearray(64)
    head[:6] = b"\x7fELF\x02\x01"
    head[40:48] = sections_at.to_bytes(8, "little")
    head[58:62] = (64).to_bytes(2, "little") + num_sections.to_bytes(2, "little")
    return bytes(head) + bytes(size - 64)


@pytest.mark.parametrize("content", [
    elf(1000, 3, 1192), elf(1000, 3, 2000), elf(0, 0, 64), b"MZ" + bytes(100), b"\x7fELF\x01\x01" + bytes(100)])
def test_a_whole_file_passes(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "module.so").write_bytes(content)
    check_whole(str(tmp_path / "module.so"))


@pytest.mark.parametrize(("content", "needed"), [
    (elf(1000, 3, 1192)[:-1], 1192), (elf(1000, 3, 1192)[:600], 1192), (b"\x7fELF", 64), (b"", 64)])
def test_a_file_that_was_cut_short_is_refused(tmp_path: Path, content: bytes, needed: int) -> None:
    path = tmp_path / "module.so"
    path.write_bytes(content)
    with pytest.raises(ImportError) as caught:
        check_whole(str(path))
    assert str(caught.value) == f"{path} is cut short: it has {len(content)} bytes of {needed}; install Penstock again"


def test_half_a_module_does_not_end_the_process(tmp_path: Path) -> None:
    """Loaded, it would: with SIGBUS, where a page behind the file's end is touched."""
    pytest.importorskip(NAME)
    origin = Path(str(native_module().__file__))
    package = tmp_path / "penstock"
    shutil.copytree(Path(penstock.__file__).parent, package, ignore=shutil.ignore_patterns("_native*", "bundled", "__pycache__"))
    (package / origin.name).write_bytes(origin.read_bytes()[: origin.stat().st_size // 2])
    # -S: an editable install would put its own package before the copy
    done = subprocess.run([sys.executable, "-S", "-c", SAYS], cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}"},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and f"{origin.name} is cut short" in done.stderr
