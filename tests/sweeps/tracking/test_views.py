import base64
import json
import subprocess
import sys
import zlib

from sweeps.tracking.columns import Columns
from sweeps.tracking.views import (
    Layout,
    deep_link,
    layout_of,
    saved_views,
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
    ]
    assert state["searchFilter"] == "attributes.status = 'FINISHED'"
    [parallel] = [c for c in state["compareRunCharts"] if c["type"] == "PARALLEL"]
    assert parallel["selectedParams"] == ["chunking.window"]


def test_views_fit_into_an_experiment_tag_even_for_a_large_sweep():
    layout = layout_of(
        [f"test/m{n}" for n in range(40)],
        [f"section.setting_{n}" for n in range(60)],
        [f"train/c{n}" for n in range(40)],
        [f"{n}/{n} 3e-05" for n in range(3000)],
    )
    tags = view_tags(layout)
    assert len(tags) == 3 and max(len(text) for text in tags.values()) <= 20_000


def test_a_layout_has_test_metrics_first_and_neither_seed_nor_copies_of_params():
    layout = layout_of(
        ["hp/window", "cost/train_s", "dev/p_5", "test/p_5", "test/map"],
        ["seed", "chunking.window"],
    )
    assert layout.metrics == ("test/p_5", "test/map", "dev/p_5", "cost/train_s")
    assert layout.params == ("chunking.window",)
    assert layout_of(["hp/window"], []) is None


def test_columns_learn_what_was_swept_and_ask_for_a_view_only_when_it_changes():
    columns = Columns([], [])
    for window in ("75", "150"):
        params = {"model.name": "maxp", "chunking.window": window}
        columns.add({"kind": "trial", "params": params, "tags": {"config.id": window}})
    assert columns.changed() is None
    columns.add({"kind": "finish", "status": "FAILED", "metrics": {"test/x": 0.0}})
    assert columns.changed() is None
    columns.add({"kind": "finish", "status": "FINISHED", "metrics": {"test/p_5": 0.5}})
    layout = columns.changed()
    assert layout == Layout(("test/p_5",), ("chunking.window",), (), ("150", "75"), ())
    columns.shown(layout)
    assert columns.changed() is None


def test_the_summary_views_are_not_grouped():
    layout = Layout(("agg/p_5_mean",), ("window",), costs=("cost/train_seconds",))
    tags = summary_view_tags(layout)
    assert saved_views(tags) == ["leaderboard", "parallel", "cost"]
    assert ["groupBy" in _state(tag) for tag in tags.values()] == [False] * 3


def test_cost_stands_against_effectiveness_and_alone_on_its_page():
    costs = ("cost/train_seconds", "cost/encoder_tokens")
    tags = view_tags(Layout(("test/p_5",), ("window",), costs=costs))
    state = _state(tags["mlflow.sharedViewState.cost"])
    axes = [(chart["xaxis"]["key"], chart["yaxis"]["key"]) for chart in state["compareRunCharts"]]
    assert axes == [(cost, "test/p_5") for cost in costs]
    [shown] = [section for section in state["compareRunSections"] if section["display"]]
    assert {chart["metricSectionId"] for chart in state["compareRunCharts"]} == {shown["uuid"]}
    # MLflow puts a chart for every metric `x/...` into a section with the id x.
    assert shown["uuid"] not in {name.partition("/")[0] for name in (*costs, "test/p_5")}


def test_a_view_without_data_to_show_is_left_out():
    assert saved_views(view_tags(Layout(("test/p_5",)))) == ["leaderboard", "trials"]


def test_the_link_opens_the_view_and_not_the_page_for_agents():
    assert deep_link("http://h:1/", "7", "leaderboard") == (
        "http://h:1/#/experiments/7/runs?workflowType=machine_learning"
        "&viewStateShareKey=leaderboard"
    )
    assert deep_link("http://h:1", "7", "cost").endswith("=cost&compareRunsMode=CHART")


def test_importing_the_package_imports_neither_mlflow_nor_ray():
    modules = "outbox uploader names uri views sync ui summary server report_run".split()
    code = "import sys\n" + "\n".join(f"import sweeps.tracking.{name}" for name in modules)
    code += "\nprint([name for name in ('mlflow', 'ray', 'torch') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
