"""What does a weight format cost in quality? Perplexity, KL divergence and flips of next-token choices on held-out text, for each.

    python bench/quant_drift.py --text BOOK.txt [BOOK.txt ...] [--model brook] [--quant int8 --quant int4:group=64 ...]

Everything is compared with the same backend on weights as the checkpoint has them. The last line is one JSON object.
"""
import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.compute.backends.contract import Batch, KVLayout
from penstock.compute.models.load.checkpoint import open_checkpoint
from penstock.compute.models.load.weights import load_weights
from penstock.core.config import EngineConfig
from penstock.serve.engine.build import choose, find
from penstock.serve.text.tokenizer import Tokenizer

Array = Any
BLOCK = 16
FORMATS = (
    "int8", "int8:activations=int8", *(f"int4:group={group},symmetric={symmetric},head={head}" for group in (32, 64, 128)
                                       for symmetric in ("true", "false") for head in (8, 4)),
    "int4:activations=int8", "int4:symmetric=false,activations=int8",
)


@dataclass(frozen=True, slots=True)
class Row:
    quant: str
    bits_per_weight: float  # all weights, scales counted
    perplexity: float
    kl: float  # nats a token, from the model as it is
    flips: float  # share of tokens at which another one becomes the likeliest


class Scorer:
    """One model in one weight format."""

    def __init__(self, model: str, quant: str, length: int) -> None:
        config = EngineConfig(model=model, quant=quant)
        found = find(config)
        chosen = choose(config, found)
        self.bits_per_weight = chosen.holding.bits_per_weight
        weights = load_weights(chosen.holding.program, open_checkpoint(found.source.path), chosen.dtype, chosen.scheme)
        self._backend = chosen.backend
        self._blocks = -(-length // BLOCK)
        self._loaded = self._backend.load(chosen.holding.program, weights, KVLayout(self._blocks, BLOCK))

    def log_probs(self, tokens: Array) -> Array:
        """[tokens, vocab] float32."""
        rows = np.arange(len(tokens))
        logits = self._backend.step(self._loaded, Batch(
            tokens, rows, rows, np.array([0, len(tokens)]), np.array([len(tokens)]), [np.arange(self._blocks)], rows,
            np.zeros((0, 2), np.int64))).logits
        shifted = logits - logits.max(axis=1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def windows(model: str, texts: list[Path], count: int, length: int) -> list[Array]:
    """Stretches of the texts, evenly spaced, each from a paragraph on."""
    tokenizer = Tokenizer.load(find(EngineConfig(model=model)).source.path)
    found = []
    for text in texts:
        content = text.read_text(encoding="utf-8")
        for i in range(-(-count // len(texts))):
            at = content.find("\n\n", len(content) * (i + 1) // (count // len(texts) + 2)) + 2
            found.append(np.asarray(tokenizer.encode(content[at : at + 16 * length])[:length], dtype=np.int64))
    return found


def compare(scorer: Scorer, quant: str, texts: list[Array], exact: list[Array]) -> Row:
    loss = kl = flips = 0.0
    total = sum(len(tokens) for tokens in texts)
    for tokens, before in zip(texts, exact, strict=True):
        after = scorer.log_probs(tokens)
        loss -= float(after[np.arange(len(tokens) - 1), tokens[1:]].sum())
        kl += float((np.exp(before) * (before - after)).sum())
        flips += int((before.argmax(axis=1) != after.argmax(axis=1)).sum())
    return Row(quant, scorer.bits_per_weight, math.exp(loss / (total - len(texts))), kl / total, flips / total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, nargs="+", required=True)
    parser.add_argument("--model", default="brook")
    parser.add_argument("--quant", action="append")
    parser.add_argument("--windows", type=int, default=60)
    parser.add_argument("--length", type=int, default=256, help="tokens of a window")
    args = parser.parse_args()
    texts = windows(args.model, args.text, args.windows, args.length)
    scorer = Scorer(args.model, "none", args.length)
    exact = [scorer.log_probs(tokens) for tokens in texts]
    rows = [compare(scorer, "none", texts, exact)]
    rows += [compare(Scorer(args.model, quant, args.length), quant, texts, exact) for quant in args.quant or FORMATS]
    print(f"{'quant':48} {'bits':>6} {'perplexity':>10} {'KL':>9} {'flips':>7}")
    for row in rows:
        print(f"{row.quant:48} {row.bits_per_weight:6.2f} {row.perplexity:10.3f} {row.kl:9.5f} {row.flips:7.2%}")
    print(json.dumps({"model": args.model, "tokens": sum(map(len, texts)), "rows": [asdict(row) for row in rows]}))


if __name__ == "__main__":
    main()
