"""Is what Penstock is made of there: Python, the native module, what builds it, numpy's linear algebra, the extras."""
import importlib.metadata
import platform
import sys
from collections.abc import Callable

from penstock.study.doctor.check import Check, Host, Status

MIN_PYTHON = (3, 11)
EXTRAS = {"torch": "GPUs, training, compression", "transformers": "comparisons in tests", "huggingface_hub": "models of the hub"}
SYSTEMS = ("Linux", "Darwin")
MACHINES = ("x86_64", "AMD64", "aarch64", "arm64")


def python(host: Host, version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Check:
    said = ".".join(map(str, version))
    if version < MIN_PYTHON:
        return Check("python", Status.ERROR, said, "install Python 3.11 or newer")
    return Check("python", Status.PASS, f"{platform.python_implementation()} {said}", details={"version": said})


def system(host: Host, name: str = "", machine: str = "") -> Check:
    name, machine = name or platform.system(), machine or platform.machine()
    said = f"{name} {platform.release()} on {machine}"
    details = {"system": name, "machine": machine}
    if machine not in MACHINES:
        return Check("platform", Status.WARN, said, f"kernels are tuned for {', '.join(MACHINES)}; plain C++ runs here", details)
    if name not in SYSTEMS:
        return Check("platform", Status.WARN, said, f"tested on {' and '.join(SYSTEMS)} only", details)
    return Check("platform", Status.PASS, said, details=details)


def native_module(host: Host) -> Check:
    if host.native is not None:
        compiler = host.native.compiler
        return Check("native module", Status.PASS, f"built with {compiler}", details={"built": True, "compiler": compiler})
    if host.native_error is not None:
        return Check(
            "native module", Status.ERROR, f"there, but it cannot be imported: {host.native_error}",
            "install Penstock again with this Python, so that the module is built for it", {"built": False})
    return Check(
        "native module", Status.WARN, "not built: the reference backend computes, which is slow",
        "install a C++17 compiler, then install Penstock again; the installation's log says what was missing", {"built": False})


def toolchain(host: Host) -> Check:
    compiler, cmake = host.which(host.environ.get("CXX", ""), "c++", "g++", "clang++"), host.which("cmake")
    details = {"compiler": compiler, "cmake": cmake}
    said = f"compiler {compiler or 'none'}, cmake {cmake or 'none'}"
    if compiler is None and host.native is None:
        return Check("build tools", Status.WARN, said, "install a C++17 compiler (g++ or clang++); pip brings cmake itself", details)
    return Check("build tools", Status.PASS, said, details=details)


def numpy_blas(host: Host) -> Check:
    import numpy
    from threadpoolctl import threadpool_info

    found = [each for each in threadpool_info() if each["user_api"] == "blas"]
    details = {"numpy": numpy.__version__, "blas": [each["internal_api"] for each in found]}
    if not found:
        return Check("numpy BLAS", Status.WARN, f"numpy {numpy.__version__} with no known BLAS",
                     "the reference backend is slow without one: install numpy from PyPI or conda-forge", details)
    said = ", ".join(f"{each['internal_api']} {each['version']}" for each in found)
    return Check("numpy BLAS", Status.PASS, f"numpy {numpy.__version__} with {said}", details=details)


def extras(host: Host, version_of: Callable[[str], str] = importlib.metadata.version) -> Check:
    """Optional packages; that one is missing is no fault."""
    versions: dict[str, str | None] = {}
    for name in EXTRAS:
        try:
            versions[name] = version_of(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    said = ", ".join(f"{name} {version or f'not installed (for {EXTRAS[name]})'}" for name, version in versions.items())
    return Check("optional packages", Status.PASS, said, details=versions)
