"""What a scheduler has done since it was made."""
from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """What has happened since the start; each figure only grows."""

    preemptions: int = 0
    drafted_tokens: int = 0  # drafts that a step verified
    accepted_tokens: int = 0  # drafts that it accepted, those behind a stop string included
    refused: int = 0  # sequences that could not have been in time
    deferred: int = 0  # such sequences that were taken in to go last
