"""Independent random streams derived from one seed, by name.

A stream is a pure function of (seed, names): a resumed trial needs no saved generator state, and
drawing more from one stream never shifts another.
"""

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream `names` of `seed`."""
    # A cryptographic hash: streams of neighbouring seeds or similar names have nothing in common,
    # which arithmetic on seeds does not promise.
    text = "/".join(str(part) for part in (seed, *names))
    # 63 bits: torch and numpy take signed and unsigned seeds alike.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *names: str | int) -> "np.random.Generator":
    """A numpy generator for the stream `names` of `seed`."""
    import numpy as np  # for `derive` alone, numpy would take most of `ranksweep status`

    return np.random.default_rng(derive(seed, *names))
