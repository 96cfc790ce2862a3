"""What a model's name stands for: a folder, a GGUF file, a model that Penstock brings along, or a repository of the Hugging Face hub.

In two steps, so that a caller can say from config.json alone whether a model fits: `fetch_config`, then `fetch_weights`. The hub's
cache and HF_HUB_OFFLINE are huggingface_hub's affair, as are its progress bars; it is imported only for a hub name.
"""
import difflib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.compute.models import hf
from penstock.compute.models.load.checkpoint import CONFIG, INDEX, WHOLE, beside, read_config, weight_map
from penstock.compute.models.load.gguf import GgufCheckpoint
from penstock.compute.models.load.ggufile import is_gguf
from penstock.compute.models.load.objects import read_object
from penstock.compute.models.load.stored import most_common, stored_dtype
from penstock.compute.models.methods import MODELOPT
from penstock.compute.models.quantized import BESIDE as QUANT_BESIDE
from penstock.compute.models.quantized import tells_quantization
from penstock.core.errors import ModelError, NoModelError

Progress = Callable[[int, int], None]  # (bytes there, bytes in all), after each file
BUNDLED = ("brook", "rill")
HOME = Path(__file__).parents[3] / "bundled"
BESIDE = (  # small files that a repository may have
    "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "chat_template.json",
)
ANSWER_S = 5.0  # within which the hub must begin to answer
UNREAD_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.safetensors", "adapter_model.safetensors")


@dataclass(frozen=True, slots=True)
class Source:
    """A model whose config has been read. `repo` and `commit` are set for one of the hub, `stored` for a GGUF file."""

    model: str  # as it was asked for
    path: Path  # the folder, or the GGUF file
    config: Mapping[str, Any]
    repo: str | None = None
    commit: str | None = None
    stored: str | None = None  # types of the matrices

    @property
    def precision(self) -> str:
        """What the checkpoint is stored in: a dtype, or a method of quantization."""
        if self.stored is not None:
            return self.stored
        quantization = self.config.get("quantization_config")
        if isinstance(quantization, Mapping) and quantization:
            return str(quantization.get("quant_method", "quantized"))
        if QUANT_BESIDE in self.config:
            return MODELOPT
        return hf.dtype(self.config)

    @property
    def resolved(self) -> str:
        """For people: where the model is, its revision and its precision."""
        where = str(self.path) if self.repo is None else f"{self.repo} at {self.commit}"
        return f"{where} in {self.precision}"

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """What is said of config.json is said of a GGUF file's metadata, where the config was made of these."""
        try:
            yield
        except ModelError as error:
            if self.stored is None:
                raise
            raise ModelError(f"the metadata of {self.path}, read as a config.json, is refused: {error}") from None


def fetch_config(model: str, revision: str | None = None) -> Source:
    """Finds the model and its config.json, and downloads nothing else but NVIDIA's file of quantization, ahead of a config that was not
    here before: one that is here without it says that there is none. `revision`: a branch, tag or commit of a hub repository.

    Raises ModelError when there is no such model, when it cannot be had (offline, gated), or when its config is missing or broken.
    """
    local = local_path(model)
    if local is not None:
        if revision is not None:
            what = "file" if local.is_file() else "folder"
            raise NoModelError(f"{model} is a {what}, which has no revision {revision!r}; revisions are for names of the hub")
        if local.is_dir():
            return _with_dtype(Source(model, local, read_config(local)))
        checkpoint = GgufCheckpoint(local)
        return Source(model, local, checkpoint.config, stored=checkpoint.stored)
    if "/" not in model:
        near = _nearest(model)
        hint = f"did you mean {' or '.join(near)}?" if near else f"bundled models are {' and '.join(BUNDLED)}"
        raise NoModelError(f"there is no folder {model!r}, and it is not a name of the hub either, such as 'owner/model'; {hint}")
    downloaded, fresh = _download_config(model, revision)
    path = Path(downloaded)
    source = Source(model, path.parent, read_object(path), model, path.parent.name)
    if fresh and not tells_quantization(source.config):
        _download_if_there(source, QUANT_BESIDE)  # is here by now, unless the branch has moved meanwhile
    return _with_dtype(replace(source, config=beside(path.parent, dict(source.config))))


def _with_dtype(source: Source) -> Source:
    """A config that says no dtype is given that of the weights; where these cannot be had, loading says so."""
    if hf.told_dtype(source.config) is not None:
        return source
    found = stored_dtype(source.path) or (_remote_dtype(source) if source.repo is not None else None)
    return source if found is None else replace(source, config={**source.config, "dtype": found})


def _remote_dtype(source: Source) -> str | None:
    """From the header of the hub's first file of weights, which is asked for alone. None where there is none, or no answer."""
    import huggingface_hub
    from huggingface_hub import constants, errors

    if constants.HF_HUB_OFFLINE:
        return None
    try:
        index = _download_if_there(source, INDEX)
        name = min(weight_map(index)) if index else WHOLE
        told = huggingface_hub.parse_safetensors_file_metadata(str(source.repo), name, revision=source.commit)
    except (ModelError, errors.SafetensorsParsingError, errors.HTTPError, OSError):
        return None
    return most_common({str(form): count for form, count in told.parameter_count.items()})


def fetch_weights(source: Source, progress: Progress | None = None) -> Path:
    """The folder or file with the checkpoint, downloaded where it is one of the hub. Raises ModelError as `fetch_config` does."""
    if source.repo is None:
        return source.path
    if any(_cached(source.repo, name, source.commit) is None for name in (*BESIDE, INDEX)):
        _check_reachable(source.repo, source.commit)
    for name in BESIDE:
        _download_if_there(source, name)
    index = _download_if_there(source, INDEX)
    files = sorted(weight_map(index)) if index else [WHOLE]
    total = _total_bytes(index)
    done = 0
    for name in files:
        path = _download_if_there(source, name)
        if path is None:
            raise ModelError(_no_weights(source, name))
        done += path.stat().st_size
        if progress is not None:
            progress(done, max(done, total))
    return source.path


def local_path(model: str) -> Path | None:
    """The folder or GGUF file that a name stands for; None for a name of the hub. Raises ModelError for a path to anything else."""
    if not model:
        raise NoModelError("the name of the model is empty")
    if "://" in model:
        raise NoModelError(f"{model} is an address; a model is a folder, a GGUF file, one of {', '.join(BUNDLED)}, or a name of the hub")
    folder = Path(os.path.expanduser(model))  # what of pathlib raises for an unknown user and for a name that is too long
    bundled = HOME / model if model in BUNDLED else None
    if os.path.isdir(folder) and (bundled is None or (folder / CONFIG).is_file()):
        return folder
    if bundled is not None:
        return bundled
    if os.path.isfile(folder):
        if folder.suffix == ".gguf" or is_gguf(folder):
            return folder
        if (folder.parent / CONFIG).is_file():
            raise NoModelError(f"{model} is one file of a model: give its folder, {folder.parent}")
        raise NoModelError(f"{model} is a file; a model is a folder with config.json and safetensors, a GGUF file, or a name of the hub")
    if folder.suffix == ".gguf":
        raise NoModelError(f"there is no file {model!r}")
    if folder.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise NoModelError(f"there is no folder {model!r}")
    return None


def _nearest(model: str) -> list[str]:
    """Like it are called: bundled models, folders with a model, and what the hub's cache holds, with or without its owner."""
    from huggingface_hub import constants

    cached = [path.name.removeprefix("models--").replace("--", "/", 1) for path in Path(constants.HF_HUB_CACHE).glob("models--*--*")]
    names = [*BUNDLED, *(path.parent.name for path in Path().glob(f"*/{CONFIG}")), *cached]
    known = {name.rpartition("/")[2].lower(): name for name in reversed(names)}
    return [known[each] for each in difflib.get_close_matches(model.lower(), known)]


def is_cached(repo: str) -> bool:
    """Whether the cache has the config.json of a repository of the hub; nothing is asked of the network."""
    return isinstance(_cached(repo, CONFIG, None), str)


def _download_if_there(source: Source, name: str) -> Path | None:
    """None where the repository has no such file or, offline, the cache. Raises ModelError."""
    from huggingface_hub import constants, errors

    repo = str(source.repo)
    cached = _cached(repo, name, source.commit)
    if cached is not None:
        return Path(cached) if isinstance(cached, str) else None  # else: a mark that the repository has none
    try:
        path = _file_if_there(repo, name, source.commit)
    except errors.LocalEntryNotFoundError:
        if constants.HF_HUB_OFFLINE:
            return None
        raise ModelError(f"{name} of {_at(repo, source.commit)} {_unreachable()}") from None
    return None if path is None else Path(path)


def _download_config(repo: str, revision: str | None) -> tuple[str, bool]:
    """The path of config.json in the cache, and whether it came only now. Raises ModelError."""
    from huggingface_hub import constants
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        with _told(repo, revision):
            fresh = _cached(repo, CONFIG, revision) is None and not constants.HF_HUB_OFFLINE
        if fresh:
            _check_reachable(repo, revision)
            _file_if_there(repo, QUANT_BESIDE, revision)
        return _file(repo, CONFIG, revision), fresh
    except LocalEntryNotFoundError:
        raise ModelError(f"{_at(repo, revision)} {_unreachable()}") from None
    except EntryNotFoundError:
        raise ModelError(f"{_at(repo, revision)} on the hub has no {CONFIG}, which says what the model is") from None


def _file_if_there(repo: str, name: str, revision: str | None) -> str | None:
    """As `_file`; None where the repository has no such file. Raises LocalEntryNotFoundError where that cannot be told."""
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        return _file(repo, name, revision)
    except LocalEntryNotFoundError:
        raise
    except EntryNotFoundError:
        return None


def _file(repo: str, name: str, revision: str | None) -> str:
    """The path of a file in the cache, downloaded if need be. Raises EntryNotFoundError when there is none, else ModelError."""
    import huggingface_hub

    with _told(repo, revision):
        return str(huggingface_hub.hf_hub_download(repo, name, revision=revision))


def _cached(repo: str, name: str, revision: str | None) -> Any:
    """A file's path in the cache, a mark that the repository has none, or None."""
    import huggingface_hub

    return huggingface_hub.try_to_load_from_cache(repo, name, revision=revision)


def _check_reachable(repo: str, revision: str | None) -> None:
    """Raises ModelError soon for a hub that does not answer, which huggingface_hub tries to reach for half a minute. Whatever it answers,
    a fault of its own included, is huggingface_hub's to deal with."""
    import huggingface_hub
    from huggingface_hub import constants, errors

    if constants.HF_HUB_OFFLINE:
        return
    try:
        huggingface_hub.get_hf_file_metadata(huggingface_hub.hf_hub_url(repo, CONFIG, revision=revision), timeout=ANSWER_S)
    except errors.HfHubHTTPError:
        return
    except (errors.HTTPError, OSError):
        raise ModelError(f"{_at(repo, revision)} {_unreachable()}") from None
    except UnicodeEncodeError:
        raise ModelError(f"the hub was not asked for {_at(repo, revision)}: the token that goes with it is not in ASCII, as all are; "
                         "`penstock doctor` says where it is") from None


@contextmanager
def _told(repo: str, revision: str | None) -> Iterator[None]:
    """Turns what huggingface_hub raises, but for a missing file, into one sentence."""
    from huggingface_hub import errors

    what = _at(repo, revision)
    try:
        yield
    except errors.EntryNotFoundError:
        raise
    except errors.HFValidationError:
        raise NoModelError(f"there is no folder {repo!r}, and it is not a name of the hub either, such as 'owner/model'") from None
    except errors.GatedRepoError:
        raise ModelError(f"{what} is gated: accept its terms on huggingface.co, then set HF_TOKEN to a token that may read it") from None
    except errors.RepositoryNotFoundError:
        raise NoModelError(f"there is no folder {repo!r} and no model of that name on the hub (a private one needs HF_TOKEN)") from None
    except errors.RevisionNotFoundError:
        raise NoModelError(f"{repo} on the hub has no revision {revision!r}") from None
    except errors.OfflineModeIsEnabled:
        raise ModelError(f"{what} {_unreachable()}") from None
    except (errors.HTTPError, OSError) as error:  # no network, a full disk, a server's fault
        reason = str(error).strip().splitlines()
        raise ModelError(f"{what} could not be downloaded: {reason[0] if reason else type(error).__name__}") from None


def _no_weights(source: Source, name: str) -> str:
    others = [other for other in UNREAD_WEIGHTS if _there(source, other)]
    if others:
        return f"{source.repo} has {others[0]} but no {name}: weights are read as safetensors only, so take a converted model"
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return f"{name} of {source.repo} {_unreachable()}"
    return f"{source.repo} at {source.commit} on the hub has no {name}"


def _there(source: Source, name: str) -> bool:
    import huggingface_hub
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return (source.path / name).is_file()
    with _told(str(source.repo), source.commit):
        return bool(huggingface_hub.file_exists(str(source.repo), name, revision=source.commit))


def _unreachable() -> str:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return f"is not in the cache {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE forbids downloading it"
    advice = f"check the network and HTTPS_PROXY, or take a folder or a bundled model ({', '.join(BUNDLED)})"
    return f"is not in the cache {constants.HF_HUB_CACHE}, and the hub at {constants.ENDPOINT} cannot be reached: {advice}"


def _at(repo: str, revision: str | None) -> str:
    return repo if revision is None else f"{repo} at {revision}"


def _total_bytes(index: Path | None) -> int:
    metadata = read_object(index).get("metadata") if index is not None else None
    size = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    return int(size) if isinstance(size, int | float) and math.isfinite(size) else 0
