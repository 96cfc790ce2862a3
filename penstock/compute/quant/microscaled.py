"""MXFP4: numbers of 4 bits (E2M1) in groups of 32 that share a power of two (E8M0), as the OCP Microscaling Formats v1.0 have them.

As `Codes`: the sixteen values doubled, so that they are whole, and the powers halved. All of this is exact.
"""
from typing import Any

import numpy as np

from penstock.compute.quant.codes import Coding

Array = Any
GROUP, BIAS = 32, 127
DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # the values of the codes
LARGEST = 252  # exponent: with any greater, 6 times the power is beyond float32, and 255 is no number
FLOAT16 = (BIAS + 1 - 24, BIAS + 1 + 15)  # exponents whose halved powers float16 holds


def coding(scales: str = "float16") -> Coding:
    """What holds it. The powers of trained weights fit in float16."""
    return Coding(4, GROUP, scales, False, DOUBLED)


def scales_dtype(exponents: Array) -> str:
    """Of what holds these powers (uint8, biased)."""
    fits = exponents.size == 0 or (exponents.min() >= FLOAT16[0] and exponents.max() <= FLOAT16[1])
    return "float16" if fits else "float32"


def halved_powers(exponents: Array, dtype: str = "float32") -> Array:
    """2^(exponent - 127) / 2, exactly, in a dtype that has them all."""
    powers: Array = np.ldexp(np.float32(1), exponents.astype(np.int32) - (BIAS + 1)).astype(dtype)
    return powers
