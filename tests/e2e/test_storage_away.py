"""The storage may go away for a while: driver and trials wait, and nothing is lost or doubled."""

import os
import time
from contextlib import contextmanager

import pandas as pd
import pytest

pytestmark = [pytest.mark.ray, pytest.mark.chaos, pytest.mark.slow]

AWAY_SECONDS = float(os.environ.get("RANKSWEEP_OUTAGE_SECONDS", "10"))
STEPS, TRIALS = 30, 6
WORDS = (
    f"--smoke-test --num-seeds 2 training.max_steps={STEPS} training.num_epochs=15 "
    "training.validate_every=10"
).split()


@contextmanager
def away(share):
    """At its path there is a file meanwhile, so that nobody can make a folder there."""
    folder, other = os.readlink(share), share.with_name("other")
    other.write_text("the share is not mounted")
    os.replace(other, share)
    yield
    other.symlink_to(folder)
    os.replace(other, share)


def wait_for_another(sweep, words, before):
    while sweep.text.count(words) == before.count(words):
        assert sweep.process.poll() is None, sweep.text
        time.sleep(0.1)


@pytest.fixture(scope="module")
def outages(start_sweep, tmp_path_factory):
    """A sweep whose storage goes away twice while trials run."""
    home = tmp_path_factory.mktemp("storage")
    (home / "disk" / "results").mkdir(parents=True)
    (home / "share").symlink_to("disk")
    with start_sweep(home / "share" / "results", *WORDS) as sweep:
        sweep.log = home / "disk" / sweep.log.name  # to be read while the share is away
        for words in ("[1/6]", "[3/6]"):
            sweep.wait_for(words)
            text = sweep.text
            with away(home / "share"):
                wait_for_another(sweep, "trying again", text)
                time.sleep(AWAY_SECONDS)
            wait_for_another(sweep, "the storage is back", text)
        assert sweep.end() == 0, sweep.text
    return sweep


def test_every_trial_ends_well_at_its_first_attempt(outages):
    trials = pd.read_parquet(outages.folder / "trials.parquet")
    assert trials["status"].tolist() == ["done"] * TRIALS
    assert trials["attempts"].tolist() == [1] * TRIALS
    assert not (outages.folder / "failures.parquet").exists()
    assert "All 6 trials finished" in outages.text


def test_every_record_arrives_once(outages, assert_recorded_once):
    assert_recorded_once(outages.storage, trials=TRIALS, steps=STEPS)
