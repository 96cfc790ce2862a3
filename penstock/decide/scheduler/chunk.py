"""How many tokens of a sequence one step takes: as many of those that are left as the budget allows, then drafts."""


def chunk(num_left: int, num_drafts: int, budget: int) -> tuple[int, int]:
    """(tokens, drafts among them) of a step. `num_left`: final tokens without keys and values; drafts come after the last of them."""
    if num_left > budget:
        return budget, 0
    drafts = min(num_drafts, budget - num_left)
    return num_left + drafts, drafts
