"""`usage` as OpenAI writes it, with Anthropic's two figures for pinned prefixes, and what became of drafts; and a choice's score."""
import math
from collections.abc import Iterable
from typing import Any

from penstock.core.drafting import Drafting, together
from penstock.core.types import Score
from penstock.serve.api.logprobs import finite
from penstock.serve.engine.requests import Usage


def usage_object(usages: Iterable[Usage], num_reasoning: int | None = None) -> dict[str, Any]:
    """The sum over an HTTP request's prompts. `num_reasoning`: output tokens that are reasoning; None where nobody tells them apart."""
    given = list(usages)
    prompt = sum(u.prompt_tokens for u in given)
    completion = sum(u.completion_tokens for u in given)
    drafting = together(u.drafting for u in given)
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(u.cached_tokens for u in given)},
        "completion_tokens_details": ({} if num_reasoning is None else {"reasoning_tokens": num_reasoning}) | {
            "accepted_prediction_tokens": drafting.num_accepted,
            "rejected_prediction_tokens": drafting.num_drafted - drafting.num_accepted,
        },
        "cache_creation_input_tokens": sum(u.cache_creation_input_tokens for u in given),
        "cache_read_input_tokens": sum(u.cache_read_input_tokens for u in given),
    }
    return usage | {"drafts": drafts_object(drafting, completion)} if drafting.passes else usage


def response_usage(usage: Usage, num_reasoning: int) -> dict[str, Any]:
    """The same under the names of the Responses API."""
    given = usage_object([usage], num_reasoning)
    written, read = given["cache_creation_input_tokens"], given["cache_read_input_tokens"]
    return {
        "input_tokens": given["prompt_tokens"],
        "input_tokens_details": {**given["prompt_tokens_details"], "cache_write_tokens": written},
        "output_tokens": given["completion_tokens"],
        "output_tokens_details": given["completion_tokens_details"],
        "total_tokens": given["total_tokens"],
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
    } | ({"drafts": given["drafts"]} if "drafts" in given else {})


def drafts_object(drafting: Drafting, num_tokens: int) -> dict[str, Any]:
    """What OpenAI has no word for."""
    return {
        "tokens_per_pass": drafting.tokens_per_pass(num_tokens),
        "draft_passes": drafting.passes,
        "tokens_per_draft_pass": drafting.tokens_per_draft_pass,
        "drafted_per_position": list(drafting.drafted),
        "accepted_per_position": list(drafting.accepted),
    }


def score_object(score: Score) -> dict[str, Any]:
    """`choices[].score`, where a scorer was asked for. Raises RequestError for NaN and infinity, which come of log-probabilities."""
    return {"value": score.value if math.isfinite(score.value) else finite(score.value), **score.details}


def usage_so_far(prompt_tokens: int, completion_tokens: int, num_reasoning: int | None = None) -> dict[str, Any]:
    """`continuous_usage_stats`: what is known in the middle of an answer. `num_reasoning`: as in `usage_object`."""
    details = {} if num_reasoning is None else {"completion_tokens_details": {"reasoning_tokens": num_reasoning}}
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": prompt_tokens + completion_tokens,
            **details}
