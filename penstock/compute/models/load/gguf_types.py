"""The tensor types of GGUF, by ggml's numbers."""
from collections.abc import Mapping

from penstock.compute.models.load.gguf_blocks import BLOCKS, Format
from penstock.compute.models.load.gguf_grids import GRIDS

FORMATS: Mapping[int, Format] = {**BLOCKS, **GRIDS}
GIVEN_UP: Mapping[int, str] = {  # by ggml, which has no such types any more; files of before 2025 have them
    4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8",
}
UNREAD: Mapping[int, str] = {  # types that are known by name only
    **GIVEN_UP,
    9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 40: "NVFP4", 41: "Q1_0", 42: "Q2_0",
}
