"""A sampler with every filter, in both forms; rows of it, and the two array libraries."""
from dataclasses import dataclass

import numpy as np
import pytest
from array_api_compat import is_torch_array

from penstock.compute.backends.cpu.sampling import NativeSampling
from penstock.compute.decoding.filters import TABLE
from penstock.compute.decoding.sampler import Sampler
from penstock.compute.decoding.state import RowState
from penstock.core.types import SamplingParams, SeqInfo, TokenLogprobs


@dataclass(frozen=True)
class Choice:
    token: int | None
    logprobs: TokenLogprobs | None = None
    candidates: tuple[tuple[int, float], ...] = ()


class RowByRow(Sampler):
    """Says what each row came to by itself."""

    def sample(self, logits, states, output_index, masks=None):
        chosen = super().sample(logits, states, output_index, masks)
        assert not (chosen.logprobs.keys() | chosen.candidates.keys()) - set(range(len(states)))
        return [Choice(token, chosen.logprobs.get(row), chosen.candidates.get(row, ())) for row, token in enumerate(chosen.tokens)]


def portable_sampler():
    return RowByRow([TABLE.load(name)() for name in TABLE])


def native_sampler(threads=2, kernels=""):
    native = pytest.importorskip("penstock._native")
    model = native.Model(native.Pool(threads, []), kernels, False, False)
    return RowByRow([TABLE.load(name)() for name in TABLE], NativeSampling(native, model))


@pytest.fixture(params=[portable_sampler, native_sampler], ids=["portable", "native"])
def sampler(request):
    return request.param()


@pytest.fixture
def portable():
    return portable_sampler()


@pytest.fixture
def native():
    """Makes samplers of the native form: with so many threads, with the kernels of one instruction set."""
    return native_sampler


@pytest.fixture
def row():
    def make(prompt=(), output=(), seed=0, eos=(), **params):
        info = SeqInfo(SamplingParams(**params), tuple(prompt), seed=seed, eos_token_ids=tuple(eos), held="beam_width" in params)
        return RowState(info, output)

    return make


@pytest.fixture
def torch():
    """torch on one thread, which is fastest for small arrays; a test may ask for more."""
    library = pytest.importorskip("torch")
    num_threads = library.get_num_threads()
    library.set_num_threads(1)
    yield library
    library.set_num_threads(num_threads)


@pytest.fixture(params=["numpy", "torch"])
def to_array(request):
    """Turns a numpy array into one of the library under test."""
    return np.asarray if request.param == "numpy" else request.getfixturevalue("torch").tensor


@pytest.fixture
def to_numpy():
    return lambda array: array.numpy() if is_torch_array(array) else array
