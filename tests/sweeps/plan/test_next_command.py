"""Commands that follow from another: whole, and with the flags that still hold."""

import shlex

import pytest

from sweeps.plan.next_command import confirming, resumed, seeded
from sweeps.plan.options import parse

RUN = "ranksweep run window_stride"


@pytest.mark.parametrize(
    ("command", "confirmed"),
    [
        ("chunking.window=48,64 training.max_steps=20", "--confirm"),
        ("--backbone b --model maxp --num-seeds 3 --storage 'my results'",
         "--storage 'my results' --confirm"),
        ("--engine local collection=mine", "--engine local --collection mine --confirm"),
        ("--collection mine --fields id=doc_id", "--collection mine --fields id=doc_id --confirm"),
        ("--search=race --seeds 1,2,3 --max-gpu-hours 3",
         "--max-gpu-hours 3 --confirm"),
    ],
)  # fmt: skip
def test_a_confirmation_keeps_what_it_accepts(command, confirmed):
    following = confirming(f"{RUN} {command}")
    assert following == f"{RUN} {confirmed}"
    assert parse(shlex.split(following)[3:], prog="", description="").confirm


def test_seeds_and_budgets_are_raised():
    assert seeded(f"{RUN} --num-seeds 1 a.b=1", (1,), 3) == f"{RUN} a.b=1 --num-seeds 3"
    assert seeded(f"{RUN} --seeds 7", (7,), 3) == f"{RUN} --seeds 7,1,2"
    late = f"{RUN} --max-gpu-hours 2 --num-seeds 4"
    assert resumed(late) == late
    assert resumed(late, stopped=True) == f"{RUN} --num-seeds 4 --max-gpu-hours 4"
