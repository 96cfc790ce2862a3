"""Runs every check, none of which can end the others."""
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.compute.native import native_module
from penstock.core.hardware import home_folder
from penstock.study.doctor import memory, network, processors, software, storage
from penstock.study.doctor.check import Check, Host, Status

CHECKS: tuple[Callable[[Host], Check], ...] = (
    software.python, software.system, software.native_module, software.toolchain, software.numpy_blas, software.extras,
    processors.cpus, processors.instruction_sets, processors.kernels, processors.limits,
    memory.memory, memory.swap, memory.huge_pages,
    storage.hub_token, storage.caches, storage.bundled_models, network.port,
)


def this_host() -> Host:
    try:
        native = native_module()
    except ModuleNotFoundError:
        return Host(Path("/"), home_folder(), os.environ)
    except ImportError as error:
        return Host(Path("/"), home_folder(), os.environ, native_error=str(error))
    return Host(Path("/"), home_folder(), os.environ, native)


def examine(host: Host, checks: Sequence[Callable[[Host], Check]] = CHECKS) -> list[Check]:
    return [attempt(check, host) for check in checks]


def attempt(check: Callable[[Host], Check], host: Host) -> Check:
    """A check that fails itself is an error of its own."""
    try:
        return check(host)
    except Exception as error:
        name = check.__name__.replace("_", " ")
        return Check(name, Status.ERROR, f"could not be checked: {type(error).__name__}: {error}", "please report this")


def as_json(checks: Sequence[Check]) -> dict[str, Any]:
    counts = {status.value: sum(check.status is status for check in checks) for status in Status}
    return {
        "ok": not counts[Status.ERROR.value],
        "counts": counts,
        "checks": [
            {"name": check.name, "status": check.status.value, "found": check.found, "hint": check.hint, "details": dict(check.details)}
            for check in checks
        ],
    }
