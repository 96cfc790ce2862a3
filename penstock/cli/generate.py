"""`penstock generate [MODEL] -p TEXT`: one completion, streamed, or as JSON with tokens, log-probabilities and timings."""
import json as jsonlib
import sys
from dataclasses import asdict, dataclass
from shlex import quote
from typing import Any

from penstock.cli.options import option, takes
from penstock.cli.progress import LoadingBar
from penstock.cli.prompt import read_prompt
from penstock.cli.sampling import COMPLETION, SamplingOptions, check, params_from, told_by_flags
from penstock.core.config import EngineConfig
from penstock.core.drafting import Drafting
from penstock.core.errors import UsageError
from penstock.core.types import Completion


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    prompt: str | None = option(None, "The prompt; - reads standard input, as does a pipe without this option", "--prompt", "-p")
    prompt_file: str | None = option(None, "A file with the prompt; - reads standard input", "--prompt-file", "-f")
    ignore_eos: bool = option(False, "Continue past the model's end of text")
    logprobs: int | None = option(None, "Report the log-probability of each token and of this many of the likeliest ones; needs --json")
    json: bool = option(False, "Print one JSON object: text, tokens, log-probabilities, timings")


@takes(GenerateOptions, SamplingOptions, EngineConfig)
def generate(options: GenerateOptions, sampling: SamplingOptions, engine: EngineConfig) -> None:
    """Complete one prompt."""
    check(sampling, engine.seed, ignore_eos=options.ignore_eos, logprobs=options.logprobs)
    if options.logprobs is not None and not options.json:
        raise UsageError("--logprobs are printed as JSON only: add --json")
    prompt = read_prompt(options.prompt, options.prompt_file, example(engine.model))
    from penstock.serve.llm import LLM

    with LoadingBar(f"loading {engine.model}") as progress:
        llm = LLM.from_config(engine, progress=progress, say=progress.say)
    params = params_from(llm.get_default_sampling_params(), sampling, engine.seed, ignore_eos=options.ignore_eos, logprobs=options.logprobs)
    with told_by_flags():
        output, timings = llm.complete(prompt, params, None if options.json else write, lambda room: min(COMPLETION, room))
    if not options.json:
        print(flush=True)
        return
    if llm.hardware is None:
        print("mfu and mbu are shares of this machine's limits: run `penstock limits` once to measure them", file=sys.stderr)
    answer = output.outputs[0]
    print(jsonlib.dumps({
        "text": answer.text,
        "token_ids": list(answer.token_ids),
        "prompt_tokens": len(output.prompt_token_ids),
        "completion_tokens": len(answer.token_ids),
        "finish_reason": answer.finish_reason,
        **asdict(timings),
        **drafts_of(output.drafting, len(answer.token_ids)),
        "logprobs": logprobs_of(answer),
    }))


def example(model: str) -> str:
    """What a user may have meant who gave no prompt. No model's name has a space in it, so that is the text."""
    name, text = (EngineConfig().model, model) if " " in model else (model, "Once upon a time")
    return f"penstock generate {quote(name)} -p {quote(text)}"


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def drafts_of(drafting: Drafting, num_tokens: int) -> dict[str, Any]:
    return {
        "drafted": drafting.num_drafted, "accepted": drafting.num_accepted, "tokens_per_pass": drafting.tokens_per_pass(num_tokens),
        "draft_passes": drafting.passes, "tokens_per_draft_pass": drafting.tokens_per_draft_pass, "acceptance": drafting.acceptance,
    }


def logprobs_of(answer: Completion) -> list[dict[str, Any]] | None:
    """One object a token: its own log-probability, and the likeliest tokens in falling order."""
    if answer.logprobs is None:
        return None
    return [
        {"token_id": token, **asdict(row[token]), "top": [{"token_id": each, **asdict(said)} for each, said in row.items()]}
        for token, row in zip(answer.token_ids, answer.logprobs, strict=True)
    ]
