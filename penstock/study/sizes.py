"""The sizes that a sweep tries: of batches, of replicas, of threads, of steps."""


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4 ... up to the most; none where it is below 1."""
    return [1 << power for power in range(max(0, most).bit_length())]


def doublings(most: int) -> list[int]:
    """1, 2, 4 ... and the most; none where it is below 1."""
    found = powers_of_two(most)
    return found if not found or found[-1] == most else [*found, most]
