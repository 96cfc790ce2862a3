"""What brook's heads and rill reach on openings of held-out books: tokens per pass, and the share of passes that accept each draft.

    python recipes/tokens_per_pass.py --corpus FOLDER [--prompts 64] [--propose eagle medusa draft_model] [--temperature 0 0.7 1]
"""
import argparse
import json
from pathlib import Path

from evaluate import prompts

from penstock import LLM, SamplingParams
from penstock.core.drafting import Drafting, together


def of(reached: Drafting) -> dict[str, object]:
    return {"drafts_per_pass": round(reached.num_drafted / reached.passes, 2), "tokens_per_pass": round(reached.tokens / reached.passes, 3),
            "accepted_by_position": [round(accepted / reached.passes, 3) for accepted in reached.accepted]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--model", default="brook")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=96, help="of each answer")
    parser.add_argument("--propose", nargs="+", default=["eagle", "medusa", "draft_model"])
    parser.add_argument("--temperature", nargs="+", type=float, default=[0.0, 0.7, 1.0])
    args = parser.parse_args()
    asked = prompts(args.corpus, args.prompts)
    plain = LLM(args.model)
    for propose in args.propose:
        drafting = LLM(args.model, propose=propose, draft_control="always")
        for temperature in args.temperature:
            params = SamplingParams(temperature=temperature, seed=1, max_tokens=args.tokens, ignore_eos=True)
            drafted, wanted = drafting.generate(asked, params), plain.generate(asked, params)
            if [each.outputs[0].token_ids for each in drafted] != [each.outputs[0].token_ids for each in wanted]:
                raise SystemExit(f"{propose} at temperature {temperature} changes an answer")
            reached = of(together(each.drafting for each in drafted))
            print(json.dumps({"propose": propose, "temperature": temperature, **reached}), flush=True)


if __name__ == "__main__":
    main()
