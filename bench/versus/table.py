"""Rows as a table for people: what each engine gave, its share of the limit, ours over it; then the losses, by name."""
from collections.abc import Mapping, Sequence

from versus.rows import Row, ratio, verdicts

BEYOND = 1.05  # of a limit: a larger share is not noise
HEAD = ("point", "engine", "tokens/s", "spread", "of limit", "GB/s", "ours/its")


def table(rows: Sequence[Row]) -> list[str]:
    """Markdown: ours and the best way of each rival, by bits. `ours/its` is of our fastest format of the same bits."""
    shown = sorted((row for row in rows if row.best),
                   key=lambda row: (row.model, row.question, row.size, -row.bits, row.file, not row.ours))
    lines = [line(HEAD), line(["---"] * len(HEAD))]
    for row in shown:
        ours = [each for each in rows if each.ours and each.contest == row.contest]
        best = "" if row.ours or not ours else f"{max(ratio(each, row) for each in ours):.2f}"
        weights = f"{row.file} file" if row.file else f"{row.bits} bits"
        lines.append(line((
            f"{row.model} {row.point}, {weights}", row.name, f"{row.tokens_per_s:.1f}", f"{row.spread:.2f}", f"{row.share:.1%}",
            f"{row.bytes_per_s / 1e9:.1f}", best)))
    return lines


def line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def details(rows: Sequence[Row]) -> list[str]:
    """What our engine counted itself."""
    found = []
    for row in rows:
        parts = []
        if "mbu" in row.figures:
            parts.append(f"MBU {row.figures['mbu']:.1%}")
        if "decode_step_s" in row.figures:
            step, floor = row.figures["decode_step_s"], row.figures["decode_bytes"] / row.bytes_per_s
            parts.append(f"step {step * 1e6:.0f} us where its bytes take {floor * 1e6:.0f}")
            parts.append(f"host {row.figures['decode_host_s'] * 1e6:.0f} us")
        if "mfu" in row.figures and row.question != "decode":
            parts.append(f"MFU {row.figures['mfu']:.1%}")
        if parts:
            found.append(f"{row.model} {row.point}, {row.name}: {', '.join(parts)}")
    return found


def losses(rows: Sequence[Row]) -> list[str]:
    return [
        f"LOST: {each.ours.model} {each.ours.point}, {each.ours.name} {each.ours.tokens_per_s:.1f} tokens/s to {each.rival.name}"
        f" {each.rival.tokens_per_s:.1f} ({each.ratio:.2f} times)"
        for each in verdicts(rows) if each.ratio < 1]


def impossible(rows: Sequence[Row]) -> list[str]:
    """Shares that no machine gives: a prompt was not computed whole, say, or the limit was measured in a slow moment."""
    return [f"ABOVE THE LIMIT: {row.model} {row.point}, {row.name} at {row.share:.0%} of it" for row in rows if row.share > BEYOND]


def report(rows: Sequence[Row], failures: Mapping[str, str]) -> list[str]:
    lines = table(rows) + [""] + details(rows)
    lines += (losses(rows) or ["no loss"] * bool(verdicts(rows))) + impossible(rows)
    return lines + [f"FAILED: {name}: {why}" for name, why in failures.items()]
