"""What does each weight format cost in quality? Perplexity, KL divergence and flips of next-token choices on held-out text.

    python bench/quant_drift.py --text BOOK.txt [BOOK.txt ...] [--model brook] [--quant int8 --quant int4:group=64 ...]

Everything is compared with the same backend on the checkpoint's own weights. The last line is one JSON object.
"""
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from versus.arguments import Parser, said, text_file, whole
from versus.engines import check_words

from penstock.compute.backends.contract import NO_COPIES, Batch, KVLayout
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

    def __init__(self, model: str, quant: str, length: int, backend: str) -> None:
        config = EngineConfig(model=model, quant=quant, backend=backend)
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
            NO_COPIES)).logits
        shifted = logits - logits.max(axis=1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def windows(model: str, texts: list[Path], count: int, length: int) -> list[Array]:
    """Stretches of the texts, evenly spaced, each from a paragraph on if one begins before the next stretch."""
    tokenizer = Tokenizer.load(find(EngineConfig(model=model)).source.path)
    found = []
    for text in texts:
        content = text.read_text(encoding="utf-8")
        for i in range(-(-count // len(texts))):
            first, end = (len(content) * each // (count // len(texts) + 2) for each in (i + 1, i + 2))
            blank = content.find("\n\n", first, end)
            at = first if blank < 0 else blank + 2
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


def make_parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("--text", type=text_file, nargs="+", required=True, metavar="FILE", help="held-out texts; UTF-8")
    made.add_argument("--model", type=said, default="brook", help="a folder, a GGUF file or a hub name; default: %(default)s")
    made.add_argument("--quant", type=said, action="append",
                      help=f"weight format, as for penstock; may be given several times; default: {len(FORMATS)} of them")
    made.add_argument("--backend", type=said, default="auto", help="backend for all formats; default: %(default)s")
    made.add_argument("--windows", type=whole(), default=60, help="windows of text, over all files; default: %(default)s")
    made.add_argument("--length", type=whole(2), default=256, help="tokens per window; default: %(default)s")
    return made


def main() -> None:
    parser = make_parser()
    args = parser.parse_args()
    with parser.refusing():
        found = find(EngineConfig(model=args.model))
        for quant in ("none", *(args.quant or FORMATS)):
            check_words(EngineConfig(model=args.model, quant=quant, backend=args.backend), found)
    if args.length > found.spec.max_position:
        parser.error(f"--length {args.length:,} must be at most {found.spec.max_position:,}, the context of {args.model}")
    texts = windows(args.model, args.text, args.windows, args.length)
    if (least := min(map(len, texts))) < 2:
        parser.error(f"--text has a stretch of {least} tokens: give texts of at least {args.length:,} tokens, or fewer --windows")
    scorer = Scorer(args.model, "none", args.length, args.backend)
    exact = [scorer.log_probs(tokens) for tokens in texts]
    rows = [compare(scorer, "none", texts, exact)]
    rows += [compare(Scorer(args.model, quant, args.length, args.backend), quant, texts, exact) for quant in args.quant or FORMATS]
    print(f"{'quant':48} {'bits':>6} {'perplexity':>10} {'KL':>9} {'flips':>7}")
    for row in rows:
        print(f"{row.quant:48} {row.bits_per_weight:6.2f} {row.perplexity:10.3f} {row.kl:9.5f} {row.flips:7.2%}")
    print(json.dumps({"model": args.model, "tokens": sum(map(len, texts)), "rows": [asdict(row) for row in rows]}))


if __name__ == "__main__":
    main()
