"""Published values: their tables, and their place beside ours."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from sweeps.commands.report import main
from sweeps.plan.published_tables import TABLES
from sweeps.report.published import published
from sweeps.systems.load import load_sweep
from tests.sweeps.systems.test_load import read_values, write_sweep, write_values

BIAS, Y2022 = "Boytsov et al., positional bias", "Boytsov et al. 2022"


def robust04(folder: Path, backbone: str = "bert-base-uncased", **changes: Any) -> Path:
    """A sweep of MaxP windows on Robust04's titles; for RR@10, which no paper prints, nDCG@20."""
    write_sweep(
        folder,
        kinds=[("FirstP", 477, 477), ("MaxP", 150, 100), ("MaxP", 75, 50)],
        num_queries=20,
        collection={"name": "robust04-title"},
        backbone={"name": backbone},
        measures=["nDCG@10", "nDCG@20"],
        **changes,
    )
    table = read_values(folder)
    table["measure"] = table["measure"].replace("RR@10", "nDCG@20")
    write_values(folder, table)
    return folder


pytestmark = pytest.mark.usefixtures("no_figures")


def test_a_system_is_matched_by_collection_measure_model_encoder_and_windows(
    tmp_path: Path,
) -> None:
    sweep = load_sweep(robust04(tmp_path))
    first, sliding, other = (one.cell for one in sweep.cells)
    found = published(sweep)
    assert found[first] == {
        "nDCG@20": [
            f".475 ({Y2022}, Table 4)",
            f".475 ({BIAS}, Table 1)",
            f".449 ({BIAS}, Table 5)",
            # Vanilla BERT of KeyB has .4678 on Robust04, of topics nobody names
        ]
    }
    assert f".488 ({Y2022}, Table 4)" in found[sliding]["nDCG@20"]
    assert found[other] == {"nDCG@20": [".4767 (Zhang, Yates and Lin 2021, Table 2)"]}
    assert published(load_sweep(robust04(tmp_path / "x", backbone="tiny"))) == {}


@pytest.mark.parametrize(("epochs", "value"), [(0, ".297"), (1, ".328"), (2, "")])
def test_a_value_before_training_is_not_one_after_it(
    tmp_path: Path, epochs: int, value: str
) -> None:
    changes = {"collection": {"name": "msmarco-farrelevant"}, "measures": ["RR@100"]}
    sweep = load_sweep(robust04(tmp_path))
    config = {"training.num_epochs": epochs}
    cells = tuple(replace(cell, config=config) for cell in sweep.cells)
    found = published(replace(sweep, about=replace(sweep.about, **changes), cells=cells))
    ours = {"RR@100": [f"{value} ({BIAS}, Table 4)"]} if value else {}
    assert found.get(cells[1].cell, {}) == ours


def test_the_report_shows_them_beside_ours_where_asked_and_tests_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = robust04(tmp_path)
    main([str(folder), "--out", str(tmp_path / "plain")])
    main([str(folder), "--published", "--out", str(tmp_path / "theirs")])
    assert "Published, FirstP: nDCG@20 .475 (Boytsov et al. 2022, Table 4);" in " ".join(
        capsys.readouterr().out.split()
    )
    for name in ("index.html", "table.md", "table.tex"):
        plain, theirs = ((tmp_path / of / name).read_text() for of in ("plain", "theirs"))
        assert "Table 4" in theirs and "never tested" in theirs
        assert "Table 4" not in plain and "ublished" not in plain
    compared = [(tmp_path / of / "comparisons.csv").read_text() for of in ("plain", "theirs")]
    assert compared[0] == compared[1]


def test_values_of_a_reference_stand_beside_ours_with_our_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"collection": "robust04-title", "measure": "nDCG@10", "source": "a page"}
    window = {"chunking.window": 150}
    rows = [
        row | {"values": [0.35, 0.99], "settings": window},
        row | {"values": [0.01], "interval": [0.005, 0.02], "settings": {"model.name": "firstp"}},
        row | {"values": [0.5], "settings": {"chunking.window": 75}, "differs": "a twin"},
        row | {"values": [0.5], "collection": "other"},
        row | {"values": [0.5], "settings": {"model.backbone": "other"}},
    ]
    folder = robust04(tmp_path, published=rows)
    main([str(folder)])
    text = " ".join(capsys.readouterr().out.split())
    scores = load_sweep(folder).scores
    of_cell = scores[(scores["measure"] == "nDCG@10") & scores["cell"].str.startswith("maxp-w150")]
    table = of_cell.pivot(index="seed", columns="query_id", values="value").to_numpy()
    shown = re.search(
        r"0.3500, 0.9900 \(a page; 1 of 2 inside our 95% .*? \[(\S+), (\S+)\]\)", text
    )
    assert shown, text
    low, high = map(float, shown.groups())
    # About our mean, and wider than by its queries alone: seeds are random too.
    of_queries = stats.t.interval(0.95, 19, table.mean(), stats.sem(table.mean(axis=0)))
    assert (low + high) / 2 == pytest.approx(table.mean(), abs=0.001)
    assert of_queries[0] - 0.02 < low <= of_queries[0] + 5e-4 and low < 0.35 < high
    assert ": nDCG@10 0.0100 [0.0050, 0.0200] (a page; not inside our" in text
    assert ": nDCG@10 0.5000 (a page; not comparable: a twin)" in text
    assert text.count("(a page;") == 3
    assert "1 of 2 inside" in (folder / "report" / "table.md").read_text()
    page = (folder / "report" / "index.html").read_text()
    assert '<th scope="col" class="text">published' in page
    assert '<td class="text">nDCG@10 0.3500' in page


@pytest.mark.parametrize("table", TABLES, ids=lambda one: one.source)
def test_a_table_is_whole(table: Any) -> None:
    for label, *_ in table.rows:
        values = table.cells(label).values()
        assert all(one == "-" or 0 < float(one) < 1 for one in values)
    assert len({label for label, *_ in table.rows}) == len(table.rows)


BY_ROW = {
    ("Zhang, Yates and Lin 2021", "Table 2"): """
        .4767 .5303 .5175 .5480 | .4875 .5448 .5161 .5420 | .4959 .5480 .4841 .5152
        .4938 .5489 .4679 .5370 | .4632 .5400 .5354 .5459 | .4857 .5476 .5473 .5788
        .5225 .5741 .5624 .6062""",
    ("Boytsov et al. 2022", "Table 4"): """
        - .548 .538 .549 .545 - - | .389 .659 .596 .664 .642 .478 .531
        .394 .631 .598 .660 .632 .475 .527 | .404 .657 .616 .654 .643 .483 .540
        .417 .652 .642 .686 .662 .492 .552 | .392 .648 .615 .665 .644 .488 .544
        .390 .642 .607 .662 .639 .486 .538 | .385 .639 .592 .651 .629 .466 .533
        .379 .637 .599 .651 .630 .483 .535 | .395 .640 .615 .667 .643 .496 .549
        .398 .660 .620 .666 .650 .484 .537 | .416 .647 .626 .677 .652 .503 .556
        .431 .675 .653 .705 .680 .523 .581 | .392 .656 .617 .660 .646 .483 .534
        .405 .652 .626 .680 .655 .489 .548 | .344 .591 .531 .547 .555 .379 .411
        .406 .658 .618 .680 .655 .510 .560 | .408 .651 .619 .673 .650 .498 .561
        .412 .676 .628 .693 .668 .500 .568 | .397 .655 .618 .675 .651 .452 .477""",
    ("Boytsov et al., positional bias", "Table 2"): """
        .414 - - .331 .338 | .377 .665 .321 .316 .325
        .431 - - .270 .334 | .390 .653 .326 .251 .330
        .433 - - .321 .333 | .410 .677 .328 .259 .331
        .379 - - .129 .166 | .269 .503 .202 .121 .181""",
    ("Boytsov et al., positional bias", "Table 4"): """
        .052 - | .207 - | .154 .365 | .297 .328 | .328 .349 | .298 .332 | .211 .327
        .157 .372 | .055 .382 | .209 .393 | .085 .396
        .300 .337 | .338 .354 | .307 .343 | .274 .322 | .291 .330
        .243 .419 | .229 .432 | .267 .413 | .244 .358
        .233 .399 | .126 .401 | .069 .372 | .120 .397 | .078 .397 | .057 -""",
    ("Boytsov et al., positional bias", "Table 5"): ".449 .510 | .477 .530 | .523 .574",
    ("Boytsov et al., positional bias", "Table 6"): """
        .401 .637 .476 .527 | .408 .653 .499 .544 | .406 .648 .505 .557
        .412 .654 .504 .558 | .409 .652 .502 .556 | .411 .653 .504 .554""",
    ("Li et al., key blocks", "main results"): """
        .4678 .4764 .5620 .5697 | .4803 .4769 .5601 .5674 | .4688 .4853 .5775 .5611
        .4884 .5269 .5864 .5755 | .4941 .5199 .5824 .5788 | .4958 .5295 .5969 .5788
        .5017 .5466 .5950 .5799 | .4761 .5053 .5851 .5716 | .4989 .5352 .5998 .5851
        .5040 .5624 .6021 .5812 | .4967 .5379 .5978 .5835 | .5058 .5591 .6005 .5837""",
    ("Li et al., key blocks", "Table 11"): """
        .488 .234 | .594 .252 | .644 .277 | .588 .233 | .630 .246 | .655 .280 | .667 .278
        .679 .273 | .678 .277 | .707 .281 | .672 .280 | .676 .277 | .678 .279""",
}
"""{(paper, table): its rows in their order}, typed a second time."""
NEW_ROWS = {
    "FirstP (DEBERTA)": ".415 .672 .534 .596", "FirstP (BigBird)": ".408 .656 .507 .560",
    "FirstP (JINA)": ".422 .654 .488 .532", "FirstP (MOSAIC)": ".423 .643 .453 .538",
    "FirstP (TinyLLAMA)": ".395 .615 .431 .473", "FirstP (E5)": ".380 .641 .438 .429",
    "MaxP (ELECTRA)": ".414 .659 .502 .563", "MaxP (DEBERTA)": ".402 .671 .535 .609",
    "PARADE Attn (DEBERTA)": ".422 .688 .549 .615", "PARADE Transf-RAND-L2": ".419 .655 .488 .548",
    "PARADE Transf-RAND-L2 (ELECTRA)": ".433 .670 .523 .574",
    "PARADE Transf-PRETR-L6": ".402 .643 .494 .554", "LongP (JINA)": ".416 .665 .503 .558",
    "LongP (MOSAIC)": ".421 .664 .456 .570", "LongP (TinyLLAMA)": ".402 .608 .452 .505",
    "LongP (E5)": ".353 .649 .439 .434",
}  # fmt: skip
"""Rows of Table 1 of positional bias that are not those of Table 4 of 2022."""


def rows_of(table: Any) -> dict[str, tuple[str, ...]]:
    return {label: tuple(table.cells(label).values()) for label, *_ in table.rows}


def test_values_of_published_tables_are_as_they_are_printed() -> None:
    tables = {table.source: rows_of(table) for table in TABLES}
    for source, text in BY_ROW.items():
        printed = [row.split() for row in re.split(r"\||\n", text) if row.split()]
        assert [list(row) for row in tables.pop(", ".join(source)).values()] == printed, source
    [(source, later)] = tables.items()
    assert source == f"{BIAS}, Table 1"
    assert {label: " ".join(row) for label, row in later.items() if label in NEW_ROWS} == NEW_ROWS
    # The others are quoted from 2022: dev, the pooled years and both fields of Robust04.
    before = next(rows_of(table) for table in TABLES if table.source == f"{Y2022}, Table 4")
    old = {"LongP (Longformer)", "LongP (BigBird)"} | (later.keys() - NEW_ROWS.keys())
    assert {label: later[label] for label in old} == {
        label: (row[0], row[4], row[5], row[6]) for label, row in before.items() if label in old
    }
    assert len(later) == len(old) + len(NEW_ROWS)
