"""Random draws without generator state: the random number is a function of (seed, output index), so a request that was preempted, moved to
another engine or batched with others draws the same tokens."""
from collections.abc import Sequence

from penstock.compute.arrays import Array, array_namespace, device
from penstock.compute.decoding.sums import SumTree

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def uniform(seed: int, index: int) -> float:
    """A number in [0, 1) with 53 random bits. splitmix64 (Steele, Lea, Flood 2014), its stream chosen by the mixed seed.

    `seed` is any integer, of which the lower 64 bits count; `index` is the position of the token in the output.
    """
    return (mixed(mixed(seed & _MASK) + index * _GAMMA) >> 11) * 2.0**-53


def mixed(x: int) -> int:
    """splitmix64's output for the state x: 64 bits in which those of x are spread."""
    x = (x + _GAMMA) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def draw(logits: Array, uniforms: Sequence[float]) -> list[int]:
    """One token a row of float32 logits [rows, vocab]: the first at which the running sum of probabilities, in the order of ids,
    exceeds the row's uniform number. A row without any finite logit gives token 0."""
    xp = array_namespace(logits)
    tree = SumTree(xp.exp(below_max(logits)))
    targets = tree.total * xp.asarray(list(uniforms), dtype=xp.float64, device=device(logits))
    return [int(token) for token in tree.find(targets)]


def below_max(logits: Array) -> Array:
    """Subtracts each row's maximum, so that it becomes 0; a row of -inf stays as it is. [rows, vocab]"""
    return logits - row_max(logits)


def row_max(logits: Array) -> Array:
    """The largest value of each row; 0 for a row of -inf. [rows, 1]"""
    xp = array_namespace(logits)
    largest = xp.max(logits, axis=-1, keepdims=True)
    return xp.where(xp.isfinite(largest), largest, xp.zeros_like(largest))
