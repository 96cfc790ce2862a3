"""What the algebra refuses."""


class UnsupportedError(Exception):
    """A schema that cannot be obeyed; the message says which part of it, and why."""
