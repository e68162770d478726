"""The named collections from ir_datasets and their composition."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

POOL = "pool"


@dataclass(frozen=True)
class DatasetPart:
    """The judged queries of an ir_datasets id."""

    dataset_id: str
    query_field: str | None = None  # title or description, for topics with several fields
    prefix: str = ""  # prefix of query ids, which keeps those of pooled test sets apart
    candidates: tuple[str, ...] | None = None  # ids whose ranked documents replace its own

    @property
    def ranked_ids(self) -> tuple[str, ...]:
        """The ids whose ranked documents may be candidates; empty for BM25."""
        return (self.dataset_id,) if self.candidates is None else self.candidates


@dataclass(frozen=True)
class Recipe:
    """The parts of each split, or of a pool that is divided into folds."""

    splits: Mapping[str, tuple[DatasetPart, ...]]
    folds: Literal["huston-croft", "round-robin"] = "round-robin"
    # For collections of many millions of pages: only candidates and relevant documents are stored,
    # and a run file is needed unless the dataset has ranked documents.
    ranked_only: bool = False
    # Where queries are documents themselves, a query's own document is no candidate.
    leaves_own_out: bool = False

    @property
    def parts(self) -> list[DatasetPart]:
        """All parts, of all splits."""
        return [part for parts in self.splits.values() for part in parts]

    @property
    def is_pool(self) -> bool:
        """True if the splits come from folds."""
        return set(self.splits) == {POOL}


def splits(
    train: str | None = None, dev: str | None = None, test: str | None = None
) -> dict[str, tuple[DatasetPart, ...]]:
    """The given splits, each of one id."""
    ids = {"train": train, "dev": dev, "test": test}
    return {name: (DatasetPart(dataset_id),) for name, dataset_id in ids.items() if dataset_id}


def pool(
    dataset_ids: Iterable[str], query_field: str | None = None
) -> dict[str, tuple[DatasetPart, ...]]:
    """A pool of the queries of several ids."""
    return {POOL: tuple(DatasetPart(dataset_id, query_field) for dataset_id in dataset_ids)}


# MS MARCO documents. The text is title and body (version 2: title, headings and body); candidates
# are the ranked lists of the TREC Deep Learning track. The queries of DL-Hard are among those of
# 2019 and 2020. Of version 2's 12 million documents only ranked and relevant ones are kept.
_V1, _V2 = "msmarco-document", "msmarco-document-v2"
_DOCUMENTS = splits(train=f"{_V1}/train", dev=f"{_V1}/dev")
_DL19, _DL20 = "trec-dl-2019/judged", "trec-dl-2020/judged"
_HARD = DatasetPart(
    f"{_V1}/trec-dl-hard", candidates=(f"{_V1}/trec-dl-2019", f"{_V1}/trec-dl-2020")
)
_V2_TESTS = {f"dl{year}": f"{_V2}/trec-dl-20{year}/judged" for year in (21, 22, 23)}


# MS MARCO passages. The official thousand passages per query have no order, so BM25 ranks. An index
# of all 8.8 million passages needs some 10 GB of memory to build; a run file avoids that.
def _passages(name: str, prefix: str = "") -> tuple[DatasetPart, ...]:
    return (DatasetPart(f"msmarco-passage/{name}", prefix=prefix, candidates=()),)


_PASSAGES = {"train": _passages("train/judged"), "dev": _passages("dev/small")}

# Robust04: 528,155 news articles of TREC disks 4 and 5, 249 topics.
# Licensed by NIST: https://trec.nist.gov/data/cd45/index.html.
_ROBUST04 = ["disks45/nocr/trec-robust-2004"]

# GOV2 (25 million pages of .gov sites, licensed by the University of Glasgow) and ClueWeb12 (733
# million web pages, licensed by Carnegie Mellon University) are far too large for our index: a run
# file is needed, and only ranked and relevant documents are kept. ClueWeb12 is read by
# `ir-datasets[warc]`.
_TERABYTE = [f"gov2/trec-tb-{year}" for year in (2004, 2005, 2006)]
_WEB_TRACK = [f"clueweb12/trec-web-{year}" for year in (2013, 2014)]

# BEIR. The text is title and text; BM25 ranks. Touche is its corrected second version. BEIR's
# Robust04 is missing from ir_datasets; `robust04-title` is that collection.
_BEIR_SPLITS = {
    "arguana": (),
    "climate-fever": (),
    "dbpedia-entity": ("dev", "test"),
    "fever": ("train", "dev", "test"),
    "fiqa": ("train", "dev", "test"),
    "hotpotqa": ("train", "dev", "test"),
    "msmarco": ("train", "dev", "test"),
    "nfcorpus": ("train", "dev", "test"),
    "nq": (),
    "quora": ("dev", "test"),
    "scidocs": (),
    "scifact": ("train", "test"),
    "trec-covid": (),
    "webis-touche2020/v2": (),
}
_FORUMS = (
    "android english gaming gis mathematica physics programmers stats tex unix webmasters wordpress"
)

_BRIGHT = (
    "biology earth-science economics pony psychology robotics stackoverflow sustainable-living"
)
_NANO = (
    "arguana climate-fever dbpedia-entity fever fiqa hotpotqa msmarco nfcorpus nq quora scidocs "
    "scifact webis-touche2020"
)


def _beir(dataset: str, names: tuple[str, ...] = ()) -> Recipe:
    """The recipe of a BEIR dataset; without splits it is a test set."""
    datasets = {name: f"beir/{dataset}/{name}" for name in names} or {"test": f"beir/{dataset}"}
    # BEIR, MTEB and Pyserini leave out the document of a query's id.
    return Recipe(splits(**datasets), leaves_own_out=dataset in ("arguana", "quora"))


NAMED: dict[str, Recipe] = {
    "msmarco-doc": Recipe(_DOCUMENTS | splits(test=f"{_V1}/{_DL19}")),
    "msmarco-doc-dl20": Recipe(_DOCUMENTS | splits(test=f"{_V1}/{_DL20}")),
    "msmarco-doc-dl19-20": Recipe(
        _DOCUMENTS
        | {
            "test": (
                DatasetPart(f"{_V1}/{_DL19}", prefix="dl19/"),
                DatasetPart(f"{_V1}/{_DL20}", prefix="dl20/"),
            )
        }
    ),
    # Tested on dev, as rerankers without access to a leaderboard are; DL 2019 selects.
    "msmarco-doc-dev": Recipe(
        splits(train=f"{_V1}/train", dev=f"{_V1}/{_DL19}", test=f"{_V1}/dev")
    ),
    "msmarco-doc-hard": Recipe(_DOCUMENTS | {"test": (_HARD,)}),
    **{
        f"msmarco-doc-v2-{year}": Recipe(splits(test=id_), ranked_only=True)
        for year, id_ in _V2_TESTS.items()
    },
    "msmarco-doc-v2-dl21-23": Recipe(
        {"test": tuple(DatasetPart(id_, prefix=f"{year}/") for year, id_ in _V2_TESTS.items())},
        ranked_only=True,
    ),
    "msmarco-passage": Recipe(_PASSAGES | {"test": _passages(_DL19)}),
    "msmarco-passage-dl20": Recipe(_PASSAGES | {"test": _passages(_DL20)}),
    "msmarco-passage-dl19-20": Recipe(
        _PASSAGES | {"test": _passages(_DL19, "dl19/") + _passages(_DL20, "dl20/")}
    ),
    "robust04-title": Recipe(pool(_ROBUST04, "title"), folds="huston-croft"),
    "robust04-desc": Recipe(pool(_ROBUST04, "description"), folds="huston-croft"),
    "gov2-title": Recipe(pool(_TERABYTE, "title"), ranked_only=True),
    "gov2-desc": Recipe(pool(_TERABYTE, "description"), ranked_only=True),
    "gov2-mq2007": Recipe(pool(["gov2/trec-mq-2007"]), ranked_only=True),
    "gov2-mq2008": Recipe(pool(["gov2/trec-mq-2008"]), ranked_only=True),
    "clueweb12-title": Recipe(pool(_WEB_TRACK, "query"), ranked_only=True),
    "clueweb12-desc": Recipe(pool(_WEB_TRACK, "description"), ranked_only=True),
    **{
        f"beir-{dataset.partition('/')[0]}": _beir(dataset, names)
        for dataset, names in _BEIR_SPLITS.items()
    },
    **{f"beir-cqadupstack-{forum}": _beir(f"cqadupstack/{forum}") for forum in _FORUMS.split()},
    # Test queries alone, of long documents (BRIGHT) and of small samples of BEIR (NanoBEIR).
    **{
        f"bright-{of}-long": Recipe({"test": (DatasetPart(f"bright/{of}-long", "text"),)})
        for of in _BRIGHT.split()
    },
    **{
        f"nano-beir-{of}": Recipe(
            splits(test=f"nano-beir/{of}"), leaves_own_out=of in ("arguana", "quora")
        )
        for of in _NANO.split()
    },
}
