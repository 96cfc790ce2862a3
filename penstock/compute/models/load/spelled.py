"""What a checkpoint may call a tensor."""


def spellings(name: str, aliases: tuple[tuple[str, str], ...]) -> list[str]:
    """`aliases`: of a Program."""
    found = [name]
    for ours, theirs in aliases:
        found += [each.replace(ours, theirs, 1) for each in found if ours in each]
    return found
