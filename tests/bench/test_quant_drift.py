"""Windows of held-out text are other stretches of it."""
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quant_drift


@pytest.mark.parametrize("blank", ["", "\n\n"])
def test_a_text_without_paragraphs_is_cut_anywhere(tmp_path: Path, blank: str) -> None:
    text = tmp_path / "text"
    text.write_text("".join(f"{number} went to the market. {blank}" for number in range(400)), encoding="utf-8")
    found = quant_drift.windows("brook", [text], 8, 12)
    assert len({tuple(tokens) for tokens in found}) == len(found) == 8 and {len(tokens) for tokens in found} == {12}


def test_figures_are_those_of_the_logits() -> None:
    """Perplexity of what follows in each window; KL and flips at all of its tokens."""
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 50, length) for length in (7, 12)]
    before, after = ([rng.standard_normal((len(each), 50)) * 3 for each in texts] for _ in range(2))

    def shares(logits: Any) -> Any:
        return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)

    class Scorer:
        bits_per_weight = 5.5
        log_probs = staticmethod(lambda tokens: np.log(shares(after[[len(each) for each in texts].index(len(tokens))])))

    scorer: Any = Scorer()
    row = quant_drift.compare(scorer, "int4", texts, [np.log(shares(each)) for each in before])
    p, q = (np.concatenate([shares(each) for each in logits]) for logits in (before, after))
    told = [shares(logits)[at, tokens[at + 1]] for tokens, logits in zip(texts, after, strict=True) for at in range(len(tokens) - 1)]
    assert row.perplexity == pytest.approx(math.prod(told) ** (-1 / 17))
    assert row.kl == pytest.approx((p * np.log(p / q)).sum(axis=1).mean())
    assert row.flips == (p.argmax(axis=1) != q.argmax(axis=1)).mean() and (row.quant, row.bits_per_weight) == ("int4", 5.5)
