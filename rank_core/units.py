"""Sizes in words."""

MEBIBYTE, GIBIBYTE = 2**20, 2**30
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(num_bytes: float) -> str:
    """A number of bytes in the largest unit of which there is one.

    Examples:
        >>> size_text(999), size_text(1536), size_text(2.5 * 2**30)
        ('999 B', '1.5 KiB', '2.5 GiB')
    """
    last = len(_UNITS) - 1
    power = next((n for n in range(last) if num_bytes < 1024 ** (n + 1)), last)
    return f"{num_bytes / 1024**power:,.{min(power, 1)}f} {_UNITS[power]}"
