import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.study.doctor import network, processors, storage
from penstock.study.doctor.check import Host, Status
from tests.tiny import write_heads, write_model

Make = Callable[..., Host]
SECRET = "hf_do_not_tell"


def test_a_token_is_found_and_never_told(make: Make, tmp_path: Path) -> None:
    assert storage.hub_token(make()).details == {"present": False}
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/token").write_text(SECRET)
    for environ in ({"HF_TOKEN": SECRET}, {"HUGGING_FACE_HUB_TOKEN": SECRET}, {"HF_HOME": str(tmp_path / "hf")},
                    {"HF_TOKEN_PATH": str(tmp_path / "hf/token")}):
        found = storage.hub_token(make(environ=environ))
        assert found.status is Status.PASS and found.details["present"] and SECRET not in repr(found)
    for blank in ("", " \n"):
        (tmp_path / "hf/token").write_text(blank)
        assert not storage.hub_token(make(environ={"HF_HOME": str(tmp_path / "hf"), "HF_TOKEN": blank})).details["present"]


@pytest.mark.parametrize("spoiled", ["hf_d\u00f6_not", "hf_do not", "hf_do_not\x01", "\u201chf_do_not\u201d"])
def test_a_token_that_none_can_be_is_told(make: Make, tmp_path: Path, spoiled: str) -> None:
    (tmp_path / "token").write_text(spoiled, encoding="utf-8")
    for environ in ({"HF_TOKEN": spoiled}, {"HF_TOKEN_PATH": str(tmp_path / "token")}):
        found = storage.hub_token(make(environ=environ))
        assert found.status is Status.WARN and found.details["present"] and spoiled not in repr(found)
    assert storage.hub_token(make(environ={"HF_TOKEN": f" {SECRET}\n"})).status is Status.PASS


def test_the_hubs_cache_is_where_the_hub_says(make: Make) -> None:
    home = make().home
    assert storage.hub_cache(make()) == home / ".cache/huggingface/hub"
    assert storage.hub_cache(make(environ={"XDG_CACHE_HOME": "/x"})) == Path("/x/huggingface/hub")
    assert storage.hub_cache(make(environ={"XDG_CACHE_HOME": "/x", "HF_HOME": "/h"})) == Path("/h/hub")
    assert storage.hub_cache(make(environ={"HF_HOME": "/h", "HF_HUB_CACHE": "/c"})) == Path("/c")


def test_paths_are_expanded_as_the_hub_expands_them(make: Make, tmp_path: Path) -> None:
    home = make().home
    assert storage.hub_cache(make(environ={"HF_HOME": "~/hf"})) == home / "hf/hub"
    assert storage.hub_cache(make(environ={"HF_HUB_CACHE": "$SCRATCH/c", "SCRATCH": "/s"})) == Path("/s/c")
    (tmp_path / "token").write_text(SECRET)
    assert storage.hub_token(make(environ={"HF_TOKEN_PATH": "${T}/token", "T": str(tmp_path)})).details["present"]


@pytest.mark.parametrize("name", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME"])
def test_the_hint_names_the_variable_that_decides(make: Make, tmp_path: Path, name: str) -> None:
    """Moving the others would not move the hub's cache."""
    (tmp_path / "file").write_text("")
    found = storage.caches(make(environ={"XDG_CACHE_HOME": str(tmp_path / "cache"), name: str(tmp_path / "file/hub")}))
    assert found.status is Status.ERROR and found.hint.endswith(f"or set {name}")


def test_caches_are_weighed(make: Make, tmp_path: Path) -> None:
    host = make(environ={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    blob = tmp_path / "cache/huggingface/hub/models/blob"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"x" * 5000)
    (blob.parent / "link").symlink_to(blob)
    found = storage.caches(host)
    assert 5000 <= found.details["hub"]["bytes"] < 6000 and found.details["penstock"]["bytes"] == 0
    assert found.details["hub"]["free_bytes"] > 0 and found.status in (Status.PASS, Status.WARN)


def test_a_full_disk_and_a_locked_folder_are_told(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = make(environ={"XDG_CACHE_HOME": str(tmp_path)})
    monkeypatch.setattr(storage, "LITTLE_DISK_BYTES", 1 << 60)
    assert storage.caches(host).status is Status.WARN

    def refused(dir: Path) -> None:
        raise PermissionError(dir)

    monkeypatch.setattr(storage.tempfile, "TemporaryFile", refused)
    locked = storage.caches(host)
    assert locked.status is Status.ERROR and locked.hint.startswith(f"{tmp_path} cannot be written: fix its"), "each folder once"


def test_a_cache_below_what_is_no_folder_cannot_be_written(make: Make, tmp_path: Path) -> None:
    """Whose rights say that it could: root's always do."""
    (tmp_path / "file").write_text("")
    found = storage.caches(make(environ={"XDG_CACHE_HOME": str(tmp_path / "file/cache")}))
    assert found.status is Status.ERROR and found.hint.startswith(f"{tmp_path / 'file'} cannot be written")
    assert storage.caches(make(environ={"XDG_CACHE_HOME": str(tmp_path)})).status is not Status.ERROR
    assert [each.name for each in tmp_path.iterdir() if each.name != "home"] == ["file"]


def test_a_cache_in_a_folder_that_may_not_be_entered_cannot_be_written(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of another user. Nothing is closed to root, who may run this."""
    closed, stat = tmp_path / "closed", os.stat
    closed.mkdir()

    def refused(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if closed in Path(path).parents:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", refused)
    monkeypatch.setattr(storage, "takes_files", lambda folder: folder != closed)
    host = make(environ={"XDG_CACHE_HOME": str(closed / "x")})
    found = storage.caches(host)
    assert found.status is Status.ERROR and found.hint.startswith(f"{closed} cannot be written: fix its permissions")
    assert processors.limits(host).found == "not measured"


def test_packed_weights_that_take_much_of_the_disk_are_told_with_how_to_delete_them(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make(environ={"XDG_CACHE_HOME": str(tmp_path / "my cache")})
    packed = tmp_path / "my cache/penstock/packed/a.packed"
    packed.parent.mkdir(parents=True)
    with packed.open("wb") as file:
        file.truncate(9 << 30)  # a hole: it takes no room
    for free, much in ((30, True), (40, False), (2, True)):
        monkeypatch.setattr(storage.shutil, "disk_usage", lambda path, free=free: SimpleNamespace(free=free << 30))
        found = storage.caches(host)
        assert found.status is (Status.WARN if much else Status.PASS) and found.details["packed"]["bytes"] == 9 << 30
        told = f"packed weights take 9.0 GiB, which is more than 25% of the free space: to delete them, rm -r '{packed.parent}';"
        assert (told in found.hint) is much and ("free 5.0 GiB" in found.hint) is (free == 2)
    packed.write_bytes(b"x" * 100)
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    assert "packed weights" not in storage.caches(host).hint


def test_bundled_models_are_whole(make: Make) -> None:
    found = storage.bundled_models(make())
    assert found.status is Status.PASS, found.found
    assert found.details == {"models": ["brook", "rill"], "faults": []}


def test_a_model_that_is_cut_short_or_missing_is_an_error(make: Make, tmp_path: Path) -> None:
    write_model(tmp_path / "whole")
    assert storage.bundled_models(make(), tmp_path, ["whole"]).status is Status.PASS
    weights = write_model(tmp_path / "cut") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    (write_model(tmp_path / "mute") / "tokenizer.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    heads = write_heads(write_model(tmp_path / "headless")) / "eagle.safetensors"
    assert storage.bundled_models(make(), tmp_path, ["headless"]).status is Status.PASS
    heads.write_bytes(heads.read_bytes()[:-100])
    found = storage.bundled_models(make(), tmp_path, ["whole", "cut", "mute", "headless", "gone"])
    assert found.status is Status.ERROR and len(found.details["faults"]) == 4 and "eagle.safetensors" in found.details["faults"][2]
    assert "cut short" in found.details["faults"][0] and "tokenizer.json" in found.details["faults"][1]
    assert json.dumps(dict(found.details))


def test_a_port_is_free_or_not(make: Make) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        number = other.getsockname()[1]
        taken = network.port(make(), number)
        assert taken.status is Status.WARN and str(number) in taken.found and taken.details["free"] is False
    free = network.port(make(), 0)
    assert free.status is Status.PASS and free.details["free"] is True
