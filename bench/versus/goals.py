"""What ours is to reach, as docs/performance.md says it in words."""
from versus.rows import Row, Verdict

HEAVY = 300e6  # bytes of a step, below which decoding behind a short prompt has no goal of its own


def share(row: Row, amx: bool) -> float:
    """Of the limit; 0 where there is no goal."""
    if row.question == "decode":
        light = row.figures.get("decode_bytes", HEAVY) < HEAVY
        return 0.8 if row.size else 0.0 if light else 0.85 if row.bits == 4 else 0.9
    if row.question == "prefill":
        return ({16: 0.65} if amx else {16: 0.85, 8: 0.7}).get(row.bits, 0.0)
    return 0.0


def ratio(verdict: Verdict, amx: bool) -> float:
    """Over the rival's speed: at least as fast, everywhere."""
    row, rival = verdict.ours, verdict.rival
    if row.question == "decode":
        return 2.0 if row.size == 8192 else 1.0 if rival.share > 0.85 else 1.2
    if row.question == "prefill":
        return 1.0 if rival.share > 0.8 else 3.0 if amx else 1.5
    if row.size < 32:
        return 1.0
    return 2.0 if rival.engine == "llama.cpp" else 1.3
