"""Names of models: folders, bundled models and the hub, which is never reached here."""
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import ml_dtypes
import numpy as np
import pytest
from huggingface_hub import constants, errors
from huggingface_hub.utils import SafetensorsFileMetadata, TensorInfo

from penstock.compute.models.families.llama import FAMILY
from penstock.compute.models.load import hub
from penstock.compute.models.load.checkpoint import INDEX, open_checkpoint
from penstock.compute.models.quantized import BESIDE, quantization_of
from penstock.core.errors import ModelError
from tests.compute.models.load.makers import CONFIG, tensors_of, write_folder

REPO, COMMIT = "some/model", "0123456789abcdef0123456789abcdef01234567"
BF16 = {**CONFIG, "torch_dtype": "bfloat16"}


class Response:
    """As much of an HTTP response as huggingface_hub's errors look at."""

    status_code = 404
    headers: dict[str, str] = {}
    request = None


def check_refused(call: Callable[[], Any], *said: str) -> None:
    with pytest.raises(ModelError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and all(part in message for part in said), message


def http_error(kind: type[Exception]) -> Exception:
    try:
        return kind("404 Client Error", response=Response())  # type: ignore[call-arg]
    except TypeError:
        return kind("404 Client Error")


class Remote:
    """A hub with one repository, that remembers what was asked of it."""

    def __init__(self, folder: Path, files: dict[str, bytes]) -> None:
        self.folder, self.files = folder / "snapshots" / COMMIT, files
        self.asked: list[tuple[str, str | None]] = []
        self.marks: set[str] = set()  # what is known not to exist, as the cache has it
        self.failure: BaseException | None = None
        self.failing: str | None = None  # the file that alone has the failure
        self.unreachable: Exception | None = None
        self.failure_of_headers: Exception | None = None

    def get_hf_file_metadata(self, url: str, timeout: float) -> None:
        if self.unreachable is not None:
            raise self.unreachable

    def hf_hub_download(self, repo: str, name: str, revision: str | None = None) -> str:
        self.asked.append((name, revision))
        if self.failure is not None and self.failing in (None, name):
            raise self.failure
        if name not in self.files:
            self.marks.add(name)
            raise http_error(errors.RemoteEntryNotFoundError)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(self.files[name])
        return str(self.folder / name)

    def parse_safetensors_file_metadata(self, repo: str, name: str, revision: str | None = None) -> Any:
        self.asked.append((f"header of {name}", revision))
        if self.failure_of_headers is not None:
            raise self.failure_of_headers
        content = self.files[name]
        told = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        tensors = [TensorInfo(each["dtype"], each["shape"], each["data_offsets"]) for key, each in told.items() if key != "__metadata__"]
        return SafetensorsFileMetadata({}, {str(number): each for number, each in enumerate(tensors)})

    def file_exists(self, repo: str, name: str, revision: str | None = None) -> bool:
        return name in self.files


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Remote:
    made = write_folder(tmp_path / "made", BF16, tensors_of(CONFIG), num_files=2)
    found = Remote(tmp_path / "cache", {path.name: path.read_bytes() for path in made.iterdir()})
    found.files["tokenizer.json"] = b"{}"
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", found.hf_hub_download)
    monkeypatch.setattr(huggingface_hub, "file_exists", found.file_exists)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", found.get_hf_file_metadata)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache",
                        lambda repo, name, revision: found.marks if revision == COMMIT and name in found.marks else None)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return found


def test_a_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "mine", BF16, tensors_of(CONFIG))
    source = hub.fetch_config(str(folder))
    assert (source.path, source.config, source.repo, source.commit) == (folder, BF16, None, None)
    assert hub.fetch_weights(source) == folder and source.resolved == f"{folder} in bfloat16"
    check_refused(lambda: hub.fetch_config(str(folder), "main"), "is a folder, which has no revision 'main'")


def test_a_folder_without_config(tmp_path: Path) -> None:
    check_refused(lambda: hub.fetch_config(str(tmp_path)), f"{tmp_path} has no config.json")


def test_the_address_of_a_server_is_no_model() -> None:
    check_refused(lambda: hub.fetch_config("http://127.0.0.1:8000"), "http://127.0.0.1:8000 is an address; a model is a folder, ")


@pytest.mark.parametrize("name", ["/no/such/folder", "./nowhere", "../nowhere", "~/nowhere/at/all", "~nobody-here/model", "a/b/c"])
def test_a_path_to_nothing(name: str) -> None:
    check_refused(lambda: hub.fetch_config(name), f"there is no folder {name!r}")
    check_refused(lambda: hub.fetch_config(""), "the name of the model is empty")


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    check_refused(lambda: hub.fetch_config(str(tmp_path / "model.safetensors")), "is a file; a model is a folder")
    (tmp_path / "config.json").write_text("{}")
    for path in (tmp_path / "model.safetensors", tmp_path / "config.json"):
        check_refused(lambda path=path: hub.fetch_config(str(path)), f"{path} is one file of a model: give its folder, {tmp_path}")
    check_refused(lambda: hub.fetch_config("model.Q4_K.gguf"), "there is no file 'model.Q4_K.gguf'")


def test_a_name_that_is_longer_than_any_file_may_be_is_no_path() -> None:
    assert hub.local_path("x" * 300) is None
    check_refused(lambda: hub.local_path("./" + "x" * 300), "there is no folder")


def test_a_bundled_name_means_the_bundled_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "brook").mkdir()  # not a model
    assert hub.local_path("brook") == Path(hub.__file__).parents[3] / "bundled" / "brook"
    (tmp_path / "rill").mkdir()
    (tmp_path / "rill" / "config.json").write_text("{}")
    assert hub.local_path("rill") == Path("rill")


def test_config_first_then_weights(remote: Remote) -> None:
    source = hub.fetch_config(REPO, "v1")
    assert remote.asked == [(BESIDE, "v1"), ("config.json", "v1")]
    assert (source.repo, source.commit, source.precision) == (REPO, COMMIT, "bfloat16")
    assert source.resolved == f"{REPO} at {COMMIT} in bfloat16"
    seen: list[tuple[int, int]] = []
    folder = hub.fetch_weights(source, lambda done, total: seen.append((done, total)))
    assert all(revision == COMMIT for _, revision in remote.asked[2:])
    assert set(open_checkpoint(folder).names()) == set(tensors_of(CONFIG)) and (folder / "tokenizer.json").exists()
    assert len(seen) == 2 and seen[0][0] < seen[0][1] and seen[1][0] == seen[1][1]


@pytest.mark.parametrize("told", ["Infinity", "1e999", "NaN", "[]", "null"])
def test_an_index_may_say_no_size(remote: Remote, told: str) -> None:
    index = json.loads(remote.files[INDEX])
    remote.files[INDEX] = json.dumps({**index, "metadata": {"total_size": "?"}}).replace('"?"', told).encode()
    seen: list[tuple[int, int]] = []
    hub.fetch_weights(hub.fetch_config(REPO), lambda done, total: seen.append((done, total)))
    assert len(seen) == 2 and all(done == total for done, total in seen)


def test_only_files_that_are_read_are_downloaded(remote: Remote) -> None:
    remote.files |= {"pytorch_model.bin": b"", "consolidated.safetensors": b"", "model.onnx": b""}
    hub.fetch_weights(hub.fetch_config(REPO))
    assert not {"pytorch_model.bin", "consolidated.safetensors", "model.onnx"} & {name for name, _ in remote.asked}


def test_a_single_file(remote: Remote, tmp_path: Path) -> None:
    made = write_folder(tmp_path / "single", BF16, tensors_of(CONFIG))
    remote.files = {path.name: path.read_bytes() for path in made.iterdir()}
    folder = hub.fetch_weights(hub.fetch_config(REPO))
    np.testing.assert_array_equal(open_checkpoint(folder).tensor("model.norm.weight"), tensors_of(CONFIG)["model.norm.weight"])


def test_other_forms_of_weights(remote: Remote) -> None:
    config = remote.files["config.json"]
    remote.files = {"config.json": config, "pytorch_model.bin": b""}
    check_refused(lambda: hub.fetch_weights(hub.fetch_config(REPO)), f"{REPO} has pytorch_model.bin but no model.safetensors")
    remote.files = {"config.json": config}
    check_refused(lambda: hub.fetch_weights(hub.fetch_config(REPO)), f"{REPO} at {COMMIT} on the hub has no model.safetensors")


@pytest.mark.parametrize("kind, said", [
    (errors.RepositoryNotFoundError, "there is no folder 'some/model' and no model of that name on the hub"),
    (errors.GatedRepoError, "some/model at v9 is gated: accept its terms"),
    (errors.RevisionNotFoundError, "some/model on the hub has no revision 'v9'"),
    (errors.RemoteEntryNotFoundError, "some/model at v9 on the hub has no config.json"),
    (errors.LocalEntryNotFoundError, "is not in the cache"),
    (errors.OfflineModeIsEnabled, "is not in the cache"),
    (errors.HFValidationError, "is not a name of the hub either"),
    (errors.HfHubHTTPError, "some/model at v9 could not be downloaded: 404 Client Error"),
    (ConnectionError, "some/model at v9 could not be downloaded: 404 Client Error"),
])
def test_what_the_hub_says_is_one_sentence(remote: Remote, kind: type[Exception], said: str) -> None:
    remote.failure = http_error(kind)
    check_refused(lambda: hub.fetch_config(REPO, "v9"), said)


def test_a_network_that_fails_later_is_no_missing_file(remote: Remote) -> None:
    """Else a model would be served without its tokenizer's settings."""
    source = hub.fetch_config(REPO)
    remote.failure = errors.LocalEntryNotFoundError("no network")
    check_refused(lambda: hub.fetch_weights(source), f"generation_config.json of {REPO} at {COMMIT}", "cannot be reached")


@pytest.mark.parametrize("error", [errors.HTTPError("no route"), ConnectionError("no name")])
def test_a_hub_that_does_not_answer_is_not_asked_again_and_again(remote: Remote, error: Exception) -> None:
    source = hub.fetch_config(REPO)
    remote.asked.clear()
    remote.unreachable = error
    for call in (lambda: hub.fetch_config(REPO, "v9"), lambda: hub.fetch_weights(source)):
        check_refused(call, f"{REPO} at ", f"the hub at {constants.ENDPOINT} cannot be reached: check the network", "(brook, rill)")
    assert not remote.asked


def test_a_token_that_no_header_carries_is_named(remote: Remote) -> None:
    remote.unreachable = UnicodeEncodeError("ascii", "Bearer hf_\u00fc", 10, 11, "ordinal not in range(128)")
    check_refused(lambda: hub.fetch_config(REPO, "v9"), f"the hub was not asked for {REPO} at v9: the token", "`penstock doctor` says")
    assert not remote.asked


def test_a_hub_that_answers_is_left_to_its_own_client(remote: Remote) -> None:
    """A server's fault may pass: huggingface_hub tries again."""
    remote.unreachable = http_error(errors.HfHubHTTPError)
    assert hub.fetch_weights(hub.fetch_config(REPO)) and remote.asked


@pytest.mark.parametrize(("name", "near"), [
    ("brok", "did you mean brook?"), ("Model", "did you mean some/model"), ("my-modle", "did you mean my-model"),
    ("gpt2", "bundled models are brook and rill")])
def test_what_is_no_name_at_all_is_refused_with_those_like_it(
        cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, near: str) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    write_folder(tmp_path / "my-model", BF16, tensors_of(CONFIG))
    monkeypatch.chdir(tmp_path)
    check_refused(lambda: hub.fetch_config(name), f"there is no folder {name!r}", "such as 'owner/model'", near)


def test_precision() -> None:
    def precision(**config: Any) -> str:
        return hub.Source("m", Path(), config).precision

    assert precision() == "float32" and precision(dtype="float16") == "float16"
    assert precision(quantization_config={"quant_method": "awq"}, torch_dtype="float16") == "awq"
    assert precision(text_config={"torch_dtype": "bfloat16"}) == "bfloat16"
    assert precision(text_config={"dtype": "bfloat16"}, torch_dtype="float16") == "float16"


NVIDIAS = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}}


def test_nvidias_file_of_quantization_counts_where_the_config_says_nothing(remote: Remote, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "mine", BF16, tensors_of(CONFIG))
    (folder / BESIDE).write_text(json.dumps(NVIDIAS))
    remote.files[BESIDE] = json.dumps(NVIDIAS).encode()
    for source in (hub.fetch_config(str(folder)), hub.fetch_config(REPO)):
        found = quantization_of(source.config)
        assert found is not None and found.told == "nvfp4 by 16 columns" and source.precision == "modelopt"
        assert found.kind(["lm_head"]) is None
    (folder / "config.json").write_text(json.dumps({**BF16, "quantization_config": {"quant_method": "fp8"}}))
    (folder / BESIDE).write_text("not read")
    assert hub.fetch_config(str(folder)).precision == "fp8"


def test_a_config_that_was_here_before_has_nothing_asked_beside_it(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda repo, name, **_: str(remote.folder / name))
    hub.fetch_config(REPO)
    assert [name for name, _ in remote.asked] == ["config.json"]


@pytest.mark.parametrize("interrupted", ["config.json", BESIDE])
def test_an_interrupt_leaves_no_config_that_reads_as_unquantized(remote: Remote, interrupted: str) -> None:
    remote.files[BESIDE], remote.failure, remote.failing = json.dumps(NVIDIAS).encode(), KeyboardInterrupt(), interrupted
    with pytest.raises(KeyboardInterrupt):
        hub.fetch_config(REPO)
    assert not (remote.folder / "config.json").exists()


def test_a_branch_that_moves_on_between_the_two_files_is_asked_once_more(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    later = json.dumps(NVIDIAS).encode()

    def download(repo: str, name: str, revision: str | None = None) -> str:
        if name == "config.json":
            remote.files[BESIDE] = later
            remote.marks.clear()
        return remote.hf_hub_download(repo, name, revision)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert hub.fetch_config(REPO).precision == "modelopt"
    assert remote.asked == [(BESIDE, None), ("config.json", None), (BESIDE, COMMIT)]


@pytest.mark.parametrize(("told", "said"), [
    ("[1]", "hf_quant_config.json"), ("{", "hf_quant_config.json"),
    ('{"quantization": {"quant_algo": "INT4"}}', "quantized with INT4 of modelopt, which is not known"),
    ('{"quantization": {"quant_algo": "NVFP4", "group_size": 8}}', "hf_quant_config.json says quantization.group_size 8, but it must be"),
    ('{"producer": {}}', "hf_quant_config.json has no quant_algo")])
def test_what_nvidias_file_cannot_say_is_refused(told: str, said: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "mine", BF16, tensors_of(CONFIG))
    (folder / BESIDE).write_text(told)
    check_refused(lambda: quantization_of(hub.fetch_config(str(folder)).config), said)


def in_dtypes(*dtypes: Any) -> dict[str, np.ndarray]:
    """Matrices have the first dtype, vectors the last."""
    return {name: values.astype(dtypes[0 if values.ndim > 1 else -1]) for name, values in tensors_of(CONFIG).items()}


@pytest.mark.parametrize("num_files", [1, 2])
@pytest.mark.parametrize(("dtypes", "precision"), [
    ((ml_dtypes.bfloat16,), "bfloat16"), ((np.float16,), "float16"), ((np.float32,), "float32"), ((np.float64,), "float32"),
    ((ml_dtypes.bfloat16, np.float32), "bfloat16"),
])
def test_a_config_without_a_dtype_has_that_of_the_weights(tmp_path: Path, dtypes: tuple[Any, ...], precision: str, num_files: int) -> None:
    folder = write_folder(tmp_path, CONFIG, in_dtypes(*dtypes), num_files)
    source = hub.fetch_config(str(folder))
    assert source.precision == precision and FAMILY.spec(source.config).dtype == precision


def test_a_dtype_that_config_says_is_believed(tmp_path: Path) -> None:
    for told in ({"torch_dtype": "float32"}, {"dtype": "float32"}, {"text_config": {"dtype": "float32"}}):
        folder = write_folder(tmp_path, CONFIG | told, in_dtypes(ml_dtypes.bfloat16))
        assert hub.fetch_config(str(folder)).precision == "float32"


@pytest.mark.parametrize("content", [None, b"", b"cut short"])
def test_weights_that_cannot_be_read_are_refused_when_they_are_loaded(tmp_path: Path, content: bytes | None) -> None:
    folder = write_folder(tmp_path, CONFIG, in_dtypes(ml_dtypes.bfloat16))
    (folder / "model.safetensors").unlink() if content is None else (folder / "model.safetensors").write_bytes(content)
    assert hub.fetch_config(str(folder)).precision == "float32"
    check_refused(lambda: open_checkpoint(folder), str(folder))


def test_the_hub_is_asked_for_the_dtype_alone(remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_folder(tmp_path / "silent", CONFIG, in_dtypes(ml_dtypes.bfloat16), num_files=2)
    remote.files = {path.name: path.read_bytes() for path in made.iterdir()}
    monkeypatch.setattr(huggingface_hub, "parse_safetensors_file_metadata", remote.parse_safetensors_file_metadata)
    assert hub.fetch_config(REPO).precision == "bfloat16"
    assert [name for name, _ in remote.asked] == [
        BESIDE, "config.json", "model.safetensors.index.json", "header of model-00001-of-00002.safetensors"]
    remote.failure_of_headers = http_error(errors.HfHubHTTPError)
    assert hub.fetch_config(REPO).precision == "float32"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    remote.asked.clear()
    assert hub.fetch_config(REPO).precision == "float32" and remote.asked == [("config.json", None)]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in the hub's layout: refs name commits, snapshots link to blobs."""
    home = tmp_path / "hub"
    repo = home / "models--some--model"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT)
    made = write_folder(tmp_path / "made", BF16, tensors_of(CONFIG), num_files=2)
    (repo / "blobs").mkdir()
    (repo / "snapshots" / COMMIT).mkdir(parents=True)
    for number, path in enumerate(sorted(made.iterdir())):
        (repo / "blobs" / str(number)).write_bytes(path.read_bytes())
        (repo / "snapshots" / COMMIT / path.name).symlink_to(Path("..") / ".." / "blobs" / str(number))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return repo / "snapshots" / COMMIT


def test_the_cache_is_enough_offline(cache: Path) -> None:
    for revision in (None, "main", COMMIT):
        source = hub.fetch_config(REPO, revision)
        assert (source.commit, source.config) == (COMMIT, BF16)
    folder = hub.fetch_weights(source)
    assert folder == cache and set(open_checkpoint(folder).names()) == set(tensors_of(CONFIG))


def test_what_the_cache_lacks_is_named(cache: Path) -> None:
    check_refused(lambda: hub.fetch_config("other/model"), "other/model is not in the cache", "HF_HUB_OFFLINE forbids")
    check_refused(lambda: hub.fetch_config(REPO, "v2"), f"{REPO} at v2 is not in the cache")
    check_refused(lambda: hub.fetch_config("not a name"), "'not a name'", "not a name of the hub either")
    (cache / "model-00002-of-00002.safetensors").unlink()
    check_refused(lambda: hub.fetch_weights(hub.fetch_config(REPO)), f"model-00002-of-00002.safetensors of {REPO}", "HF_HUB_OFFLINE")


def test_a_mark_that_a_file_does_not_exist_is_believed(cache: Path) -> None:
    marks = cache.parents[1] / ".no_exist" / COMMIT
    marks.mkdir(parents=True)
    (marks / "tokenizer.json").touch()
    source = hub.fetch_config(REPO)
    assert not (hub.fetch_weights(source) / "tokenizer.json").exists()


def test_a_broken_config_in_the_cache(cache: Path) -> None:
    (cache / "config.json").unlink()
    (cache / "config.json").write_text("{")
    check_refused(lambda: hub.fetch_config(REPO), "config.json is not JSON")
    (cache / "config.json").write_text(json.dumps([1]))
    check_refused(lambda: hub.fetch_config(REPO), "is JSON, but not an object")
