import struct
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFValueType as Type
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.compute.models.load.ggufile import GgufFile
from penstock.core.errors import ModelError
from tests.compute.models.load.gguf_makers import add_tensor, close

VALUES: dict[str, tuple[Type, Any]] = {
    "u8": (Type.UINT8, 255), "i8": (Type.INT8, -128), "u16": (Type.UINT16, 65535), "i16": (Type.INT16, -5), "u32": (Type.UINT32, 1 << 31),
    "i32": (Type.INT32, -7), "f32": (Type.FLOAT32, 1e-6), "yes": (Type.BOOL, True), "no": (Type.BOOL, False),
    "text": (Type.STRING, "é\n日"), "empty": (Type.STRING, ""),
    "u64": (Type.UINT64, 1 << 63), "i64": (Type.INT64, -1 << 62), "f64": (Type.FLOAT64, 0.1),
}
TENSORS = {
    "a": np.arange(96, dtype=np.float32).reshape(3, 32), "b": np.arange(5, dtype=np.float32), "c": np.ones((2, 3, 32), np.float32),
}


def write(path: Path, alignment: int | None = None) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    for key, (kind, value) in VALUES.items():
        writer.add_key_value(key, value, kind)
    writer.add_array("texts", ["a", "", "日本"])
    writer.add_array("floats", [0.5, 1.25])
    writer.add_array("ints", [1, -2, 3])
    writer.add_array("flags", [True, False])
    add_tensor(writer, "a", TENSORS["a"], Kind.Q8_0)
    add_tensor(writer, "b", TENSORS["b"])
    add_tensor(writer, "c", TENSORS["c"], Kind.BF16)
    return close(writer)


def header(kv: bytes = b"", tensors: bytes = b"", num_keys: int = 0, num_tensors: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_keys) + kv + tensors


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def entry(key: bytes, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def tensor(name: bytes, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def check_refused(path: Path, content: bytes, *said: str) -> None:
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        GgufFile(path)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400 and all(part in message for part in (str(path), *said)), message


def test_metadata_of_every_type(tmp_path: Path) -> None:
    metadata = GgufFile(write(tmp_path / "x.gguf")).metadata
    for key, (_, value) in VALUES.items():
        found = metadata.get(key)
        assert (found, type(found)) == (value, type(value)), key
    assert metadata.texts("texts") == ["a", "", "日本"] and metadata.length("texts") == 3
    assert metadata.numbers("floats", "f").tolist() == [0.5, 1.25]
    assert metadata.numbers("ints", "iu").tolist() == [1, -2, 3]
    assert metadata.numbers("flags", "b").tolist() == [True, False]
    assert metadata.text("general.architecture") == "llama" and metadata.length("nowhere") is None
    assert "f32" in metadata and "nowhere" not in metadata and list(metadata)[0] == "general.architecture"


def test_getters_refuse_other_types(tmp_path: Path) -> None:
    metadata = GgufFile(write(tmp_path / "x.gguf")).metadata
    for call, said in (
        (lambda: metadata.text("nowhere"), "x.gguf has no nowhere"), (lambda: metadata.text("u8"), "says u8 255, but it must be a string"),
        (lambda: metadata.whole("yes"), "says yes True, but it must be a whole number of at least 0"),
        (lambda: metadata.whole("i8"), "says i8 -128"), (lambda: metadata.number("text"), "but it must be a finite number"),
        (lambda: metadata.flag("u8"), "but it must be true or false"), (lambda: metadata.texts("ints"), "but it must be a list of strings"),
        (lambda: metadata.numbers("texts", "f"), "but it must be a list of numbers"),
        (lambda: metadata.numbers("ints", "f"), "but it must be a list of numbers"),
    ):
        with pytest.raises(ModelError) as caught:
            call()
        assert said in str(caught.value)
    assert metadata.text("nowhere", None) is None and metadata.whole("nowhere", 4) == 4 and metadata.number("u8") == 255.0


def test_floats_are_the_decimals_that_were_written(tmp_path: Path) -> None:
    def one(value: float) -> Any:
        (tmp_path / "x.gguf").write_bytes(header(entry(b"x", 6, struct.pack("<f", value)), num_keys=1))
        return GgufFile(tmp_path / "x.gguf").metadata.number("x")

    for value in (1e-5, 1e-6, 10000.0, 500000.0, 0.7, 1.05, 0.1, 3.4e38, 1e-40, 0.0):
        assert one(value) == value
    with pytest.raises(ModelError, match="says x inf, but it must be a finite number"):
        one(float("inf"))


@pytest.mark.parametrize("alignment", [None, 64, 256])
def test_tensors_lie_where_the_library_puts_them(tmp_path: Path, alignment: int | None) -> None:
    file = GgufFile(write(tmp_path / "x.gguf", alignment))
    assert {name: each.shape for name, each in file.tensors.items()} == {name: values.shape for name, values in TENSORS.items()}
    for theirs in gguf.GGUFReader(tmp_path / "x.gguf").tensors:
        np.testing.assert_array_equal(file.rows(theirs.name).reshape(-1), theirs.data.reshape(-1).view(np.uint8))
    assert file.rows("a").shape == (3, 34) and file.rows("b").shape == (5, 4) and file.rows("c").shape == (6, 64)
    np.testing.assert_array_equal(file.rows("c").view(ml_dtypes.bfloat16).reshape(2, 3, 32), TENSORS["c"].astype(ml_dtypes.bfloat16))
    with pytest.raises(ValueError, match="read-only"):
        file.rows("a")[0] = 1


def test_version_2(tmp_path: Path) -> None:
    content = bytearray(write(tmp_path / "x.gguf").read_bytes())
    content[4] = 2
    (tmp_path / "x.gguf").write_bytes(content)
    assert GgufFile(tmp_path / "x.gguf").metadata.number("f32") == 1e-6


@pytest.mark.parametrize("content, said", [
    (b"", "cannot be read"), (b"GG", "is not a GGUF file"), (b"<html>404", "is not a GGUF file: it does not begin with GGUF"),
    (b"GGUF\x03\x00\x00\x00", "is cut short: it has 8 bytes, but a header takes 24"), (header(version=1), "is of GGUF version 1; read are"),
    (header(version=4), "is of GGUF version 4"), (header(version=3 << 24), "is in big-endian order; read are versions 2 and 3"),
])
def test_what_is_no_gguf_file(tmp_path: Path, content: bytes, said: str) -> None:
    check_refused(tmp_path / "x.gguf", content, said)
    with pytest.raises(ModelError, match="cannot be read: No such file"):
        GgufFile(tmp_path / "nowhere.gguf")


HUGE = (1 << 64) - 1
BROKEN = {
    "keys that are not there": header(num_keys=HUGE), "tensors that are not there": header(num_tensors=HUGE),
    "a long key": header(struct.pack("<Q", HUGE) + b"x", num_keys=1),
    "a long string": header(entry(b"x", 8, struct.pack("<Q", HUGE)), num_keys=1),
    "a long list of numbers": header(entry(b"x", 9, struct.pack("<IQ", 4, HUGE)), num_keys=1),
    "a long list of strings": header(entry(b"x", 9, struct.pack("<IQ", 8, HUGE)), num_keys=1),
    "a long list of lists": header(entry(b"x", 9, struct.pack("<IQ", 9, HUGE) + struct.pack("<IQ", 0, 0) * 3), num_keys=1),
    "a number cut off": header(entry(b"x", 10, b"1234"), num_keys=1),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_counts_and_lengths_that_the_file_does_not_hold(tmp_path: Path, content: bytes) -> None:
    check_refused(tmp_path / "x.gguf", content, "is cut short, or its header is broken: it ends at byte")


@pytest.mark.parametrize("content, said", [
    (header(entry(b"x", 13, b"1234"), num_keys=1), "x is of the unknown type 13"),
    (header(entry(b"x", 9, struct.pack("<IQ", 77, 1)), num_keys=1), "x is of the unknown type 77"),
    (header(entry(b"x", 9, struct.pack("<IQ", 9, 1) * 20), num_keys=1), "arrays nested more than 8 deep"),
    (header(entry(b"x", 0, b"1") * 2, num_keys=2), "has two values of x"),
    (header(entry(b"\xff", 0, b"1"), num_keys=1), "the metadata key at byte 24 is not UTF-8 text"),
    (header(entry(b"a\0b\n" * 9999, 99, b"1"), num_keys=1), "the metadata key at byte 24 is 'a\\x00b\\na"),
    (header(tensors=tensor(b"x" * 1025, ()), num_tensors=1), "the tensor's name at byte 24 is 'xxx"),
    (header(tensors=tensor(b"\xff", (1,)), num_tensors=1), "the tensor's name at byte 24 is not UTF-8 text"),
    (header(tensors=tensor(b"t", (1,)) * 2, num_tensors=2), "has two tensors t"),
    (header(tensors=tensor(b"t", ()), num_tensors=1), "t has 0 dimensions, not 1 to 4"),
    (header(tensors=tensor(b"t", (1,) * 5), num_tensors=1), "t has 5 dimensions"),
    (header(tensors=tensor(b"t", (4, 0)), num_tensors=1), "t is [0, 4], which holds nothing"),
    (header(tensors=tensor(b"t", (33, 2), 8), num_tensors=1), "t is Q8_0 [2, 33], in blocks of 32"),
    (header(tensors=tensor(b"t", (256, 2), 40), num_tensors=1), "is stored as NVFP4; known: F32, F16"),
    (header(tensors=tensor(b"t", (256, 2), 42), num_tensors=1), "is stored as Q2_0; known: F32, F16"),
    (header(tensors=tensor(b"t", (256, 2), 33), num_tensors=1), "is stored as Q4_0_8_8; known: F32, F16"),
    (header(tensors=tensor(b"t", (256, 2), 99), num_tensors=1), "is stored as the unknown type 99; known: F32, F16"),
    (header(tensors=tensor(b"t", (1 << 62, 1 << 62, 4, 4)), num_tensors=1), "is cut short: it has"),
    (header(tensors=tensor(b"t", (4,), 0, HUGE - 31), num_tensors=1), "is cut short: it has"),
    (header(tensors=tensor(b"t", (4,), 0, HUGE), num_tensors=1), f"t is at offset {HUGE}, which is no multiple of 32"),
    (header(tensors=tensor(b"t", (16,)) + tensor(b"u", (4,), 0, 32), num_tensors=2) + bytes(128),
     "u begins at byte 128, within t, which ends at 160"),
    (header(entry(b"general.alignment", 4, struct.pack("<I", 0)), num_keys=1), "general.alignment 0, but it must be a whole number of at"),
    (header(entry(b"general.alignment", 8, string(b"32")), num_keys=1), "general.alignment '32', but it must be a whole number"),
])
def test_broken_headers(tmp_path: Path, content: bytes, said: str) -> None:
    check_refused(tmp_path / "x.gguf", content, said)


def test_lists_in_lists(tmp_path: Path) -> None:
    inner = struct.pack("<IQ", 0, 2) + b"\x01\x02"
    (tmp_path / "x.gguf").write_bytes(header(entry(b"x", 9, struct.pack("<IQ", 9, 2) + inner * 2), num_keys=1))
    assert [each.tolist() for each in GgufFile(tmp_path / "x.gguf").metadata.get("x")] == [[1, 2], [1, 2]]


def test_text_that_is_not_utf_8_is_told_when_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(header(entry(b"bad", 8, string(b"\xff")) + entry(b"good", 8, string(b"g")), num_keys=2))
    metadata = GgufFile(tmp_path / "x.gguf").metadata
    assert metadata.text("good") == "g"
    with pytest.raises(ModelError, match="has a bad that is not UTF-8 text"):
        metadata.text("bad")


def test_cut_at_every_byte(tmp_path: Path) -> None:
    content = write(tmp_path / "whole.gguf").read_bytes()
    for size in range(1, len(content) - 64):  # the last tensor's padding may be missing
        check_refused(tmp_path / "x.gguf", content[:size])


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_read_or_refused(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    content = bytearray(write(folder / "seed.gguf").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 8))
        content[at : at + 8] = data.draw(st.one_of(st.binary(min_size=8, max_size=8), st.just(b"\xff" * 8), st.just(bytes(8))))
    (folder / "changed.gguf").write_bytes(content)
    try:
        file = GgufFile(folder / "changed.gguf")
        assert all(file.rows(name).size for name in file.tensors)
        for key in file.metadata:
            file.metadata.get(key)
    except ModelError as error:
        assert "\n" not in str(error)
