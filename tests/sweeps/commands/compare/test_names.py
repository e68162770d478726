"""Names of systems: read back whole from a terminal of any width; files of any name."""

import os
import re

import pytest

from rank_core.errors import BadInput
from sweeps.__main__ import main
from sweeps.store.storage import Storage
from sweeps.terminal.text import columns

QRELS = "".join(f"q{q} 0 d{d} {int(d < 2)}\n" for q in range(6) for d in range(5))
LABELS = [
    "MaxP 96/48, head 1e-4, backbone 1e-5, loss margin",
    "first-stage",
    "my-very-long-name-without-a-single-space-" + "x" * 200,
    "ELECTRA large (3 epochs) +first-stage",
    "a",
]


def run_of(number):
    """Six queries of five documents, in an order of their own."""
    lines = []
    for q in range(6):
        for rank in range(5):
            lines.append(f"q{q} Q0 d{(rank * (number + 1) + q * number) % 5} {rank} {9 - rank} x")
    return "\n".join(dict((line.split()[0] + line.split()[2], line) for line in lines).values())


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    (tmp_path / "q.qrels").write_text(QRELS)
    for number in range(len(LABELS)):
        (tmp_path / f"{number}.run").write_text(run_of(number) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read_back(lines, first, last):
    """The texts of the table's first column, which is `first` to `last` of a line, by row."""
    names = []
    for line in lines:
        part = line[first:last].rstrip()
        if line[last:].strip():
            names.append(part)
        elif part:
            names[-1] += part
    return [re.sub(r"\s", "", name) for name in names]


@pytest.mark.parametrize("width", [60, 66, 72, 80, 100, 120, 160, 200])
def test_every_name_is_read_back_whole_at_any_width(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    words = [f"{label}={number}.run" for number, label in enumerate(LABELS)]
    assert main(["compare", *words, "--qrels", "q.qrels", "--measures", "nDCG@5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("nDCG@5") + 1
    table = lines[start : lines.index("", start)]
    end = re.search(r"^system +(?=runs|mean)", table[0]).end()
    names = read_back(table[2:], 0, end)
    assert names == [re.sub(r"\s", "", label) for label in LABELS]
    if width >= 80:
        assert max(map(len, table)) <= width


@pytest.mark.parametrize("width", range(60, 201, 7))
def test_a_table_loses_nothing_and_takes_the_width_that_it_has(width):
    rows = [["system", "other", "p"], *([one, two, ".001"] for one in LABELS for two in LABELS)]
    lines = columns(rows, "llr", most=width, names=(0, 1))
    assert max(map(len, lines)) <= width
    text = re.sub(r"[\s]", "", "".join(lines[2:]))
    assert sorted(text) == sorted(re.sub(r"\s", "", "".join(map("".join, rows[1:]))))


@pytest.mark.parametrize("command", ["compare", "measure"])
def test_names_of_files_that_are_no_text_are_shown_by_their_bytes(files, command, capsys):
    for number, name in enumerate([b"g\xff\xfe.run", b"t\xe9.run"]):
        (files / os.fsdecode(name)).write_text(run_of(number) + "\n")
    (files / os.fsdecode(b"q\xff.qrels")).write_text(QRELS)
    runs = [os.fsdecode(name) for name in (b"g\xff\xfe.run", b"t\xe9.run")]
    words = ["--qrels", os.fsdecode(b"q\xff.qrels")]
    if command == "measure":
        assert main(["measure", runs[0], *words]) == 0
        return
    assert main(["compare", *runs, *words, "--out", os.fsdecode(b"o\xff")]) == 0
    assert r"g\xff\xfe" in capsys.readouterr().out
    out = files / os.fsdecode(b"o\xff")
    assert r"t\xe9" in (out / "index.html").read_text("utf-8")
    assert r"t\\xe9" in (out / "results.json").read_text("utf-8")
    assert main(["compare", *runs, "--qrels", "no\udcff"]) == 2
    assert main(["status", "no\udcff"]) == 2


def test_a_storage_that_is_no_text_is_refused(capsys):
    with pytest.raises(BadInput, match=r"st\\xff: rename it"):
        Storage(os.fsdecode(b"st\xff"))
    assert main(["status", os.fsdecode(b"st\xff/a/b")]) == 2


@pytest.mark.parametrize("number", [25, 400])
def test_what_cannot_be_a_path_is_no_path(files, number, capsys):
    names = [f"{'n' * 30}{i}.run" for i in range(number)]
    for name in names[:25]:
        lines = run_of(names.index(name) % 4).splitlines()
        text = "\n".join(f"{line} " for line in lines)
        (files / name).write_text(text.replace(" 9 x", f" {9 + names.index(name)} x") + "\n")
    words = [f"A={','.join(names)}", f"{'B' * 250}=1.run"]
    assert main(["compare", *words, "--qrels", "q.qrels"]) == (0 if number == 25 else 2)
    found = capsys.readouterr()
    assert "too long" not in found.err
    assert number == 25 or f"{names[25]} does not exist" in found.err
    assert main(["compare", "x" * 5000, "1.run", "--qrels", "q.qrels"]) == 2
