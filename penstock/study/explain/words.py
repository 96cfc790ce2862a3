"""How figures are told, and their changes: a small one in percent, a large one as a factor."""
LEAST = 5e-4  # that is told
LARGE = 2.0  # times as much, or as little: from here on as a factor
SAME = 0.005  # that rounds to no percent


def relative(ratio: float) -> str:
    """The new over the old -> "+54%", "-35%"; "26 times", "1/20"."""
    if not is_large(ratio):
        return f"{ratio - 1:+.0%}"
    return f"{factor(ratio)} times" if ratio > 1 else f"1/{factor(1 / ratio)}"


def comes_to(ratio: float) -> str:
    """The same, in front of what changes: "54% more", "35% less"; "26 times the", "1/20 of the"."""
    if abs(ratio - 1) < SAME:
        return "the same"
    if not is_large(ratio):
        return f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'}"
    return f"{relative(ratio)} the" if ratio > 1 else f"{relative(ratio)} of the"


def lasts(ratio: float) -> str:
    """The same, behind a time: "+50%", "-35%"; "26 times as long", "1/20"."""
    return f"{relative(ratio)} as long" if is_large(ratio) and ratio > 1 else relative(ratio)


def shortened(ratio: float) -> str:
    """The same, of a time that shrinks, behind a verb: "by 35%", "to 1/20"."""
    return f"to {relative(ratio)}" if is_large(ratio) else f"by {1 - ratio:.0%}"


def is_large(ratio: float) -> bool:
    return ratio > 0 and not 1 / LARGE < ratio < LARGE


def factor(ratio: float) -> str:
    """In two digits or whole numbers: the twin is no more exact than that."""
    return f"{ratio:,.0f}" if ratio >= 9.95 else f"{ratio:.1f}"


def short(value: float) -> str:
    """In three digits, or whole numbers."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if abs(value) >= LEAST else "0"
