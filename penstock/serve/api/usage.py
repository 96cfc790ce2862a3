"""`usage` as OpenAI writes it, with Anthropic's two figures for pinned prefixes."""
from collections.abc import Iterable
from typing import Any

from penstock.serve.engine.requests import Usage


def usage_object(usages: Iterable[Usage]) -> dict[str, Any]:
    """The sum over an HTTP request's prompts."""
    given = list(usages)
    prompt = sum(u.prompt_tokens for u in given)
    completion = sum(u.completion_tokens for u in given)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(u.cached_tokens for u in given)},
        "cache_creation_input_tokens": sum(u.cache_creation_input_tokens for u in given),
        "cache_read_input_tokens": sum(u.cache_read_input_tokens for u in given),
    }


def usage_so_far(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """`continuous_usage_stats`: what is known in the middle of an answer."""
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": prompt_tokens + completion_tokens}
