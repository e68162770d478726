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
    batch_size: int = 0  # groups of a step, over all workers
    tokens_per_second: tuple[float, ...] = ()  # that encoders read in training, over all workers
    learned: float = 1.0  # the share of the tokens that a backward pass reads, too
    row: float = 0.0  # mean tokens of a row of the encoder
    parts: tuple[float, ...] = ()  # seconds of a step: see `PARTS`
    seconds: float = 0.0  # of `num_steps` and their validations
    num_steps: int = 0
    gpus: float = 0.0  # of all workers
    cores: float = 0.0  # of all workers, where they have no GPU


PARTS = ("data", "compute", "all_reduce", "waiting")
"""Means over steps and workers of one epoch: waiting for a batch; passes and update; the sum of
gradients beyond the backward pass, once all workers are there; waiting for the last of them."""
