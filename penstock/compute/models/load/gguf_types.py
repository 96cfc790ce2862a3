"""The tensor types of GGUF, by ggml's numbers."""
from collections.abc import Mapping

from penstock.compute.models.load.gguf_blocks import BLOCKS, Format
from penstock.compute.models.load.gguf_grids import GRIDS

FORMATS: Mapping[int, Format] = {**BLOCKS, **GRIDS}
UNREAD: Mapping[int, str] = {  # types that are known by name only
    9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 40: "NVFP4", 41: "Q1_0", 42: "Q2_0",
}
