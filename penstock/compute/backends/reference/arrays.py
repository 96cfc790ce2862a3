"""The two array libraries that the reference runs on, behind the few calls in which they differ from the array API standard."""
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from penstock.core.errors import UsageError
from penstock.core.extras import how_to_install

Array = Any


class Arrays(Protocol):
    """One array library."""

    xp: Any  # the array API namespace
    dtypes: tuple[str, ...]  # that weights may have; those that are not computed in are held in float32
    dtype: str  # computed in
    itemsize: int  # bytes of the dtype computed in

    def take(self, array: Array) -> Array:
        """A numpy array as the library's own, in the dtype computed in."""
        ...

    def take_matrix(self, array: Array) -> Array:
        """The same for matrices [..., out, in] that rows are multiplied with: laid out as the library multiplies fastest."""
        ...

    def give(self, array: Array) -> Array:
        """The library's array as numpy float32."""
        ...

    def index(self, array: Array) -> Array:
        """A numpy array of ints as an index."""
        ...

    def zeros(self, shape: tuple[int, ...]) -> Array: ...

    def nbytes(self, array: Array) -> int: ...

    def inference(self) -> AbstractContextManager[Any]:
        """No gradients within, and no word about numbers that overflow where the result is right: silu of -100 is 0."""
        ...


class NumpyArrays:
    """Computes in float32, whatever the weights were rounded to."""

    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")
    dtype = "float32"
    itemsize = 4

    xp: Any = np

    def take(self, array: Array) -> Array:
        return np.ascontiguousarray(array, dtype=np.float32)

    def take_matrix(self, array: Array) -> Array:
        """A view of its transpose: with few rows, a product with a transposed matrix takes OpenBLAS 1.7 times as long."""
        return np.ascontiguousarray(np.swapaxes(array, -1, -2), dtype=np.float32).swapaxes(-1, -2)

    def give(self, array: Array) -> Array:
        return np.asarray(array, dtype=np.float32)

    def index(self, array: Array) -> Array:
        return array

    def zeros(self, shape: tuple[int, ...]) -> Array:
        return np.zeros(shape, dtype=np.float32)

    def nbytes(self, array: Array) -> int:
        return int(array.nbytes)

    def inference(self) -> AbstractContextManager[Any]:
        return np.errstate(over="ignore")


class TorchArrays:
    """Computes in the dtype of the weights, on any device of torch's. Raises UsageError where torch is not installed."""

    dtypes: tuple[str, ...] = ("float32", "bfloat16")

    def __init__(self, device: str, dtype: str) -> None:
        try:
            import torch
        except ImportError:
            raise UsageError(f"arrays=torch needs torch: {how_to_install('torch')}") from None
        import array_api_compat.torch as xp

        self.xp: Any = xp
        try:
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError) as error:
            raise UsageError(f"torch has no device {device!r} here: {str(error).splitlines()[0]}") from None
        self._torch, self._device, self._dtype = torch, torch.device(device), getattr(torch, dtype)
        self.dtype = dtype
        self.itemsize = self._dtype.itemsize

    def take(self, array: Array) -> Array:
        if isinstance(array, np.ndarray):
            array = self._torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
        return array.to(self._device, self._dtype)

    def take_matrix(self, array: Array) -> Array:
        return self.take(array)

    def give(self, array: Array) -> Array:
        return array.float().cpu().numpy()

    def index(self, array: Array) -> Array:
        return self._torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

    def zeros(self, shape: tuple[int, ...]) -> Array:
        return self._torch.zeros(shape, dtype=self._dtype, device=self._device)

    def nbytes(self, array: Array) -> int:
        return int(array.numel() * array.element_size())

    def inference(self) -> AbstractContextManager[Any]:
        entered: AbstractContextManager[Any] = self._torch.inference_mode()
        return entered


def make_arrays(name: str, device: str, dtype: str) -> Arrays:
    """Raises UsageError on an unknown library, or a dtype that it does not compute in."""
    libraries: dict[str, Any] = {"numpy": NumpyArrays, "torch": TorchArrays}
    if name not in libraries:
        raise UsageError(f"arrays={name} is not one of {', '.join(libraries)}")
    library = libraries[name]
    if library is NumpyArrays and not device.startswith("cpu"):
        raise UsageError(f"no kernels of Penstock compute on {device!r} yet, and numpy does not: --backend reference:arrays=torch may")
    if dtype not in library.dtypes:
        raise UsageError(f"the reference backend on {name} takes weights in {' or '.join(library.dtypes)}, not {dtype}")
    return TorchArrays(device, dtype) if library is TorchArrays else NumpyArrays()
