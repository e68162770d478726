"""Published values: what follows from them, as a reader of the papers would check it, and their
place beside ours."""

from pathlib import Path
from typing import Any

import pytest

from sweeps.commands.report import main
from sweeps.report.load import load_sweep
from sweeps.report.published import TABLES, published
from tests.sweeps.report.test_load import read_values, write_sweep, write_values

BIAS, Y2022, Y2021 = "Boytsov et al., positional bias", "Boytsov et al. 2022", "Zhang, Yates"
FOUR = ("MS MARCO dev MRR", "DL 2019-2021 nDCG@10", "Robust04 title nDCG@20",
        "Robust04 description nDCG@20")  # fmt: skip


def cells(source: str, row: str) -> dict[str, str]:
    (table,) = [one for one in TABLES if one.source == source]
    return dict(table.cells(row))


def ends(text: str) -> tuple[float, float]:
    """The least and the largest number that is printed so."""
    half = 0.5 * 10.0 ** -len(text.partition(".")[2])
    return float(text) - half, float(text) + half


def gain(top: list[str], base: list[str]) -> tuple[float, float]:
    """The least and largest mean gain in percent that the printed cells allow."""
    sides = []
    for pair in zip(top, base, strict=True):
        (low, high), (least, most) = map(ends, pair)
        sides.append((100 * (low / most - 1), 100 * (high / least - 1)))
    low, high = (sum(values) / len(sides) for values in zip(*sides, strict=True))
    return low, high


def agrees(printed: str, found: tuple[float, float]) -> bool:
    low, high = ends(printed)
    return low <= found[1] + 1e-9 and found[0] <= high + 1e-9


def four(row: str, table: str = "Table 1") -> list[str]:
    return [cells(f"{BIAS}, {table}", row)[one] for one in FOUR]


def test_the_average_gain_over_firstp_is_the_printed_one() -> None:
    assert agrees("5.0", gain(four("PARADE Attn"), four("FirstP (BERT)")))


def test_the_two_tables_of_one_paper_agree_with_those_that_they_quote() -> None:
    own = cells("Zhang, Yates and Lin 2021, Table 2", "BERT")
    quoted = cells(f"{BIAS}, Table 5", "Zhang et al. MaxP")
    assert all(agrees(quoted[column], ends(own[column])) for column in FOUR[2:])


def robust04(folder: Path, backbone: str = "bert-base-uncased", **changes: Any) -> Path:
    """A sweep of MaxP windows on Robust04's titles."""
    folder.mkdir(exist_ok=True)
    return write_sweep(
        folder,
        kinds=[("FirstP", 477, 477), ("MaxP", 150, 100), ("MaxP", 75, 50)],
        num_queries=20,
        collection={"name": "robust04-title"},
        backbone={"name": backbone},
        measures=["nDCG@10", "nDCG@20"],
        **changes,
    )


pytestmark = pytest.mark.usefixtures("no_figures")


def _as_ndcg20(folder: Path) -> Path:
    """The made-up sweep has RR@10, which no paper prints."""
    import json

    table = read_values(folder)
    table["measure"] = table["measure"].replace("RR@10", "nDCG@20")
    write_values(folder, table)
    assert json.loads((folder / "sweep.json").read_text())["measures"][1] == "nDCG@20"
    return folder


def test_a_system_is_matched_by_collection_measure_model_encoder_and_windows(
    tmp_path: Path,
) -> None:
    sweep = load_sweep(_as_ndcg20(robust04(tmp_path)))
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
    (tmp_path / "x").mkdir()
    assert published(load_sweep(_as_ndcg20(robust04(tmp_path / "x", backbone="tiny")))) == {}


def test_the_report_shows_them_beside_ours_where_asked_and_tests_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _as_ndcg20(robust04(tmp_path))
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


def test_a_sweep_without_published_values_is_told_where_there_are_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(write_sweep(tmp_path, num_queries=20)), "--published"])
    said = " ".join(capsys.readouterr().out.split())
    assert "No published value is known" in said and "robust04-title nDCG@20" in said


@pytest.mark.parametrize("table", TABLES, ids=lambda one: one.source)
def test_a_table_is_whole(table: Any) -> None:
    for label, *_ in table.rows:
        values = table.cells(label).values()
        assert all(one == "-" or 0 < float(one) < 1 for one in values)
    assert len({label for label, *_ in table.rows}) == len(table.rows)
