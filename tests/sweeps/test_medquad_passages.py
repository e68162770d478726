"""The script that makes a collection of MedQuAD's passages, over four pages."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rank_core.data.load import load_collection

SCRIPT = Path(__file__).parents[2] / "docs/examples/medquad_passages.py"
PAGES = {"P1": "Asthma", "P2": "Measles", "P3": "Asthma in Children", "P4": "Rubella"}
ASPECTS = ("What are the symptoms of {} ?", "What are the treatments for {} ?")


def write_records(path, records):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def passages(tmp_path):
    """The collection that the script makes where dev asks for Asthma and test for Measles."""
    pages, far = tmp_path / "medquad", tmp_path / "medquad-far"
    texts = {page: f"{title} hurts. {title} is treated." for page, title in PAGES.items()}
    write_records(
        pages / "docs.jsonl.gz",
        ({"doc_id": p, "title": title, "text": texts[p]} for p, title in PAGES.items()),
    )
    cut = {page: text.index(".") + 2 for page, text in texts.items()}
    write_records(
        pages / "passages.jsonl.gz",
        (
            {
                "passage_id": f"{page}#{number}",
                "doc_id": page,
                "start": (0, cut[page])[number],
                "end": (cut[page], len(texts[page]))[number],
                "question": aspect.format(title),
            }
            for page, title in PAGES.items()
            for number, aspect in enumerate(ASPECTS)
        ),
    )
    asked = {"dev": ("d1", "P1"), "test": ("t1", "P2")}
    for split, (query_id, page) in asked.items():
        (far / split).mkdir(parents=True)
        text = ASPECTS[0].format(PAGES[page])
        (far / split / "queries.tsv").write_text(f"{query_id}\t{text}\n")
    write_records(
        far / "spans.jsonl.gz",
        (
            {"qid": query_id, "src": f"{page}#{number}", "grade": 1 - number}
            for query_id, page in asked.values()
            for number in range(2)
        ),
    )
    out = tmp_path / "passages"
    subprocess.run([sys.executable, SCRIPT, pages, far, out], check=True)
    return load_collection(str(out))


def test_a_subject_that_is_asked_for_on_dev_or_test_gives_no_training_query(passages):
    assert sorted(passages.splits["train"].queries.values()) == [
        aspect.format("Rubella") for aspect in ASPECTS
    ]


def test_every_query_has_the_passage_that_answers_it(passages):
    for split in passages.splits.values():
        for query_id, text in split.queries.items():
            (doc_id,) = split.qrels[query_id]
            kind = "hurts" if "symptoms" in text else "is treated"
            assert kind in passages.documents[doc_id]
    assert len(passages.documents) == 8 and dict(passages.splits["test"].qrels["t1"]) == {"P2#0": 1}
