"""MS MARCO FarRelevant (Boytsov et al., positional bias): long documents whose relevant passage is
behind the first 512 tokens.

The archive and its layout are those of github.com/searchivarius/long_doc_rank_model_analysis_v2.
Train is its `bitext`, test its sample of 1,000 queries of `dev_official`, which the paper uses; dev
is the rest of `dev_official`. Both parts' documents are searched, by BM25.
"""

import gzip
import hashlib
import json
import shutil
import tarfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from rank_core.cache import cache_root, cached_directory
from rank_core.data.folder import load_folder
from rank_core.data.made.records import records
from rank_core.data.trec import read_qrels, write_qrels, write_queries
from rank_core.errors import BadInput, shown
from rank_core.records import Collection

NAME = "msmarco-farrelevant"
ARCHIVE = "msmarco_synthetic_longdoc_2024-01-23.tar.bz2"
URL = f"https://pub-31b207e206fc448aa58401dc893868ae.r2.dev/{ARCHIVE}"
TRAIN, DEV, TEST = "bitext", "dev_official", "dev_official_sample1K"
DOCUMENTS, QUERIES, QRELS = "AnswerFields.jsonl.gz", "QuestionFields.jsonl", "qrels.txt"
_SECONDS = 60.0  # without an answer


def load_far_relevant(name: str = NAME) -> Collection:
    """The collection, downloaded on first use unless the archive is in the folder `downloads` of
    the cache."""
    version = hashlib.sha256(URL.encode()).hexdigest()[:16]
    folder = cached_directory("collections", f"{NAME}-{version}", _build)
    return replace(load_folder(folder), name=name)


def _build(folder: Path) -> None:
    unpacked = folder / "unpacked"
    _unpack(unpacked)
    with gzip.open(folder / "docs.jsonl.gz", "wt", compresslevel=1, encoding="utf-8") as documents:
        for part in (TRAIN, DEV):
            for doc_id, text in records(unpacked / part / DOCUMENTS, ("DOCNO", "text_raw")):
                documents.write(json.dumps({"doc_id": doc_id, "text": text}) + "\n")
    queries = {
        part: dict(records(unpacked / part / QUERIES, ("DOCNO", "text_raw")))
        for part in (TRAIN, DEV, TEST)
    }
    qrels = {part: read_qrels(unpacked / part / QRELS) for part in (TRAIN, DEV)}
    rest = {q: text for q, text in queries[DEV].items() if q not in queries[TEST]}
    splits = {
        "train": (queries[TRAIN], qrels[TRAIN]),
        "dev": (rest, qrels[DEV]),
        "test": (queries[TEST], qrels[DEV]),
    }
    for split, (texts, judged) in splits.items():
        (folder / split).mkdir()
        write_queries(folder / split / "queries.tsv", texts)
        write_qrels(folder / split / "qrels.trec", {q: judged[q] for q in texts if q in judged})
    shutil.rmtree(unpacked)


def _unpack(folder: Path) -> None:
    """The archive's files that are read, as PART/FILE. Raises `BadInput` for what is not the
    published archive."""
    wanted = {f"{part}/{file}" for part in (TRAIN, DEV) for file in (DOCUMENTS, QUERIES, QRELS)}
    wanted.add(f"{TEST}/{QUERIES}")
    missing = set(wanted)
    by_hand = cache_root() / "downloads" / ARCHIVE
    try:
        with _archive(by_hand) as stream, tarfile.open(fileobj=stream, mode="r|bz2") as archive:
            for member in archive:
                place = "/".join(Path(member.name).parts[-2:])
                content = archive.extractfile(member) if place in missing else None
                if content is not None:  # a file
                    missing.remove(place)
                    (folder / place).parent.mkdir(parents=True, exist_ok=True)
                    with (folder / place).open("wb") as file:
                        shutil.copyfileobj(content, file)
    except (OSError, EOFError, tarfile.TarError) as error:  # of the network, the disk, the archive
        raise BadInput(
            f"{NAME} could not be read from {by_hand if by_hand.exists() else URL}: "
            f"{type(error).__name__} {shown(str(error))}; the archive may be put at {by_hand}"
        ) from error
    if missing:
        raise BadInput(f"{NAME}: the archive lacks input_data/{', '.join(sorted(missing))}")


@contextmanager
def _archive(by_hand: Path) -> Iterator[IO[bytes]]:
    """The archive as a stream, from the file if it exists."""
    if by_hand.exists():
        with by_hand.open("rb") as file:
            yield file
    else:
        request = urllib.request.Request(URL, headers={"User-Agent": "ranksweep"})
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:
            yield response
