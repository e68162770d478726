"""Whatever a name in a file holds, no control character and no secret reaches a terminal."""

import json
import logging
import os
import sys

import pytest

from rank_core.data.readers import documents
from rank_core.lines import VisibleLog, beside, put, rewrite, show_log

EVIL = "\x1b]0;pwned\x07\x1b[2J\x1b[31m\u202egnp.exe\x9b31m"
RAW = ("\x1b", "\x07", "\x9b", "\u202e")
SECRET = "hunter2-hunter2"


@pytest.fixture
def secret(monkeypatch):
    monkeypatch.setenv("SERVICE_TOKEN", SECRET)


@pytest.mark.parametrize("door", [put, beside, rewrite])
def test_no_door_lets_them_pass(door, capsys, secret):
    door(f"{EVIL} {SECRET}")
    text = "".join(capsys.readouterr()).removesuffix("\x1b[K")
    assert "pwned" in text and not [sign for sign in RAW if sign in text]
    assert SECRET not in text


def test_a_log_without_a_form_passes_the_door(secret):
    show_log()
    record = logging.makeLogRecord({"msg": f"{EVIL} {SECRET}", "levelno": logging.WARNING})
    for form in (VisibleLog(), logging.lastResort.formatter):
        text = form.format(record)
        assert "pwned" in text and SECRET not in text and "\x1b" not in text


def test_the_note_on_a_field_of_documents_is_plain(tmp_path, capsys):
    file = tmp_path / "docs.jsonl"
    file.write_text(json.dumps({"doc_id": "d1", "text": "amber", EVIL: 1}) + "\n")
    assert [*documents(file, {})]
    text = capsys.readouterr().err
    assert "fields that are not read" in text and "\x1b" not in text and "\u202e" not in text


def test_a_fault_of_ours_passes_the_door(monkeypatch, capsys, secret):
    from sweeps import __main__

    def fails(argv):
        raise RuntimeError(f"{EVIL} {SECRET}")

    monkeypatch.setattr(__main__, "main", fails)
    monkeypatch.setattr(sys, "argv", ["ranksweep"])
    assert __main__.script() == 1
    text = capsys.readouterr().err
    assert "RuntimeError" in text and SECRET not in text and "\x1b" not in text
    assert os.environ["SERVICE_TOKEN"] == SECRET
