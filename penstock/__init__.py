"""Penstock, the inference engine that knows its own limits.

    from penstock import LLM, SamplingParams
    print(LLM("brook").generate(["Once upon a time"], SamplingParams(max_tokens=40))[0].outputs[0].text)

The public names are imported when first used, so that `import penstock` costs nothing.
"""
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.core.types import SamplingParams, StructuredOutputsParams
    from penstock.serve.llm import LLM

__version__ = "0.1.0"
__all__ = ["LLM", "SamplingParams", "StructuredOutputsParams", "__version__"]

_EXPORTS = {
    "LLM": "penstock.serve.llm", "SamplingParams": "penstock.core.types", "StructuredOutputsParams": "penstock.core.types",
}


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
