"""What was read of a file leaves memory again."""
import re
from pathlib import Path

import pytest

from penstock.compute.models.load import mapped as module
from penstock.compute.models.load.mapped import Mapped

MIB = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(256)) * (8 * MIB // 256))
    return path


def resident(path: Path) -> int:
    """Bytes of the file that are mapped into this process."""
    told = Path("/proc/self/smaps").read_text()
    found = [int(size) << 10 for size in re.findall(rf"{re.escape(str(path))}\n(?:.*\n)*?Rss: +(\d+) kB", told)]
    return sum(found)


def read(mapped: Mapped, start: int, end: int) -> None:
    assert int(mapped.span(start, end)[::4096].sum()) == 0


def test_what_was_read_is_released(path: Path) -> None:
    mapped = Mapped(path)
    read(mapped, 0, 3 * MIB)
    read(mapped, 5 * MIB, 6 * MIB)
    assert resident(path) >= 4 * MIB
    mapped.release()
    assert resident(path) == 0
    read(mapped, 3 * MIB, 4 * MIB)
    mapped.release()
    assert resident(path) == 0


def test_what_is_read_again_after_its_release_is_released_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEARCHED", 4 * MIB)
    mapped = Mapped(path)
    early = mapped.span(0, MIB)
    mapped.release()
    assert int(early[::4096].sum()) == 0 and resident(path) >= MIB
    mapped.release()
    assert resident(path) == 0
    assert int(early[::4096].sum()) == 0
    for start in range(1, 4):
        read(mapped, start * MIB, (start + 1) * MIB)
        mapped.release()
    assert resident(path) == 0
