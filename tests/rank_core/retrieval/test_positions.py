"""Where the relevant text of queries begins, in tokens of the backbone."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from rank_core.chunking.inputs import load_inputs
from rank_core.errors import BadInput
from rank_core.retrieval.positions import evidence_positions
from rank_core.settings.config import TrialConfig


def test_the_first_relevant_text_counts_and_a_bad_line_is_refused(
    small_trial: TrialConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "woods"
    shutil.copytree(small_trial.collection, folder)
    inputs = load_inputs(str(folder), small_trial.model.backbone)
    assert evidence_positions(str(folder), inputs, ["q"]) == {}
    split = inputs.collection.splits["test"]
    known = {q: [d for d, grade in own.items() if grade > 0] for q, own in split.qrels.items()}
    (one, [doc_id, *_]), (other, _) = [(q, docs) for q, docs in known.items() if docs][:2]
    tokens, text = inputs.tokens[doc_id], inputs.collection.documents[doc_id]
    words = text.split()
    start = len(" ".join(words[:5])) + 1
    assert text[start:].startswith(words[5])
    spans = [
        {"query_id": one, "doc_id": doc_id, "start": len(text) - 1, "end": len(text)},
        {"query_id": one, "doc_id": doc_id, "start": start, "end": start + 3},
    ]
    path = folder / "spans.jsonl.gz"
    path.write_bytes(gzip.compress("".join(f"{json.dumps(row)}\n" for row in spans).encode()))
    found = evidence_positions(str(folder), inputs, {one, other})
    assert [*found] == [one] and 5 <= found[one] < len(tokens)
    assert evidence_positions(str(folder), inputs, {other}) == {}
    spans[1]["end"] = 10**6
    path.write_bytes(gzip.compress("".join(f"{json.dumps(row)}\n" for row in spans).encode()))
    with pytest.raises(BadInput, match=r"spans\.jsonl\.gz:2: no position"):
        evidence_positions(str(folder), inputs, {one})
