"""What is measured of a trial on some workers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """The same epochs on `num_workers` workers; rates of the repeats, losses of all steps."""

    num_workers: int
    losses: tuple[float, ...]  # means over the global batch
    steps_per_second: tuple[float, ...]  # training, optimiser steps
    documents_per_second: tuple[float, ...]  # validation
    nodes: tuple[str, ...] = ()  # of each worker, by rank
    devices: tuple[str, ...] = ()  # of each worker, by rank
