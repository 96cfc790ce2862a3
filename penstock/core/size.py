"""Bytes for people: the unit in which the number is from 1 to below 1,024."""
UNITS = ("bytes", "KiB", "MiB", "GiB")


def size(num_bytes: float) -> str:
    """1536 -> 1.5 KiB."""
    for unit in UNITS:
        if num_bytes < 1024:
            return f"{num_bytes:.4g} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:,.1f} TiB"
