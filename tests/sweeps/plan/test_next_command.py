"""Commands that follow from another: whole, with the flags that still hold, from data."""

import argparse
import shlex

import pytest

from sweeps.plan.flags import FLAGS, add_flags, written
from sweeps.plan.next_command import Asked, confirming, resumed, seeded
from sweeps.plan.options import parse
from sweeps.store.earlier_file import asked_in

RUN = "ranksweep run window_stride"


def asked(command: str) -> Asked:
    """A command as its own sweep.json has it."""
    options = parse(shlex.split(command)[3:], prog="", description="")
    return Asked(tuple(RUN.split()), options.asked.flags, options.asked.settings)


def of_earlier(command: str) -> Asked:
    """The same of a sweep.json of 0.3."""
    read = asked_in(command)
    return Asked(tuple(read["start"]), read["flags"], read["settings"])


@pytest.mark.parametrize("read", [asked, of_earlier])
@pytest.mark.parametrize(
    ("command", "confirmed"),
    [
        ("chunking.window=48,64 training.max_steps=20", "--confirm"),
        ("--backbone b --model maxp --num-seeds 3 --storage 'my results'",
         "--storage 'my results' --confirm"),
        ("--engine local collection=mine", "--engine local --collection mine --confirm"),
        ("--collection mine --fields id=doc_id", "--collection mine --fields id=doc_id --confirm"),
        ("--search=race --num-configs 2 --seeds 1,2,3 --max-gpu-hours 3",
         "--max-gpu-hours 3 --confirm"),
        ("--name slow --replace training.warmup=0", "--name slow --confirm"),
    ],
)  # fmt: skip
def test_a_confirmation_keeps_what_it_accepts(read, command, confirmed):
    if read is of_earlier and "--name" in command:
        pytest.skip("0.3 has no such flag")
    following = confirming(read(f"{RUN} {command}"))
    assert following == f"{RUN} {confirmed}"
    assert parse(shlex.split(following)[3:], prog="", description="").confirm


@pytest.mark.parametrize("read", [asked, of_earlier])
def test_seeds_and_budgets_are_raised(read):
    one = read(f"{RUN} --num-seeds 1 model.dropout=0.1")
    assert seeded(one, (1,), 3) == f"{RUN} model.dropout=0.1 --num-seeds 3"
    assert seeded(read(f"{RUN} --seeds 7"), (7,), 3) == f"{RUN} --seeds 7,1,2"
    typed = f"{RUN} --max-gpu-hours 2 --num-seeds 4"
    late = read(typed)
    assert resumed(late, typed) == typed
    assert resumed(late, typed, stopped=True) == f"{RUN} --num-seeds 4 --max-gpu-hours 4"


@pytest.mark.parametrize("name", FLAGS)
def test_every_flag_is_written_as_it_was_typed(name):
    """The law of flags as data: words to data and back, for each flag that a sweep records."""
    flag = FLAGS[name]
    number = 2 if flag.kind is int else 0.5
    value = True if flag.kind is bool else "a b" if flag.kind is str else number
    words = written({name: (flag.choices or (value,))[0]})
    assert words[0] == flag.flag and len(words) == 2 - (flag.kind is bool)
    parser = argparse.ArgumentParser()  # what one flag needs of others does not matter here
    add_flags(parser, [name])
    assert vars(parser.parse_args(words))[name] == (flag.choices or (value,))[0]


@pytest.mark.parametrize(
    ("command", "start"),
    [
        (f"{RUN} --num-seeds 2", RUN),
        ("python -m sweeps run my.toml --num-seeds 2", "python -m sweeps run my.toml"),
        ("python -m sweeps.seeds --num-seeds 2", "python -m sweeps.seeds"),
        ("python sweeps/seeds.py --num-seeds 2", "python sweeps/seeds.py"),
        ("'/my env/bin/ranksweep' run 'my sweep.toml' --num-seeds 2",
         "'/my env/bin/ranksweep' run 'my sweep.toml'"),
    ],
)  # fmt: skip
def test_a_command_of_an_earlier_version_is_read_once_as_data(command, start):
    read = asked_in(command)
    assert read["start"] == shlex.split(start) and read["flags"] == {"num_seeds": 2}


def test_what_an_earlier_version_took_for_a_smoke_test_is_one():
    assert asked_in(f"{RUN} --smoke --num-seeds 2")["smoke_test"], "0.3 took abbreviations"
    assert not asked_in(f"{RUN} --num-seeds 2")["smoke_test"]
    assert not asked_in("'unclosed")["smoke_test"] and not asked_in("")["start"]
    assert asked_in("notes --smoke-test --num-seeds x") == {
        "start": ["notes --smoke-test --num-seeds x"], "smoke_test": False
    }  # fmt: skip
