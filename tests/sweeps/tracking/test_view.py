"""The saved view: what its tag holds. `test_browser` looks at it."""

import base64
import json
import zlib
from typing import Any

from sweeps.store.sweep_file import Cell, SweepFile
from sweeps.tracking.view import links, view_tags


def sweep(*settings: dict[str, Any], measures: tuple[str, ...] = ("RR", "nDCG@10")) -> SweepFile:
    cells = tuple(Cell(f"c{n}", f"MaxP {n}", config=config) for n, config in enumerate(settings))
    swept = tuple(dict.fromkeys(name for config in settings for name in config))
    return SweepFile("ws", "?", "test", measures, "nDCG@10", "c0", cells, swept=swept)


def shown(described: SweepFile) -> dict[str, Any]:
    tag = view_tags(described, 1)["mlflow.sharedViewState.leaderboard"]
    packed = json.loads(tag)["state"].removeprefix("deflate;")
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def test_configurations_are_sorted_by_dev_and_grouped_over_seeds():
    state = shown(
        sweep({"model.name": "firstp", "window": 9, "lr": 1e-5}, {"model.name": "maxp", "window": 8,
              "stride": 4, "lr": 1e-5}, {"model.name": "maxp", "window": 8, "stride": 5})
    )  # fmt: skip
    grouped = [key["groupByData"] for key in state["groupBy"]["groupByKeys"]]
    assert grouped == ["config"]
    assert state["orderByKey"] == "metrics.`best/dev_ndcg_cut_10`" and not state["orderByAsc"]
    assert state["selectedColumns"] == [
        "metrics.`best/dev_ndcg_cut_10`",
        "metrics.`test/ndcg_cut_10`",
        "metrics.`test/recip_rank`",
        "metrics.`dev/ndcg_cut_10`",
        "metrics.`cost/train_seconds`",
        "params.`model.name`",
        "params.`window`",
        "params.`stride`",
    ]
    assert all(f"status != '{lost}'" in state["searchFilter"] for lost in ("FAILED", "KILLED"))
    assert state["groupsExpanded"] == {f"tag.config.MaxP {n} (c{n})": False for n in range(3)}
    charts = {chart["uuid"]: chart for chart in state["compareRunCharts"]}
    assert list(charts) == ["bar.dev", "bar", "line.dev.ndcg_cut_10", "line.train.loss", "parallel"]
    # A param that is text, or that one configuration lacks, would hide the chart.
    assert charts["parallel"]["selectedParams"] == []
    assert charts["parallel"]["selectedMetrics"] == ["hp/window", "hp/stride", "test/ndcg_cut_10"]


def test_a_view_fits_into_an_experiment_tag_even_for_a_large_sweep():
    cells = ({f"section.setting_{n}": k * n for n in range(60)} for k in range(3000))
    measures = ("nDCG@10", *(f"P@{n}" for n in range(1, 40)))
    [text] = view_tags(sweep(*cells, measures=measures), 1).values()
    assert len(text) <= 20_000


def test_the_links_open_the_view_and_not_the_page_for_agents():
    table, charts = (line.split()[1] for line in links("http://h:1/", "7").splitlines())
    view = "#/experiments/7/runs?workflowType=machine_learning&viewStateShareKey=leaderboard"
    assert (table, charts) == (f"http://h:1/{view}", f"http://h:1/{view}&compareRunsMode=CHART")
