"""What the algebra refuses."""


class UnsupportedError(Exception):
    """A schema that cannot be obeyed; the message says which part of it, and why."""


def left_nothing(keywords: list[str], what: str) -> str:
    """`what` is left by a schema of these keywords."""
    if len(keywords) < 2:
        return f"{keywords[0]} leaves {what}" if keywords else f"{what} is valid by it"
    return f"{', '.join(keywords[:-1])} and {keywords[-1]} together leave {what}"
