"""The doctor's command: what it prints, its exit codes, and that it leaves nothing behind."""

import os
import re
from argparse import Namespace
from pathlib import Path

import pytest

from rank_core.data.load import load_collection
from sweeps.__main__ import main
from sweeps.commands.doctor.examination import config_of
from sweeps.commands.doctor.finding import LEVELS, Finding, finding_text, verdict

SHARED = Path(
    os.environ.get("RANKSWEEP_SHARED_DATA") or Path(__file__).parents[5] / "shared" / "data"
)


@pytest.fixture
def doctor(inputs_words, tmp_path, monkeypatch, capsys):
    """(exit code, output) of the doctor over the small collection, unless told otherwise."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "no-ray"))
    monkeypatch.setenv("COLUMNS", "0")  # a line per finding

    def run(*words: str) -> tuple[int, str]:
        given = dict(zip(inputs_words[::2], inputs_words[1::2], strict=True))
        given["--storage"] = str(tmp_path)
        for flag, value in given.items():
            words = words if flag in words else (*words, flag, value)
        code = main(["doctor", *words])
        out, err = capsys.readouterr()
        progress = [line for line in err.splitlines(keepends=True) if line.startswith("... ")]
        run.progress = progress
        return code, out + "".join(line for line in err.splitlines(True) if line not in progress)

    return run


def lines_of(level, text):
    return [line for line in text.splitlines() if line.startswith(f"  {level}")]


def test_a_sound_collection_has_findings_and_no_error(doctor, tmp_path):
    code, text = doctor("chunking.window=40", "chunking.stride=20")
    assert code == 0, text
    assert lines_of("error", text) == []
    assert re.search(r"woods \w{16}: 20 documents .*queries: 8 train, 8 dev, 8 test", text)
    assert "8 test queries: too few" in text and "evaluation.folds=5" in text
    assert "test: 100.0% of relevant documents are among 100 candidates" in text
    assert "no spans.jsonl.gz" in text
    assert "training: 1 step per trial (8 queries, batch 16, 1 epoch)" in text
    assert "window 40, stride 20" in text and "0.0% of all tokens are never seen" in text
    assert list(tmp_path.iterdir()) == []  # the probe is gone, no database was made


def test_an_embedded_backbone_has_the_depth_of_its_trials():
    for words, depth in ([], 20), (["evaluation.depth=50"], 50):
        arguments = Namespace(collection=None, fields=None, backbone="tiny", settings=words)
        assert config_of(arguments).evaluation.depth == depth


def test_the_doctor_says_what_it_is_doing_before_each_part(doctor, collection_folder):
    doctor()
    assert f"... reading {collection_folder} and its tokens for" in doctor.progress[1]
    assert "... comparing documents\n" in doctor.progress
    assert len(doctor.progress) >= 7


def test_every_finding_is_one_line_with_a_level_and_bad_ones_have_a_reason(doctor):
    _, text = doctor()
    title, *lines, last = text.splitlines()
    assert title == "environment" and "data" in lines
    findings = [line for line in lines if line != "data"]
    assert all(line.split()[0] in LEVELS and line.startswith("  ") for line in findings)
    for line in lines_of("warning", text):
        assert ": " in line and "Remedy: " in line
    assert last == verdict(Finding(line.split()[0], "x") for line in findings)


@pytest.mark.parametrize("width", [80, 160])
def test_lines_are_wrapped_and_aligned_to_the_width(doctor, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    _, text = doctor("--storage", "/proc/nowhere")
    breakable = [line for line in text.splitlines() if len(line.split()) > 2]
    assert max(map(len, breakable)) <= width
    assert max(map(len, breakable)) > width - 20
    columns = {re.match(r" *(\w+ +)?", line).end() for line in breakable if line[:2] == "  "}
    assert all(column >= 11 for column in columns)


def test_a_broken_collection_is_one_error_in_the_words_of_the_loader(
    doctor, tmp_path, collection_folder
):
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(collection_folder, broken)
    (broken / "test" / "bm25.run").write_text("test-0 Q0 d01 1 NaN t\n")
    code, text = doctor("--collection", str(broken))
    assert code == 2
    [error] = lines_of("error", text)
    assert "bm25.run:1: a score must be finite, found 'NaN'" in error
    assert text.rstrip().split("\n")[-1].startswith("1 error")


def test_collection_and_backbone_that_do_not_exist_are_both_named(doctor, tmp_path):
    code, text = doctor("--collection", f"{tmp_path}/documents", "--backbone", f"{tmp_path}/bert")
    assert code == 2 and len(lines_of("error", text)) == 2
    assert "documents" in text and f"{tmp_path}/bert" in text


def test_a_window_that_the_backbone_cannot_read_is_an_error(doctor):
    code, text = doctor("chunking.window=500", "chunking.stride=250")
    assert code == 2
    assert "chunking.window <= 96 must hold" in lines_of("error", text)[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["chunking.windw=5"], "did you mean chunking.window?"),
        (["nonsense"], "section.setting=value"),
        (["chunking.window=5", "chunking.window=6"], "given once"),
        (["--tracking-uri", "mlruns"], "the tracking URI must be one of the known forms"),
        (["--storage", "nosuch://bucket"], "a folder or a URI such as s3://"),
        (["evaluation.measures=NDGC"], "spelled as in ir_measures"),
        (["evaluation.measures=nDCG@10,ERR_IA@10"], "'ERR_IA@10' cannot be computed"),
    ],
)
def test_bad_usage_is_refused_before_anything_is_examined(doctor, words, message):
    code, text = doctor(*words)
    assert code == 2
    assert text.startswith("error: ") and message in text and text.count("\n") == 1


def test_a_storage_that_cannot_be_written_is_an_error(doctor, tmp_path):
    (tmp_path / "file").write_text("mine")
    code, text = doctor("--storage", str(tmp_path / "file" / "results"))
    assert code == 2
    assert "cannot be written" in lines_of("error", text)[0]
    assert (tmp_path / "file").read_text() == "mine"


def test_a_text_is_wrapped_behind_its_level_and_not_at_all_for_a_pipe():
    one = Finding("warning", "a b c d e f", "because of g", "do h")
    assert finding_text(one, None) == "  warning  a b c d e f: because of g. Remedy: do h"
    assert finding_text(one, 30).splitlines() == [
        "  warning  a b c d e f:",
        "           because of g.",
        "           Remedy: do h",
    ]
    assert verdict([one, one, Finding("ok", "x"), Finding("note", "y")]) == "2 warnings, 1 note"
    assert verdict([Finding("ok", "x")]) == "no problem found"


@pytest.mark.slow
def test_python_docs_shows_where_its_relevant_text_stands(doctor):
    load_collection("python-docs")
    code, text = doctor("--collection", "python-docs", "chunking.max_document_tokens=100")
    assert code == 0
    assert re.search(r"warning.*% of relevant text is never seen", text)
    _, text = doctor("--collection", "python-docs")
    assert re.search(r"ok .*  0\.0% of relevant text is never seen", text)


@pytest.mark.long
@pytest.mark.slow
def test_real_long_documents_have_relevant_text_behind_the_usual_limit(doctor):
    folder = SHARED / "medquad-far"
    if not folder.is_dir():
        pytest.skip(f"no collection in {folder}; RANKSWEEP_SHARED_DATA may name its folder")
    code, text = doctor("--collection", str(folder))
    assert code == 0
    assert "2,689 documents" in text and "nDCG@10 0.340 as they are ranked, 0.925 at best" in text
    assert "test/bm25.top100.run.gz: 3,524 of 20,000 scores are tied" in text
    assert re.search(r"warning.*% of relevant text is never seen", text)
