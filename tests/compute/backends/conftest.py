"""What tests of backends share: packed weights are kept whatever room this machine's disk has left."""
import pytest

from penstock.compute.backends import packed


@pytest.fixture(autouse=True)
def any_free_disk_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "SPARE_BYTES", 0)
