"""What is installed only where it is asked for."""


def how_to_install(extra: str) -> str:
    """In words, for messages and help: `extra` is one of pyproject.toml's."""
    return f"pip install '.[{extra}]' in a clone of Penstock, pip install 'penstock[{extra}]' elsewhere"
