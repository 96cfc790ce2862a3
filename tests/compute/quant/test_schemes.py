"""The weight formats: which matrices they code and how, what they refuse, and what they say of themselves."""
from typing import Any

import numpy as np
import pytest

from penstock.compute.quant import TABLE
from penstock.compute.quant.codes import UNSIGNED, Coding
from penstock.core.errors import UsageError

BY_ROW = Coding(8, 96, "float32")


def scheme(text: str) -> Any:
    plugin, options = TABLE.parse(text)
    return plugin(options)


@pytest.mark.parametrize(("text", "columns", "table", "expected"), [
    ("none", 96, False, None), ("none", 96, True, None),
    ("int8", 96, False, BY_ROW), ("int8", 96, True, BY_ROW), ("int8", 31, False, None), ("int8", 33, False, Coding(8, 33, "float32")),
    ("int4", 96, False, Coding(4, 32, "int8")), ("int4", 96, True, BY_ROW),
    ("int4:head=4", 96, True, Coding(4, 32, "int8")),
    ("int4:group=64,symmetric=false", 128, False, Coding(4, 64, "float16", True, UNSIGNED)),
    ("int4:group=128", 256, False, Coding(4, 128, "int8")), ("int4:group=128", 192, False, Coding(4, 64, "int8")),
    ("int4:group=128", 96, False, Coding(4, 32, "int8")), ("int4:group=128", 80, False, Coding(8, 80, "float32")),
    ("int4", 16, False, None), ("int4:head=4", 80, True, Coding(8, 80, "float32")),
])
def test_which_matrices_are_coded_and_how(text: str, columns: int, table: bool, expected: Coding | None) -> None:
    found = scheme(text)
    assert found.coding((7, columns), table) == expected == found.coding((3, 7, columns), table)
    if expected is not None:
        assert found.quantize(np.random.default_rng(0).standard_normal((7, columns)), expected).coding == expected


@pytest.mark.parametrize(("text", "bits"), [
    ("none", None), ("int8", 8.0), ("int4", 4.25), ("int4:group=64", 4.125), ("int4:group=128,symmetric=false", 4.25),
])
def test_bits_per_weight(text: str, bits: float | None) -> None:
    assert scheme(text).bits_per_weight() == bits


@pytest.mark.parametrize(("text", "says"), [
    ("int5", "unknown weight format 'int5'; known: none, int8, int4"), ("int4:group=48", "group=48 is not one of 32, 64, 128"),
    ("int4:head=6", "head=6 is not one of 8, 4"), ("int8:group=32", "no option 'group'"), ("int4:symmetric=maybe", "true or false"),
    ("int8:activations=int4", "activations=int4 is not one of none, int8"),
])
def test_what_is_not_known_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        scheme(text)


def test_activations_are_rounded_only_when_asked() -> None:
    for name in TABLE:
        assert [scheme(name + more).activations for more in ("", ":activations=none", ":activations=int8")] == ["", "", "int8"]
