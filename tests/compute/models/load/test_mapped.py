"""What was read of a file leaves memory again."""
import re
from pathlib import Path

import pytest

from penstock.compute.models.load import mapped as module
from penstock.compute.models.load.mapped import Mapped

UNIT = 4 << 20  # more than the system maps at once where it has huge pages for files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(256)) * (8 * UNIT // 256))
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
    read(mapped, 0, 3 * UNIT)
    read(mapped, 5 * UNIT, 6 * UNIT)
    assert resident(path) >= 4 * UNIT
    mapped.release()
    assert resident(path) == 0
    read(mapped, 3 * UNIT, 4 * UNIT)
    mapped.release()
    assert resident(path) == 0


def test_what_is_read_again_after_its_release_is_released_with_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEARCHED", 3 * UNIT)
    mapped = Mapped(path)
    early = mapped.span(0, UNIT)
    mapped.release()
    assert int(early[::4096].sum()) == 0 and resident(path) >= UNIT
    for start in range(1, 4):
        assert resident(path) >= UNIT
        read(mapped, start * UNIT, (start + 1) * UNIT)
        mapped.release()
    assert resident(path) == 0


def test_pieces_of_a_large_tensor_do_not_search_the_file_each_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", UNIT)
    monkeypatch.setattr(module, "SEARCHED", 3 * UNIT)
    mapped = Mapped(path)
    early = mapped.span(0, UNIT)
    mapped.release()
    assert int(early[::4096].sum()) == 0
    for at in range(3):
        assert resident(path) >= UNIT, at
        mapped.span(2 * UNIT, 8 * UNIT)
        mapped.release()
        mapped.release()  # which gave nothing since, and counts for nothing
    assert resident(path) == 0
