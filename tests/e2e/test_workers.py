"""One trial on two workers gives what it gives on one."""

import os
from collections import defaultdict

import pandas as pd
import pytest

from rank_core.data.trec import read_run
from sweeps.store.trial_events import EVENTS, Reported, read_lines

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two workers need two cores"),
]


@pytest.fixture(scope="module")
def folders(run_sweep, five_steps, tmp_path_factory):
    """The same sweep with one worker and with two."""
    home = tmp_path_factory.mktemp("workers")
    return [run_sweep(home / n, *five_steps, "--num-workers", n).folder for n in ("1", "2")]


def curves(folder):
    """{cell: {step: loss}}."""
    found = defaultdict(dict)
    for line in read_lines(folder / EVENTS):
        if isinstance(line.event, Reported):
            found[line.event.cell] |= {point["step"]: point["loss"] for point in line.event.curve}
    return found


def test_losses_are_those_of_one_worker(folders):
    one, two = map(curves, folders)
    assert one.keys() == two.keys() and len(one) == 2
    for trial, losses in one.items():
        assert sorted(losses) == [1, 2, 3, 4, 5]
        assert two[trial] == pytest.approx(losses, abs=1e-4)
        assert len(set(losses.values())) == 5


def test_scores_are_those_of_one_worker(folders):
    names = [sorted(path.name for path in folder.glob("runs/*")) for folder in folders]
    assert names[0] == names[1] and len(names[0]) == 2
    for name in names[0]:
        for split in ("dev", "test"):
            one, two = (read_run(folder / "runs" / name / f"{split}.run.gz") for folder in folders)
            assert one.keys() == two.keys()
            for query_id in one:
                assert two[query_id] == pytest.approx(one[query_id], abs=1e-4)


def test_the_workers_share_the_work_and_count_it_once(folders):
    one, two = (
        pd.read_parquet(folder / "trials.parquet").set_index("cell")["encoder_tokens"]
        for folder in folders
    )
    assert one.to_dict() == two.to_dict()
