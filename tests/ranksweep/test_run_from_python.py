"""`ranksweep.run`: a sweep started from Python."""

import sys
from types import SimpleNamespace

import pytest

import ranksweep
from rank_core.errors import BadInput
from sweeps.terminal.live_text import NotebookText
from tests.sweeps.conftest import no_figures

__all__ = ["no_figures"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sweep": "window_strid"}, "did you mean window_stride"),
        ({"sweep": "scaling"}, "call `ranksweep run scaling` in a shell"),
        ({"sweep": "window_stride", "dry_run": True}, "ranksweep.plan has its plan"),
        ({"sweep": "window_stride", "num_sees": 3}, "did you mean num_seeds"),
        ({"sweep": "window_stride", "seeds": [1, 1]}, "--seeds must be different"),
        ({"sweep": "window_stride", "settings": {"chunking.windw": 3}}, "mean chunking.window"),
    ],
)
def test_what_cannot_run_is_bad_input(given, message):
    with pytest.raises(BadInput, match=message):
        ranksweep.run(**given)


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_a_sweep_runs_and_resumes_from_python(tmp_path, collection_folder, backbone_folder):
    def run(seeds):
        return ranksweep.run(
            "window_stride",
            collection=collection_folder,
            backbone=backbone_folder,
            seeds=seeds,
            settings={"chunking.window": [16, 24], "chunking.stride": 16, "model.dropout": 0.0},
            engine="local",
            smoke_test=True,
            storage=tmp_path,
            tracking_uri="none",
        )

    sweep = run(seeds=1)
    assert list(sweep.trials["seed"]) == [1, 1, 1] and "MaxP 24/16" in repr(sweep)
    results = list(tmp_path.glob("trials/*/result.json"))
    written = [path.stat().st_mtime_ns for path in results]
    more = run(seeds=[1, 4])
    assert sorted(more.trials["seed"]) == [1, 1, 1, 4, 4, 4]
    assert len(written) == 3 and [path.stat().st_mtime_ns for path in results] == written
    assert more.folder == sweep.folder == tmp_path / "window_stride" / collection_folder.name


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
def test_a_notebook_shows_one_table_that_is_updated(
    tmp_path, collection_folder, backbone_folder, monkeypatch, capsys
):
    """Versions of one text in place of a line for every trial."""
    shown = []
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setattr(NotebookText, "show", lambda self, lines: shown.append([*lines]))
    monkeypatch.setattr("sweeps.engine.progress.DRAW_SECONDS", 0.0)
    ranksweep.run(
        "window_stride",
        collection=collection_folder,
        backbone=backbone_folder,
        seeds=1,
        settings={"chunking.window": [16, 24], "chunking.stride": 16},
        engine="local",
        smoke_test=True,
        storage=tmp_path,
        tracking_uri="none",
    )
    assert len(shown) > 3 and "3 trials: 3 done" in " ".join(shown[-1])
    assert any("1 running" in " ".join(lines) for lines in shown)
    assert "[1/3]" not in capsys.readouterr().out
