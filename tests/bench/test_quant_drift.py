"""Windows of held-out text are other stretches of it."""
from pathlib import Path

import pytest
import quant_drift


@pytest.mark.parametrize("blank", ["", "\n\n"])
def test_a_text_without_paragraphs_is_cut_anywhere(tmp_path: Path, blank: str) -> None:
    text = tmp_path / "text"
    text.write_text("".join(f"{number} went to the market. {blank}" for number in range(400)), encoding="utf-8")
    found = quant_drift.windows("brook", [text], 8, 12)
    assert len({tuple(tokens) for tokens in found}) == len(found) == 8 and {len(tokens) for tokens in found} == {12}
