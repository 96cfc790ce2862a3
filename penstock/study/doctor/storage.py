"""Where models come from and are kept: the hub's token and cache, Penstock's own cache, the disk below them, the bundled models."""
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from string import Template

from penstock.compute.backends.packed import FOLDER as PACKED
from penstock.compute.models.load import hub
from penstock.compute.models.load.checkpoint import FolderCheckpoint
from penstock.compute.models.load.tensorfile import TensorFile
from penstock.core.errors import ModelError
from penstock.core.hardware import cache_folder
from penstock.study.doctor.check import GIB, Check, Host, Status, gib

TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
HUB_CACHES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
XDG = "XDG_CACHE_HOME"
LITTLE_DISK_BYTES = 5 * GIB
MUCH_OF_FREE = 0.25  # of the free disk: packed weights that take more than this are worth a word
LITTLE_CACHE_BYTES = GIB  # of packed weights, which nobody misses


def hub_token(host: Host) -> Check:
    """Whether there is one; its value is never read into the report."""
    path = host.environ.get("HF_TOKEN_PATH")
    file = expanded(host, path) if path else hub_home(host) / "token"
    places = {**{name: host.environ.get(name, "") for name in TOKENS}, str(file): _text(file)}
    where, token = next(((where, text.strip()) for where, text in places.items() if text.strip()), (None, ""))
    if where is None:
        return Check("hub token", Status.PASS, "none: needed for gated and private models only", details={"present": False})
    details = {"present": True, "where": where}
    if not all("!" <= character <= "~" for character in token):
        return Check("hub token", Status.WARN, f"present, in {where}, with characters that no token has",
                     "it was not copied as it is: set it to a token of https://huggingface.co/settings/tokens", details)
    return Check("hub token", Status.PASS, f"present, in {where}", details=details)


def caches(host: Host) -> Check:
    """Sizes of the caches, and room on their disk. Packed weights are told apart: they can be made again."""
    own = cache_folder(host.environ, host.home)
    folders = {"hub": hub_cache(host), "penstock": own, "packed": own / PACKED}
    sizes = {name: folder_bytes(folder) for name, folder in folders.items()}
    free = {name: shutil.disk_usage(nearest(folder)).free for name, folder in folders.items()}
    details = {name: {"folder": str(folder), "bytes": sizes[name], "free_bytes": free[name]} for name, folder in folders.items()}
    said = "; ".join(f"{name} {folders[name]}: {gib(sizes[name])}, {gib(free[name])} free" for name in ("hub", "penstock"))
    shut = {name: str(nearest(folder)) for name, folder in folders.items() if not takes_files(nearest(folder))}
    if shut:
        hint = f"{' and '.join(dict.fromkeys(shut.values()))} cannot be written: fix its permissions, or {another(host, shut)}"
        return Check("caches", Status.ERROR, said, hint, details)
    hints = []
    little = [name for name in folders if free[name] < LITTLE_DISK_BYTES]
    if little:
        hints.append(f"a model takes some GiB: free {gib(LITTLE_DISK_BYTES)}, or {another(host, little)}")
    if sizes["packed"] > max(LITTLE_CACHE_BYTES, MUCH_OF_FREE * free["packed"]):
        hints.append(f"packed weights take {gib(sizes['packed'])}, which is more than {MUCH_OF_FREE:.0%} of the free space: to delete "
                     f"them, rm -r {quote(str(folders['packed']))}; loading a model packs it again, unless with --no-weight-cache")
    return Check("caches", Status.WARN if hints else Status.PASS, said, "; ".join(hints), details)


def bundled_models(host: Host, home: Path = hub.HOME, names: Iterable[str] = hub.BUNDLED) -> Check:
    faults = [fault for name in names if (fault := broken(home / name)) is not None]
    details = {"models": list(names), "faults": faults}
    if faults:
        return Check("bundled models", Status.ERROR, "; ".join(faults), "install Penstock again", details)
    return Check("bundled models", Status.PASS, f"{', '.join(names)} are intact", details=details)


def broken(folder: Path) -> str | None:
    """What is wrong with a checkpoint: files missing, cut short, or not what their names say."""
    try:
        FolderCheckpoint(folder)
        for heads in folder.glob("*.safetensors"):
            TensorFile(heads)
        json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    except ModelError as error:
        return str(error)
    except (OSError, ValueError) as error:
        return f"{folder / 'tokenizer.json'} cannot be read: {error}"
    return None


def hub_home(host: Host) -> Path:
    named = host.environ.get("HF_HOME")
    return expanded(host, named or f"{host.environ.get(XDG) or host.home / '.cache'}/huggingface")


def hub_cache(host: Host) -> Path:
    named = next(filter(None, map(host.environ.get, HUB_CACHES)), None)
    return expanded(host, named) if named else hub_home(host) / "hub"


def expanded(host: Host, path: str) -> Path:
    """A path with ~ and $NAME in it, as the hub's library reads its variables."""
    if path == "~" or path.startswith("~/"):
        path = f"{host.home}{path[1:]}"
    return Path(Template(path).safe_substitute(host.environ))


def another(host: Host, names: Iterable[str]) -> str:
    """How to have these caches elsewhere: by the variable that says where each one is."""
    hub = next((name for name in (*HUB_CACHES, "HF_HOME") if host.environ.get(name)), XDG)
    return f"set {' and '.join(dict.fromkeys(hub if name == 'hub' else XDG for name in names))}"


def folder_bytes(folder: Path) -> int:
    """Bytes of the files in a folder, links not followed; 0 where there is none."""
    total = 0
    for base, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(base, name)).st_size
            except OSError:
                continue  # removed meanwhile
    return total


def takes_files(folder: Path) -> bool:
    """Tried, as rights alone do not tell: not of what is no folder, of a superuser, of a full disk."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def nearest(folder: Path) -> Path:
    """The folder, or that above it which exists. What lies in a folder that may not be entered does not."""
    return next(each for each in (folder, *folder.parents) if os.path.exists(each))


def _text(file: Path) -> str:
    """Empty where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
