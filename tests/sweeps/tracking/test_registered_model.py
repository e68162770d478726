"""A sweep and its confirmation from end to end: the same two cells, seeds nobody has seen; and its
model in MLflow's registry: signature, example, code of its own, champion of a confirmation."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from rank_core.export.reranker import Reranker
from sweeps.__main__ import main
from sweeps.commands import export
from sweeps.tracking.client import connect
from tests.e2e.conftest import confirmed, run_local, trials_of, values_of

__all__ = ["confirmed", "run_local"]

pytestmark = pytest.mark.slow
QUERY, TEXTS = "amber grove", ["amber birch grove", "slate", "a heron at the meadow"]
PREDICT = """
import json, sys
import mlflow, pandas
uri, model, query, *texts = sys.argv[1:]
mlflow.set_tracking_uri(uri)
loaded = mlflow.pyfunc.load_model(model)
rows = pandas.DataFrame({"query": query, "document": texts}, index=range(5, 5 + len(texts)))
found = loaded.predict(rows)
assert list(found.index) == list(rows.index)
import rank_core, ranksweep
print(json.dumps([found["score"].tolist(), rank_core.__file__, ranksweep.__file__]))
"""


@pytest.fixture(scope="module")
def storage(confirmed):
    """A finished sweep and its confirmation, tracked in one database, which gets the models."""
    return confirmed.storage


@pytest.fixture(scope="module")
def client(storage):
    return connect(f"sqlite:///{storage / 'mlflow.db'}")


def test_winner_and_baseline_are_trained_again_with_fresh_seeds(confirmed):
    first, folder = (
        confirmed.storage / name / "woods" for name in ("window_stride", "window_stride-confirm")
    )
    shortlist = json.loads((folder / "sweep.json").read_text())["confirms"]
    trials = trials_of(folder)
    assert set(trials["seed"]) == {5, 6} and set(trials["status"]) == {"done"}
    cells = {shortlist["winner"]["cell"], shortlist["baseline"]["cell"]}
    assert set(trials["cell"]) == cells and len(trials) == 4
    assert cells <= set(trials_of(first)["cell"])
    dev = values_of(first).query("split == 'dev' and measure == 'nDCG@10'")
    means = dev.groupby("cell")["value"].mean().drop(shortlist["baseline"]["cell"])
    assert shortlist["dev_mean"] == pytest.approx(means.max())
    assert means[shortlist["winner"]["cell"]] == means.max()
    for cell in cells:
        ours, theirs = (
            json.loads((confirmed.storage / f"trials/{cell}-seed{seed}/config.json").read_text())
            for seed in (5, 3)
        )
        assert ours | {"seed": 3} == theirs
    results = json.loads((folder / "report" / "results.json").read_text())
    assert results["choice"]["cell"] == shortlist["winner"]["cell"]
    assert "in window_stride, which chose" in (folder / "report" / "index.html").read_text()
    [access] = (folder / "test_access.jsonl").read_text().splitlines()
    assert json.loads(access)["seeds"] == [5, 6] and "--confirm" in json.loads(access)["command"]


@pytest.mark.long
def test_a_model_is_registered_and_the_confirmed_one_is_champion(
    storage, client, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    first, confirmed = (storage / n / "woods" for n in ("window_stride", "window_stride-confirm"))
    assert main(["export", str(first), "--register", "woods-reranker"]) == 0
    assert "no alias champion (--force sets it), because its gain is not" in capsys.readouterr().out
    assert client.get_registered_model("woods-reranker").aliases == {}
    words = ["export", str(confirmed), "--to", str(tmp_path / "m"), "--register", "woods-reranker"]
    gains(monkeypatch, 0.1, first_stage=0.0)  # smoke tests confirm nothing
    assert main(words) == 0
    out = capsys.readouterr().out
    aliases = client.get_registered_model("woods-reranker").aliases
    assert {alias: int(number) for alias, number in aliases.items()} == {"champion": 2}, out
    assert "alias champion: models:/woods-reranker@champion" in out
    version = client.get_model_version_by_alias("woods-reranker", "champion")
    assert version.tags["sweep"] == "window_stride-confirm" and "## Tested" in version.description
    assert version.description.startswith("# ")  # without the metadata of model hubs
    runs = client.get_run(version.run_id).data.tags
    assert runs["rank.trial_key"].endswith(f"{version.tags['cell']}-seed{version.tags['seed']}")
    uri = f"sqlite:///{storage / 'mlflow.db'}"
    command = [sys.executable, "-c", PREDICT, uri, "models:/woods-reranker@champion", QUERY, *TEXTS]
    home = os.environ | {"PYTHONPATH": ""}  # without a checkout: the model brings its own code
    done = subprocess.run(command, cwd=tmp_path, env=home, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found, file, door = json.loads(done.stdout.splitlines()[-1])
    ranked = dict(Reranker.load(tmp_path / "m").rank(QUERY, TEXTS))
    assert "code/rank_core" in file
    assert "code/ranksweep" in door  # which a user's model imports
    assert found == pytest.approx([ranked[i] for i in range(len(TEXTS))], abs=1e-6)
    assert not (tmp_path / "mlruns").exists()


def gains(monkeypatch, delta, *, p=0.001, first_stage):
    """Lets every system gain so much over the baseline, beside such a first stage."""
    found = export.analyse

    def analyse(sweep):
        about = replace(sweep.about, first_stage={sweep.primary: first_stage})
        analysis = found(replace(sweep, about=about, first_stage=None))
        gained = {
            key: replace(
                c, delta=delta, p_both_adjusted=p, num_seeds_system=3, num_seeds_baseline=3
            )
            for key, c in analysis.compared.items()
        }
        return replace(analysis, compared=gained)

    monkeypatch.setattr(export, "analyse", analyse)


NO_CHAMPIONS = (
    ({"delta": -0.1, "first_stage": 0.0}, "it is not significantly better than FirstP"),
    ({"delta": 0.1, "p": 0.2, "first_stage": 0.0}, "it is not significantly better than"),
    ({"delta": 0.1, "first_stage": 1.0}, "it is below BM25 by 0."),
)


def test_what_is_not_better_than_baseline_and_first_stage_is_no_champion(
    storage, client, monkeypatch, capsys
):
    confirmed = storage / "window_stride-confirm" / "woods"
    words = ["export", str(confirmed), "--register", "worse"]
    for given, why in NO_CHAMPIONS:
        with monkeypatch.context() as patch:
            gains(patch, **given)
            assert main(words) == 0
        assert f"because {why}" in capsys.readouterr().out
        assert client.get_registered_model("worse").aliases == {}
    gains(monkeypatch, **given)
    assert main([*words, "--force"]) == 0
    assert "alias champion, by --force although" in capsys.readouterr().out
    assert {*client.get_registered_model("worse").aliases} == {"champion"}


def test_a_registry_that_does_not_answer_is_named_without_its_password(storage, capsys):
    words = ["export", str(storage / "window_stride" / "woods"), "--register", "name"]
    assert main([*words, "--tracking-uri", "http://me:PASSWORD9@127.0.0.1:9"]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: the model was not registered") and "Traceback" not in err
    assert "127.0.0.1:9" in err and "PASSWORD9" not in out + err
