"""The storage may go away for a while: driver and trials wait, and nothing is lost or doubled."""

import os
import threading
from functools import partial

import pandas as pd
import pytest

pytestmark = pytest.mark.slow

AWAY_SECONDS = float(os.environ.get("RANKSWEEP_OUTAGE_SECONDS", "2"))
STEPS, TRIALS = 30, 6
WORDS = (
    f"--smoke-test --num-seeds 2 training.max_steps={STEPS} training.num_epochs=15 "
    "training.validate_every=10"
).split()


def go_away(share):
    """Takes the share away for a while: at its path there is a file, in which nobody can make a
    folder."""
    folder, other = os.readlink(share), share.with_name("other")
    other.write_text("the share is not mounted")
    os.replace(other, share)

    def come_back():
        other.symlink_to(folder)
        os.replace(other, share)

    threading.Timer(AWAY_SECONDS, come_back).start()


@pytest.fixture(scope="module")
def outages(run_local, tmp_path_factory):
    """A sweep whose storage goes away twice while trials run."""
    home = tmp_path_factory.mktemp("storage")
    (home / "disk" / "results").mkdir(parents=True)
    share = home / "share"
    share.symlink_to("disk")
    actions = {words: partial(go_away, share) for words in ("[1/6]", "[3/6]")}
    sweep = run_local(share / "results", *WORDS, actions=actions)
    assert sweep.text.count("trying again") >= 2 and "the storage is back" in sweep.text
    return sweep


def test_every_trial_ends_well_at_its_first_attempt(outages):
    trials = pd.read_parquet(outages.folder / "trials.parquet")
    assert trials["status"].tolist() == ["done"] * TRIALS
    assert trials["attempts"].tolist() == [1] * TRIALS
    assert not (outages.folder / "failures.parquet").exists()
    assert "All 6 trials finished" in outages.text


def test_every_record_arrives_once(outages, assert_recorded_once):
    assert_recorded_once(outages.storage, trials=TRIALS, steps=STEPS)
