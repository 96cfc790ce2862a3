"""Checkpoint folders: what is opened, and the sentence for each way in which one can be broken."""
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from penstock.compute.models.load.checkpoint import open_checkpoint, read_config, weight_files
from penstock.compute.models.load.tensorfile import TensorFile
from penstock.core.errors import ModelError
from tests.compute.models.load.makers import CONFIG, tensors_of, write_file, write_folder

INDEX = "model.safetensors.index.json"


def check_refused(folder: Path, *said: str) -> None:
    with pytest.raises(ModelError) as caught:
        open_checkpoint(folder)
    message = str(caught.value)
    assert "\n" not in message and all(part in message for part in said), message


@pytest.mark.parametrize("num_files", [1, 3])
def test_tensors_by_name(tmp_path: Path, num_files: int) -> None:
    tensors = tensors_of(CONFIG)
    checkpoint = open_checkpoint(write_folder(tmp_path, CONFIG, tensors, num_files))
    assert set(checkpoint.names()) == set(tensors) and checkpoint.config == CONFIG
    for name, values in tensors.items():
        assert checkpoint.shape(name) == values.shape
        np.testing.assert_array_equal(checkpoint.tensor(name), values)


def test_files_of_the_library_are_read(tmp_path: Path) -> None:
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones((), dtype=np.float16), "c": np.zeros((0, 4), np.float64)}
    save_file(tensors, str(tmp_path / "some.safetensors"), metadata={"format": "np"})
    file = TensorFile(tmp_path / "some.safetensors")
    assert set(file.names()) == set(tensors)
    for name, values in tensors.items():
        assert file.tensor(name).dtype == values.dtype
        np.testing.assert_array_equal(file.tensor(name), values)


def test_bfloat16_and_odd_offsets(tmp_path: Path) -> None:
    values = np.array([1.5, -2.0, 3.0], dtype=ml_dtypes.bfloat16)
    file = TensorFile(write_file(tmp_path / "odd.safetensors", {"byte": np.zeros(3, np.int8), "half": values}))
    assert file.tensor("half").dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(file.tensor("half"), values)
    with pytest.raises(ModelError, match="byte in .* is stored as I8; known: F64, F32, F16, BF16"):
        file.tensor("byte")


def test_tensors_cannot_be_written(tmp_path: Path) -> None:
    file = TensorFile(write_file(tmp_path / "one.safetensors", {"a": np.zeros(3, np.float32)}))
    with pytest.raises(ValueError, match="read-only"):
        file.tensor("a")[0] = 1


def test_no_folder_and_no_config(tmp_path: Path) -> None:
    check_refused(tmp_path / "nowhere", f"there is no folder {tmp_path / 'nowhere'}")
    check_refused(tmp_path, f"{tmp_path} has no config.json")


@pytest.mark.parametrize("text, said", [("{", "config.json is not JSON"), ("[1]", "is JSON, but not an object"), ("", "is not JSON")])
def test_broken_config(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match=said):
        read_config(tmp_path)


def test_config_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelError, match="config.json is not JSON"):
        read_config(tmp_path)


def test_no_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    check_refused(tmp_path, "holds no weights: neither model.safetensors nor model.safetensors.index.json")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "adapter_model.safetensors"])
def test_weights_in_another_form(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(b"")
    check_refused(tmp_path, f"holds {name} but no model.safetensors: weights are read as safetensors only")


def test_a_gguf_file_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model.Q4_K.gguf").write_bytes(b"")
    check_refused(tmp_path, f"{tmp_path} has no config.json, but model.Q4_K.gguf: give that file itself as the model")
    (tmp_path / "config.json").write_text("{}")
    check_refused(tmp_path, "holds model.Q4_K.gguf but no model.safetensors: give that file itself as the model")


@pytest.mark.parametrize("cut", [1, 100, 1000])
def test_truncated_file(tmp_path: Path, cut: int) -> None:
    path = write_folder(tmp_path, CONFIG, tensors_of(CONFIG)) / "model.safetensors"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-cut])
    check_refused(tmp_path, str(path), f"is cut short: it has {size - cut} bytes, but its tensors take {size}")


@pytest.mark.parametrize("content", [b"", b"\x01", (9999).to_bytes(8, "little") + b"{}", b"<html>404 not found</html>", b"\xff" * 64])
def test_file_that_is_no_safetensors(tmp_path: Path, content: bytes) -> None:
    write_folder(tmp_path, CONFIG, {})
    (tmp_path / "model.safetensors").write_bytes(content)
    check_refused(tmp_path, str(tmp_path / "model.safetensors"))


@pytest.mark.parametrize("header", [
    b"{", b"[]", b"\xff\xff", b'{"a": 3}', b'{"a": {"dtype": "F32"}}', b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4]}}',
    b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}}', b'{"a": {"dtype": "F32", "shape": "x", "data_offsets": [0, 4]}}',
    b'{"a": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}',
    b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4.5]}}',
    b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": ["0", "4"]}}', b'{"__metadata__": 3}',
    b'{"a": {"dtype": 3, "shape": [1], "data_offsets": [0, 4]}}', b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
    b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}', b'{"a": {"dtype": "F32", "shape": [true], "data_offsets": [0, 4]}}',
])
def test_broken_header(tmp_path: Path, header: bytes) -> None:
    write_folder(tmp_path, CONFIG, {})
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    check_refused(tmp_path, str(tmp_path / "model.safetensors"), "header")


@pytest.mark.parametrize(("first", "second"), [((0, 8), (4, 8)), ((0, 8), (0, 4)), ((4, 8), (0, 8)), ((0, 8), (0, 8))])
def test_tensors_that_share_bytes(tmp_path: Path, first: tuple[int, int], second: tuple[int, int]) -> None:
    entries = {name: {"dtype": "F32", "shape": [(end - start) // 4], "data_offsets": [start, end]}
               for name, (start, end) in (("a", first), ("b", second), ("none", (2, 2)))}
    header = json.dumps(entries).encode()
    write_folder(tmp_path, CONFIG, {})
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    check_refused(tmp_path, str(tmp_path / "model.safetensors"), "has a broken header", "bytes before", "ends")


ONE, TWO = '{"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}', '{"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}'


@pytest.mark.parametrize(("header", "size", "said"), [
    (f'{{"a": {ONE}, "a": {TWO}}}', 8, "the 4 bytes between the header and a are no tensor's"),
    (f'{{"a": {ONE}, "b": {TWO}}}', 9, "the 1 bytes behind b are no tensor's"),
    ('{"none": {"dtype": "F32", "shape": [0], "data_offsets": [2, 2]}}', 4, "the 4 bytes behind the header are no tensor's"),
])
def test_a_name_that_stands_twice_and_bytes_of_no_tensor(tmp_path: Path, header: str, size: int, said: str) -> None:
    text = header.encode()
    write_folder(tmp_path, CONFIG, {})
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
    check_refused(tmp_path, str(path), "has a broken header", said)
    with pytest.raises(SafetensorError):
        load_file(path)


def test_missing_shard(tmp_path: Path) -> None:
    write_folder(tmp_path, CONFIG, tensors_of(CONFIG), num_files=3)
    path = tmp_path / "model-00002-of-00003.safetensors"
    path.unlink()
    check_refused(tmp_path, f"{path} is missing", INDEX)
    path.symlink_to("../blobs/0123")
    check_refused(tmp_path, f"{path} is a link to ../blobs/0123, which is missing")


@pytest.mark.parametrize("name", ["config.json", INDEX, "model-00002-of-00003.safetensors"])
def test_what_is_there_but_cannot_be_read_is_not_said_to_be_missing(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path, CONFIG, tensors_of(CONFIG), num_files=3)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to(name)
    check_refused(tmp_path, f"{tmp_path / name} cannot be read: Too many levels of symbolic links")


def test_a_large_index_makes_a_path_of_each_file_and_not_of_each_tensor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSeek-V3 has 91,000 tensors in 163 files."""
    places = {f"t{n}": f"part{n % 2}.safetensors" for n in range(100)}
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": places}))
    made: list[str] = []
    monkeypatch.setattr(Path, "__truediv__", lambda self, name: made.append(name) or Path(f"{self}/{name}"))
    assert {path.name: len(names) for path, names in weight_files(tmp_path).items()} == {"part0.safetensors": 50, "part1.safetensors": 50}
    assert sorted(set(made)) == [INDEX, "part0.safetensors", "part1.safetensors"] and len(made) < 6


def test_what_git_leaves_in_place_of_a_file(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    write_folder(tmp_path, CONFIG, {})
    (tmp_path / "model.safetensors").write_bytes(pointer)
    check_refused(tmp_path, f"model.safetensors is a pointer of Git LFS, not the file that it stands for: run git lfs pull in {tmp_path}")
    (tmp_path / "model.gguf").write_bytes(pointer)
    check_refused(tmp_path / "model.gguf", "model.gguf is a pointer of Git LFS")


def test_weights_that_are_no_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").symlink_to("../blobs/0123")
    check_refused(tmp_path, f"{tmp_path / 'model.safetensors'} is a link to ../blobs/0123, which is missing")
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors").mkdir()
    check_refused(tmp_path, f"{tmp_path / 'model.safetensors'} cannot be read: Is a directory")


@pytest.mark.parametrize("newer", [1, 2])
def test_a_tensor_in_two_shards_is_where_the_index_says(tmp_path: Path, newer: int) -> None:
    tensors = tensors_of(CONFIG)
    write_folder(tmp_path, CONFIG, tensors, num_files=2)
    name = next(iter(TensorFile(tmp_path / f"model-0000{3 - newer}-of-00002.safetensors").names()))
    path = tmp_path / f"model-0000{newer}-of-00002.safetensors"
    held = {each: TensorFile(path).tensor(each).copy() for each in TensorFile(path).names()}
    write_file(path, {**held, name: np.zeros_like(tensors[name])})
    np.testing.assert_array_equal(open_checkpoint(tmp_path).tensor(name), tensors[name])


def test_index_that_promises_too_much(tmp_path: Path) -> None:
    write_folder(tmp_path, CONFIG, tensors_of(CONFIG), num_files=2)
    index = json.loads((tmp_path / INDEX).read_text())
    index["weight_map"]["model.extra.weight"] = "model-00001-of-00002.safetensors"
    (tmp_path / INDEX).write_text(json.dumps(index))
    check_refused(tmp_path, "model.extra.weight is missing from", "model-00001-of-00002.safetensors")


@pytest.mark.parametrize("index", ["{", "{}", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": {"a": 3}}',
                                   '{"weight_map": {"a": "../../secret.safetensors"}}', '{"weight_map": {"a": ".."}}',
                                   '{"weight_map": {"a": "."}}', '{"weight_map": {"a": ""}}', '{"weight_map": {"a": "/x.safetensors"}}'])
def test_broken_index(tmp_path: Path, index: str) -> None:
    write_folder(tmp_path, CONFIG, {})
    (tmp_path / INDEX).write_text(index)
    check_refused(tmp_path, str(tmp_path / INDEX))
