import hashlib
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from layoutlab.errors import EXIT_USAGE, ModelError
from layoutlab.model.file import MAX_BYTES, read_model

CONTENT = b"\x1c\x00\x00\x00TFL3" + bytes(32)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "mobilenet_v3_224.tflite"
    path.write_bytes(CONTENT)
    return path


def message(path: Path | str, sha256: str | None = None) -> str:
    with pytest.raises(ModelError) as caught:
        read_model(path, sha256)
    assert caught.value.exit_code == EXIT_USAGE
    return str(caught.value)


def test_reads_the_content_and_its_hash(model: Path) -> None:
    file = read_model(str(model))
    assert (file.path, file.data, file.sha256) == (model, CONTENT, SHA256)


def test_accepts_the_right_hash_in_either_case(model: Path) -> None:
    assert read_model(model, SHA256.upper()).sha256 == SHA256


def test_is_frozen_and_does_not_print_its_content(model: Path) -> None:
    file = read_model(model)
    assert "TFL3" not in repr(file)
    with pytest.raises(FrozenInstanceError):
        file.sha256 = ""  # type: ignore[misc]


def test_missing_file_suggests_similar_names(model: Path) -> None:
    wrong = model.with_name("mobilnet_v3_224.tflite")
    assert message(wrong) == f"no model file at {wrong}; did you mean {model}?"


def test_missing_file_suggests_nothing_that_is_not_similar_or_not_tflite(model: Path) -> None:
    (model.parent / "resnet.txt").touch()
    wrong = model.with_name("resnet.tflite")
    assert message(wrong) == f"no model file at {wrong}"


def test_missing_directory(tmp_path: Path) -> None:
    wrong = tmp_path / "nowhere" / "a.tflite"
    assert message(wrong) == f"no model file at {wrong}: there is no directory {wrong.parent}"


def test_directory(tmp_path: Path) -> None:
    assert message(tmp_path) == f"{tmp_path} is a directory, not a .tflite file"


def test_device() -> None:
    assert message("/dev/zero") == "/dev/zero is not a regular file"


def test_path_through_a_file(model: Path) -> None:
    assert message(model / "a") == f"cannot read the model file {model / 'a'}: Not a directory"


def test_path_with_a_null_byte() -> None:
    assert message("a\0.tflite") == "cannot read the model file a\0.tflite: embedded null byte"


def test_empty_file(model: Path) -> None:
    model.write_bytes(b"")
    assert message(model) == f"{model} is empty"


def test_over_one_gib(model: Path) -> None:
    with model.open("r+b") as file:
        file.truncate(MAX_BYTES + 1)  # sparse: takes no space on the disk
    assert message(model) == (f"{model} has 1073741825 bytes; models over 1 GiB (1073741824 bytes) are not read")


@pytest.mark.parametrize(
    ("content", "found"), [(b"PK\x03\x04\x14\x00\x00\x00", rb"b'\x14\x00\x00\x00'"), (b"TFL3", b"b''")]
)
def test_wrong_identifier(model: Path, content: bytes, found: bytes) -> None:
    model.write_bytes(content)
    assert message(model) == (
        f"{model} is not a TFLite flatbuffer: bytes 4..8 should be b'TFL3', but are {found.decode()}"
    )


def test_wrong_hash_gives_both_in_full_and_what_to_do(model: Path) -> None:
    expected = "0" * 64
    assert message(model, expected) == (
        f"{model} is not the file the spec names:\n"
        f"  expected sha256 {expected}\n"
        f"  found sha256    {SHA256}\n"
        "If the file was meant to change, put the new hash into the spec; if not, restore the file."
    )
