"""Candidates from another first stage, or fewer candidates in some splits.

`DIR|first-stage(k1=1.2,b=.75)` ranks the documents for the queries of every split, replacing the
collection's candidates: `by=bm25` or `by=rm3` in memory with Lucene's arithmetic, `by=lucene` or
`by=lucene-rm3` by Lucene itself (the extra `retrieval`). `tune=nDCG@10` tunes k1 and b, then RM3's
settings, on the judged dev queries over the grids of `rank_core.first_stage.tuning`. `by=given`
keeps the collection's lists and only truncates them.

Texts are read in the collection's language, or in another (`language=de`); with `tokenizer=DIR` a
tokenizer's subwords are the terms.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from rank_core import first_stage
from rank_core.cache import cached_directory
from rank_core.data.store import First
from rank_core.data.transforms.transform import derived, derived_hash
from rank_core.data.trec import read_run, write_run
from rank_core.errors import BadInput, unknown
from rank_core.evaluate import check_measures
from rank_core.first_stage import Bm25Index, Bm25Settings, Rm3, TextAnalysis, lucene
from rank_core.first_stage.languages import ENGLISH, language_code, other_than_english
from rank_core.first_stage.subwords import tokenizer_file
from rank_core.first_stage.tuning import Tuning, rm3_grid, tune_bm25
from rank_core.lines import beside
from rank_core.parsing import parsed_json
from rank_core.records import Collection, Run, without_own
from rank_core.settings.checks import check_rule

GIVEN, *_ = RETRIEVERS = ("given", "bm25", "rm3", "lucene", "lucene-rm3")
OF_BM25, OF_RM3 = ("k1", "b"), ("fb_terms", "fb_docs", "original_weight")
BEFORE = ("debias", "deep", "shallow")
"""Transforms of training documents and judgments, which retrieval would undo."""

_TUNING = "tuning.json"
_ENGLISH_ALONE = "which analyses texts as English (by=bm25 and by=rm3 know other languages)"


@dataclass(frozen=True)
class FirstStage:
    """The first stage that ranks the candidates, and how many each split keeps."""

    by: str = "bm25"
    k1: float = first_stage.K1
    b: float = first_stage.B
    fb_terms: int = 10
    fb_docs: int = 10
    original_weight: float = 0.5
    tune: str = ""  # measure to tune the settings above on dev; empty: no tuning
    depth: int = 0  # candidates per query; 0: 100, or all given ones
    train_depth: int = 0  # of one split; 0: `depth`
    dev_depth: int = 0
    test_depth: int = 0
    language: str = ""  # of the texts, a code such as de; empty: the collection's, or English
    tokenizer: str = ""  # folder or Hugging Face id of a tokenizer whose subwords are the terms
    OF_DEPENDS_ON: ClassVar[tuple[str, ...]] = ("language", "tokenizer")
    name: ClassVar[str] = "first-stage"
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.by not in RETRIEVERS:
            raise unknown(f"by of {self.name}", self.by, RETRIEVERS)
        for depth in ("depth", "train_depth", "dev_depth", "test_depth"):
            check_rule(f"{self.name}.{depth}", getattr(self, depth), ">=0")
        for split in ("train", "dev", "test"):
            if 0 < self.depth < getattr(self, f"{split}_depth"):
                raise BadInput(
                    f"{split}_depth <= depth must hold for {self.name}, "
                    f"got {split}_depth={getattr(self, f'{split}_depth')}, depth={self.depth}"
                )
        if self.by == GIVEN:
            of_retrieval = (*OF_BM25, *OF_RM3, "tune", *self.OF_DEPENDS_ON)
            self._refuse(of_retrieval, f"by={GIVEN}, which does not retrieve")
        if not self.by.endswith("rm3"):
            self._refuse(OF_RM3, f"by={self.by}, only with by=rm3 and by=lucene-rm3")
        if self.tune:
            check_measures([self.tune])
            self._refuse((*OF_BM25, *OF_RM3), f"tune={self.tune}, which tunes it on dev")
        if self.language:
            code = language_code(self.language, f"language of {self.name}")
            object.__setattr__(self, "language", code)
        if self.tokenizer:
            self._refuse(("language",), f"tokenizer={self.tokenizer}, which knows no languages")
            if self.by.startswith("lucene"):
                self._refuse(("tokenizer",), f"by={self.by}, which has an analysis of its own")
            tokenizer_file(self.tokenizer)
        if self.by.startswith("lucene") and other_than_english(self.language):
            self._refuse(("language",), f"by={self.by}, {_ENGLISH_ALONE}")
        _ = self.settings  # checks the values

    def _refuse(self, names: tuple[str, ...], why: str) -> None:
        """Raises `BadInput` for settings without effect that are not at their defaults."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in names and value != field.default:
                raise BadInput(f"{field.name}={value} of {self.name} has no effect with {why}")

    @property
    def settings(self) -> Bm25Settings:
        """The given settings of the retrieval."""
        expands = self.by.endswith("rm3")
        rm3 = Rm3(self.fb_terms, self.fb_docs, self.original_weight) if expands else None
        return Bm25Settings(self.k1, self.b, rm3)

    def analysis(self, collection: Collection) -> TextAnalysis:
        """How the texts of a collection become index terms. Raises `BadInput` for Lucene in other
        languages than English."""
        if self.by.startswith("lucene"):
            if other_than_english(collection.language) and not self.language:
                raise BadInput(
                    f"{self.name} has by={self.by}, {_ENGLISH_ALONE}, and the language of "
                    f"{collection.name} is {collection.language}; language={ENGLISH} says that "
                    "this is meant"
                )
            return TextAnalysis()
        if self.tokenizer:
            return TextAnalysis(tokenizer=self.tokenizer)
        return TextAnalysis(self.language or collection.language)

    def depth_of(self, split: str) -> int:
        """The number of candidates per query of a split; 0: all given ones."""
        all_splits = self.depth or (0 if self.by == GIVEN else first_stage.DEPTH)
        return int(getattr(self, f"{split}_depth", 0)) or all_splits

    def __call__(self, collection: Collection) -> Collection:
        """The collection with other candidates, ranked once and cached."""
        after = [name for name in BEFORE if f"|{name}(" in collection.name]
        if after and self.by != GIVEN:
            raise BadInput(
                f"{self.name} must come before {' and '.join(after)}, whose changes of training "
                f"data it would undo; it comes after them in {collection.name}"
            )
        runs = {
            name: _cut(split.candidates, self.depth_of(name))
            for name, split in collection.splits.items()
        }
        if self.by != GIVEN:
            runs = _read(self._folder(collection), tuple(collection.splits))
            if collection.leaves_own_out:
                runs = {
                    name: {
                        query_id: without_own(query_id, ranked) for query_id, ranked in run.items()
                    }
                    for name, run in runs.items()
                }
        splits = {
            name: replace(
                split,
                candidates={query_id: runs[name].get(query_id, {}) for query_id in split.queries},
            )
            for name, split in collection.splits.items()
        }
        label = "" if self.by == GIVEN else "BM25+RM3" if self.by.endswith("rm3") else "BM25"
        ranked = derived(
            collection,
            self,
            splits=splits,
            depends_on=self._recipe(collection),
            first_stage=label + " of subwords" * bool(self.tokenizer),
        )
        return replace(ranked, language=self.language or collection.language)

    def tuning(self, collection: Collection) -> list[dict[str, Any]]:
        """The tuning on dev: k1 and b first, then RM3; empty without tuning."""
        return parsed_json((self._folder(collection) / _TUNING).read_text())

    def _recipe(self, collection: Collection) -> str:
        """Everything that the candidates depend on besides the collection and these settings."""
        if self.by == GIVEN:
            return ""
        alone = ", documents alone" if collection.unranked else ""
        if self.by.startswith("lucene"):
            self.analysis(collection)
            return lucene.recipe() + alone
        recipe = first_stage.recipe(self.analysis(collection))
        return recipe + (", rm3 2" if self.by == "rm3" else "") + alone

    def _folder(self, collection: Collection) -> Path:
        key = derived_hash(collection, self, self._recipe(collection))
        return cached_directory(
            "transforms", f"{self.name}-{key}", lambda folder: _build(folder, collection, self)
        )


def _build(folder: Path, collection: Collection, transform: FirstStage) -> None:
    by_lucene = transform.by.startswith("lucene")
    documents = collection.documents
    if collection.unranked:
        documents = First(documents, len(documents) - collection.unranked)
    index: first_stage.Retriever = (
        lucene.LuceneIndex(documents)
        if by_lucene
        else Bm25Index(documents, transform.analysis(collection))
    )
    tunings = list(_tunings(index, collection, transform)) if transform.tune else []
    settings = tunings[-1].best if tunings else transform.settings
    for name, split in collection.splits.items():
        run = index.run(split.queries, settings, depth=transform.depth_of(name))
        write_run(folder / f"{name}.run.gz", run, tag=transform.by)
    (folder / _TUNING).write_text(json.dumps([tuning.record() for tuning in tunings]))
    if tunings:
        last = tunings[-1]
        value = max(point.value for point in last.table)
        beside(
            f"first stage of {collection.name}: {last.best} is the best on {last.num_queries} dev "
            f"queries, {transform.tune} {value:.3f}; untuned {tunings[0].table[0].value:.3f}"
        )


def _tunings(
    index: first_stage.Retriever, collection: Collection, transform: FirstStage
) -> Iterator[Tuning]:
    """The tuning of k1 and b, then of RM3 with the best of them."""
    dev, depth = collection.splits["dev"], transform.depth_of("dev")
    plain = tune_bm25(index, dev.queries, dev.qrels, transform.tune, depth=depth)
    yield plain
    if transform.settings.rm3 is not None:
        grid = rm3_grid(plain.best)
        yield tune_bm25(index, dev.queries, dev.qrels, transform.tune, grid, depth=depth)


@lru_cache(maxsize=4)
def _read(folder: Path, names: tuple[str, ...]) -> dict[str, Run]:
    return {name: read_run(folder / f"{name}.run.gz") for name in names}


def _cut(run: Mapping[str, Mapping[str, float]], depth: int) -> Run:
    return {query_id: dict(list(run[query_id].items())[: depth or None]) for query_id in run}
