import base64
import json
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

from sweeps import tracking
from sweeps.tracking.records import Record
from sweeps.tracking.views import (
    Columns,
    Layout,
    deep_link,
    layout_of,
    summary_view_tags,
    view_tags,
)


def _state(tag: str) -> dict:
    packed = json.loads(tag)["state"].removeprefix("deflate;")
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def test_the_leaderboard_is_grouped_by_configuration_and_sorted_by_the_test_metric():
    tags = view_tags(Layout(("test/ndcg_cut_10", "cost/train_s"), ("chunking.window",)))
    state = _state(tags["mlflow.sharedViewState.leaderboard"])
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "config.id"}]
    assert state["orderByKey"] == "metrics.`test/ndcg_cut_10`" and not state["orderByAsc"]
    assert state["selectedColumns"] == [
        "metrics.`test/ndcg_cut_10`",
        "metrics.`cost/train_s`",
        "params.`chunking.window`",
        "attributes.`Dataset`",
        "attributes.`Models`",
    ]
    assert state["searchFilter"] == "attributes.status = 'FINISHED'"
    [parallel] = [c for c in state["compareRunCharts"] if c["type"] == "PARALLEL"]
    assert parallel["selectedParams"] == ["chunking.window"]


def test_a_view_fits_into_an_experiment_tag_even_for_a_large_sweep():
    layout = layout_of(
        [f"test/m{n}" for n in range(40)],
        [f"section.setting_{n}" for n in range(60)],
        [f"train/c{n}" for n in range(40)],
        [f"{n}/{n} 3e-05" for n in range(3000)],
    )
    [text] = view_tags(layout).values()
    assert len(text) <= 20_000


def test_a_layout_has_test_metrics_first_and_neither_seed_nor_copies_of_params():
    layout = layout_of(
        ["hp/window", "cost/train_s", "dev/p_5", "test/p_5", "test/map"],
        ["seed", "chunking.window"],
    )
    assert layout.metrics == ("test/p_5", "test/map", "dev/p_5", "cost/train_s")
    assert layout.params == ("chunking.window",)
    assert layout_of(["hp/window"], []) is None


def test_columns_learn_what_was_swept_and_ask_for_a_view_only_when_it_changes():
    columns = Columns()
    for window in ("75", "150"):
        params = {"model.name": "maxp", "chunking.window": window}
        tags = {"config.id": window}
        columns.add(Record("c-seed1", "created", 1, params=params, tags=tags))
    columns.add(Record("c-seed1", "points", 2, points=(("train/loss", 1.0, 1),)))
    assert columns.changed() is None
    final = Record("c-seed1", "ended", 3, points=(("test/p_5", 0.5, 0),), status="FAILED")
    columns.add(final)
    assert columns.changed() is None
    columns.add(replace(final, status="FINISHED"))
    layout = columns.changed()
    assert layout == Layout(("test/p_5",), ("chunking.window",), ("train/loss",), ("150", "75"))
    columns.shown(layout)
    assert columns.changed() is None


def test_the_summary_view_is_not_grouped():
    [tag] = summary_view_tags(Layout(("agg/p_5_mean",), ("window",))).values()
    assert "groupBy" not in _state(tag)
    assert "attributes.`Dataset`" not in _state(tag)["selectedColumns"]


def test_the_link_opens_the_view_and_not_the_page_for_agents():
    assert deep_link("http://h:1/", "7") == (
        "http://h:1/#/experiments/7/runs?workflowType=machine_learning"
        "&viewStateShareKey=leaderboard"
    )


LEFT_OUT = ("__init__", "pyfunc_model")  # the second is a script that MLflow itself runs


def test_importing_the_package_imports_neither_mlflow_nor_ray_nor_torch():
    folder = Path(tracking.__file__).parent
    modules = [path.stem for path in folder.glob("*.py") if path.stem not in LEFT_OUT]
    code = "import sys\n" + "\n".join(f"import sweeps.tracking.{name}" for name in modules)
    code += "\nprint([name for name in ('mlflow', 'ray', 'torch') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]" and len(modules) > 8
