import importlib.metadata
from collections.abc import Callable
from pathlib import Path

from penstock.study.doctor import software
from penstock.study.doctor.check import Host, Status

Make = Callable[..., Host]


def test_an_old_python_is_an_error(make: Make) -> None:
    old, new = software.python(make(), (3, 10, 4)), software.python(make(), (3, 11, 0))
    assert (old.status, old.found) == (Status.ERROR, "3.10.4") and "3.11" in old.hint
    assert new.status is Status.PASS and new.details["version"] == "3.11.0" and software.python(make()).status is Status.PASS


def test_platforms_that_are_not_tested_are_named(make: Make) -> None:
    assert software.system(make(), "Linux", "x86_64").status is Status.PASS
    assert software.system(make(), "Darwin", "arm64").status is Status.PASS
    assert software.system(make(), "Windows", "AMD64").status is Status.WARN
    assert "plain C++" in software.system(make(), "Linux", "riscv64").hint


def test_the_native_module_is_there_missing_or_broken(make: Make) -> None:
    built = software.native_module(make())
    assert (built.status, built.details) == (Status.PASS, {"built": True, "compiler": "GCC 99.1"})
    missing = software.native_module(make(native=None))
    assert missing.status is Status.WARN and "compiler" in missing.hint and not missing.details["built"]
    broken = software.native_module(make(native=None, native_error="undefined symbol"))
    assert broken.status is Status.ERROR and "undefined symbol" in broken.found


def program(folder: Path, name: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return str(folder / name)


def test_a_compiler_is_needed_only_where_nothing_was_built(make: Make, tmp_path: Path) -> None:
    bare = {"PATH": str(tmp_path / "bin")}
    assert software.toolchain(make(environ=bare, native=None)).status is Status.WARN
    assert software.toolchain(make(environ=bare)).status is Status.PASS
    compiler, cmake = program(tmp_path / "bin", "g++"), program(tmp_path / "bin", "cmake")
    found = software.toolchain(make(environ=bare, native=None))
    assert found.status is Status.PASS and found.details == {"compiler": compiler, "cmake": cmake}
    own = program(tmp_path / "bin", "my-compiler")
    assert software.toolchain(make(environ={**bare, "CXX": "my-compiler"})).details["compiler"] == own


def test_numpys_blas_is_named(make: Make) -> None:
    found = software.numpy_blas(make())
    assert found.found.startswith("numpy ") and found.details["numpy"] and (found.status is Status.PASS) == bool(found.details["blas"])


def test_extras_may_be_missing(make: Make) -> None:
    def version_of(name: str) -> str:
        if name == "torch":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    found = software.extras(make(), version_of)
    assert found.status is Status.PASS and found.details == {"torch": None, "transformers": "1.0", "huggingface_hub": "1.0"}
    assert "torch not installed (for GPUs" in found.found
