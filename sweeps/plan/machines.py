"""GPUs that a plan can be made for without having them: `--for 8xH100@2.5`."""

import math
import re
from dataclasses import dataclass

from rank_core.errors import BadInput, shown

BACKWARD = 2.0  # a backward pass costs about two forward passes
KNOWN_BY = "python -m tests.benchmarks.modelled_mfu --tokens 65536"


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU, and the shares of its rate that a BERT-base has (`KNOWN_BY`)."""

    rate: float  # dense bf16 operations per second of the data sheet
    scoring: float
    training: float

    def seconds(self, scored: float, trained: float) -> float:
        """The time of forward passes of so many operations, and of training on so many."""
        return (trained * (1 + BACKWARD) / self.training + scored / self.scoring) / self.rate


GPUS = {
    "H100": Gpu(989e12, 0.38, 0.33),
    "H200": Gpu(989e12, 0.38, 0.33),
    "A100": Gpu(312e12, 0.48, 0.43),
    "L4": Gpu(121e12, 0.39, 0.36),
}


def kind_of(device: str) -> str:
    """The kind of GPU in a device's name, such as `NVIDIA H100 80GB HBM3`; "" for others, and for
    a part of one.

    Examples:
        >>> kind_of("NVIDIA A100-SXM4-80GB"), kind_of("NVIDIA A100-SXM4-80GB MIG 1g.10gb")
        ('A100', '')
    """
    if "MIG" in device:
        return ""
    return next((kind for kind in GPUS if re.search(rf"\b{kind}\b", device)), "")


_FORM = re.compile(r"(\d+)\s*x\s*(\w+?)\s*(?:@\s*([\d.]+))?")


@dataclass(frozen=True)
class Machines:
    """So many GPUs of a kind, with the price of one for an hour."""

    number: int
    gpu: str
    price: float | None = None

    @property
    def name(self) -> str:
        """`8xH100`."""
        return f"{self.number}x{self.gpu}"


def parse_machines(text: str) -> tuple[Machines, ...]:
    """`8xH100@2.5,4xA100` as GPUs. Raises `BadInput` for another form or an unknown kind.

    Examples:
        >>> parse_machines("8xH100@2.5, 4xa100")
        (Machines(number=8, gpu='H100', price=2.5), Machines(number=4, gpu='A100', price=None))
    """
    return tuple(_machines(part.strip(), text) for part in text.split(","))


def _machines(part: str, text: str) -> Machines:
    found = _FORM.fullmatch(part)
    if not found or not int(found[1]):
        raise BadInput(
            f"--for must be numbers and kinds of GPUs, such as 8xH100, or 8xH100@2.5 with the "
            f"price of a GPU for an hour, got {shown(text)}"
        )
    gpu = found[2].upper()
    if gpu not in GPUS:
        raise BadInput(
            f"--for knows {', '.join(GPUS)}, got {shown(found[2])}: there is no model of the time "
            "on it"
        )
    try:
        price = float(found[3]) if found[3] else None
    except ValueError:
        price = math.nan
    if price is not None and not 0 < price < math.inf:
        raise BadInput(f"the price in --for must be a number above 0, got {shown(part)}")
    return Machines(int(found[1]), gpu, price)
