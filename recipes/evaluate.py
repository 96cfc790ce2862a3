"""What the bundled models are worth: perplexity on books that they never saw, how much they copy right, how often rill would choose as
brook does, samples.

    python recipes/evaluate.py --corpus FOLDER
"""
import argparse
import json
import math
from pathlib import Path

import data
import numpy as np
import torch
from corpus import split
from model import Model
from shapes import SHAPES
from tokenizers import Tokenizer
from train import held_out_loss

from penstock import LLM, SamplingParams


def prompts(corpus: Path, count: int, words: int = 40) -> list[str]:
    """Openings of held-out passages, cut after so many words."""
    _, held_out = split(corpus)
    step = max(1, len(held_out) // count)
    return [" ".join(passage.split(" ")[:words]) for passage in held_out[::step]][:count]


@torch.no_grad()
def agreement(student: Model, asked: list[list[int]], answered: list[list[int]]) -> float:
    """Share of the teacher's greedy tokens that the student would have chosen too, given all before them."""
    same = total = 0
    for prompt, answer in zip(asked, answered, strict=True):
        choices = student.logits(torch.tensor([prompt + answer]))[0].argmax(-1).tolist()
        same += sum(choices[len(prompt) + i - 1] == token for i, token in enumerate(answer))
        total += len(answer)
    return same / total


@torch.no_grad()
def copied(model: Model, passages: list[str], tokenizer: Tokenizer, count: int = 64, characters: int = 600) -> float:
    """Share of tokens chosen right where the beginning of a passage stands a second time, from its ninth token on."""
    same = total = 0
    beginnings = [passage[:characters] for passage in passages[:: max(1, len(passages) // count)]]
    for encoded in tokenizer.encode_batch(beginnings, add_special_tokens=False):
        text = [data.BEGIN, *encoded.ids, *tokenizer.encode("\n\n", add_special_tokens=False).ids, *encoded.ids]
        wanted = text[-len(encoded.ids) + 8 :]
        choices = model.logits(torch.tensor([text[:-1]]))[0].argmax(-1).tolist()
        same += sum(a == b for a, b in zip(choices[-len(wanted) :], wanted, strict=True))
        total += len(wanted)
    return same / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--models", type=Path, default=Path("penstock/bundled"))
    parser.add_argument("--prompts", type=int, default=64)
    args = parser.parse_args()
    _, held_out = data.load(args.corpus, args.models / "brook/tokenizer.json")
    models = {}
    for name in SHAPES:
        models[name] = Model(SHAPES[name], seed=0)
        models[name].restore(args.models / name)
    found: dict[str, float] = {name + "_perplexity": math.exp(held_out_loss(model, held_out, windows=96)) for name, model in models.items()}
    tokenizer = Tokenizer.from_file(str(args.models / "brook/tokenizer.json"))
    passages = split(args.corpus)[1]
    found |= {name + "_copied": copied(model, passages, tokenizer) for name, model in models.items()}
    text_bytes = sum(len(passage.encode()) for passage in passages)
    found["bytes_per_token"] = text_bytes / len(held_out.ids)
    found["brook_bits_per_byte"] = math.log2(found["brook_perplexity"]) / found["bytes_per_token"]
    llm = LLM(str(args.models / "brook"))
    greedy = llm.generate(prompts(args.corpus, args.prompts), SamplingParams(temperature=0, max_tokens=64, ignore_eos=True))
    found["rill_agreement"] = agreement(
        models["rill"], [out.prompt_token_ids for out in greedy], [out.outputs[0].token_ids for out in greedy])
    windows = torch.from_numpy(held_out.epoch(data.Mix(512), seed=0)[:24, :-1].astype(np.int64))
    with torch.no_grad():
        choices = [[models[name].logits(part).argmax(-1) for part in windows.split(4)] for name in ("rill", "brook")]
        found["rill_agreement_on_books"] = float(np.mean([(a == b).float().mean() for a, b in zip(*choices, strict=True)]))
    for prompt in ("Once upon a time there was an old king who", "The little fox looked at the moon and"):
        answer = llm.generate(prompt, SamplingParams(temperature=0.7, top_p=0.95, seed=1, max_tokens=100))[0]
        print(f"{prompt}{answer.outputs[0].text}\n")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
