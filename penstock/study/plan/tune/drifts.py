"""What weight formats do to a model's next-token distributions, on a built-in text: one model in memory at a time."""
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.compute.backends.contract import KVLayout
from penstock.compute.models.load.checkpoint import open_checkpoint
from penstock.compute.models.load.hub import fetch_weights
from penstock.compute.models.load.weights import load_weights
from penstock.compute.runner import drift
from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError
from penstock.serve.engine.build import choose, find
from penstock.serve.text.tokenizer import Tokenizer
from penstock.study.plan.tune.budget import Drift

Array = Any
BLOCK = 16


class Drifts:
    """Compared with the engine as `given`, which is run once."""

    def __init__(self, given: EngineConfig) -> None:
        self._given = given
        found = find(given)
        tokenizer = Tokenizer.load(fetch_weights(found.source, None))
        self._tokens = tokenizer.encode(drift.TEXT)[: drift.num_tokens(found.spec, drift.MAX_TOKENS)]
        self._exact = self._log_probs(given)

    def of(self, quant: str) -> Drift:
        """Raises UsageError for a format that there is none of, PenstockError for one of which the model computes no numbers."""
        after = self._log_probs(replace(self._given, quant=quant))
        before = self._exact
        kl = float((np.exp(before) * (before - after)).sum(axis=1).mean())
        if not np.isfinite(kl):
            raise PenstockError(f"its drift has no number: in {quant}, or as it is, the model computes probabilities that are none")
        return Drift(max(kl, 0.0), float((before.argmax(axis=1) != after.argmax(axis=1)).mean()), len(before))

    def _log_probs(self, config: EngineConfig) -> Array:
        """[tokens, vocab]"""
        found = find(config)
        chosen = choose(config, found)
        program = chosen.holding.program
        weights = load_weights(program, open_checkpoint(fetch_weights(found.source, None)), chosen.dtype, chosen.scheme)
        blocks = -(-len(self._tokens) // BLOCK)
        loaded = chosen.backend.load(program, weights, KVLayout(blocks, BLOCK, chosen.backend.dtype))
        rows = np.arange(len(self._tokens), dtype=np.int64)
        batch = replace(drift.batch_of(self._tokens, BLOCK, False), logit_rows=rows)
        return drift.log_softmax(chosen.backend.step(loaded, batch).logits)
