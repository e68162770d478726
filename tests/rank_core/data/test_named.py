"""Named collections are those of their names: the ids of ir_datasets, typed here by hand.

Sources: https://ir-datasets.com (ids), https://microsoft.github.io/msmarco/TREC-Deep-Learning (the
test sets of the years), Boytsov et al. 2022 (dev is tested, DL 2019 selects).
"""

import pytest

from rank_core.data.named import NAMED, DatasetPart

DOC, PASSAGE = "msmarco-document", "msmarco-passage"
DOC_SPLITS = {"train": [f"{DOC}/train"], "dev": [f"{DOC}/dev"]}
PASSAGE_SPLITS = {"train": [f"{PASSAGE}/train/judged"], "dev": [f"{PASSAGE}/dev/small"]}
ROBUST = "disks45/nocr/trec-robust-2004"
GOV2 = ["gov2/trec-tb-2004", "gov2/trec-tb-2005", "gov2/trec-tb-2006"]
WEB = ["clueweb12/trec-web-2013", "clueweb12/trec-web-2014"]
IDS: dict[str, dict[str, list[str]]] = {
    "msmarco-doc": {**DOC_SPLITS, "test": [f"{DOC}/trec-dl-2019/judged"]},
    "msmarco-doc-dl20": {**DOC_SPLITS, "test": [f"{DOC}/trec-dl-2020/judged"]},
    "msmarco-doc-dl19-20": {
        **DOC_SPLITS,
        "test": [f"{DOC}/trec-dl-2019/judged", f"{DOC}/trec-dl-2020/judged"],
    },
    "msmarco-doc-dev": {
        "train": [f"{DOC}/train"],
        "dev": [f"{DOC}/trec-dl-2019/judged"],
        "test": [f"{DOC}/dev"],
    },
    "msmarco-doc-hard": {**DOC_SPLITS, "test": [f"{DOC}/trec-dl-hard"]},
    "msmarco-doc-v2-dl21": {"test": [f"{DOC}-v2/trec-dl-2021/judged"]},
    "msmarco-doc-v2-dl22": {"test": [f"{DOC}-v2/trec-dl-2022/judged"]},
    "msmarco-doc-v2-dl23": {"test": [f"{DOC}-v2/trec-dl-2023/judged"]},
    "msmarco-doc-v2-dl21-23": {
        "test": [
            f"{DOC}-v2/trec-dl-2021/judged",
            f"{DOC}-v2/trec-dl-2022/judged",
            f"{DOC}-v2/trec-dl-2023/judged",
        ]
    },
    "msmarco-passage": {**PASSAGE_SPLITS, "test": [f"{PASSAGE}/trec-dl-2019/judged"]},
    "msmarco-passage-dl20": {**PASSAGE_SPLITS, "test": [f"{PASSAGE}/trec-dl-2020/judged"]},
    "msmarco-passage-dl19-20": {
        **PASSAGE_SPLITS,
        "test": [f"{PASSAGE}/trec-dl-2019/judged", f"{PASSAGE}/trec-dl-2020/judged"],
    },
    "robust04-title": {"pool": [ROBUST]},
    "robust04-desc": {"pool": [ROBUST]},
    "gov2-title": {"pool": GOV2},
    "gov2-desc": {"pool": GOV2},
    "gov2-mq2007": {"pool": ["gov2/trec-mq-2007"]},
    "gov2-mq2008": {"pool": ["gov2/trec-mq-2008"]},
    "clueweb12-title": {"pool": WEB},
    "clueweb12-desc": {"pool": WEB},
    # BEIR (Thakur et al. 2021, Table 1): which splits have judgments.
    "beir-arguana": {"test": ["beir/arguana"]},
    "beir-climate-fever": {"test": ["beir/climate-fever"]},
    "beir-dbpedia-entity": {
        "dev": ["beir/dbpedia-entity/dev"],
        "test": ["beir/dbpedia-entity/test"],
    },
    "beir-nq": {"test": ["beir/nq"]},
    "beir-quora": {"dev": ["beir/quora/dev"], "test": ["beir/quora/test"]},
    "beir-scidocs": {"test": ["beir/scidocs"]},
    "beir-scifact": {"train": ["beir/scifact/train"], "test": ["beir/scifact/test"]},
    "beir-trec-covid": {"test": ["beir/trec-covid"]},
    "beir-webis-touche2020": {"test": ["beir/webis-touche2020/v2"]},
    **{
        f"beir-{name}": {split: [f"beir/{name}/{split}"] for split in ("train", "dev", "test")}
        for name in ("fever", "fiqa", "hotpotqa", "msmarco", "nfcorpus")
    },
}
FAMILIES = {"beir-cqadupstack-": 12, "bright-": 8, "nano-beir-": 13}
"""{prefix: how many}: StackExchange forums of CQADupStack, BRIGHT's sets with long documents, and
NanoBEIR; a name's last part is that of its id."""
FIELDS = {
    "robust04-title": "title", "robust04-desc": "description", "gov2-title": "title",
    "gov2-desc": "description", "clueweb12-title": "query", "clueweb12-desc": "description",
}  # fmt: skip
"""{collection: the field of its topics}; of the Web Track a topic's title is called its query."""
PREFIXES = {
    "msmarco-doc-dl19-20": ["dl19/", "dl20/"],
    "msmarco-passage-dl19-20": ["dl19/", "dl20/"],
    "msmarco-doc-v2-dl21-23": ["dl21/", "dl22/", "dl23/"],
}


def in_family(name: str) -> str:
    return next((prefix for prefix in FAMILIES if name.startswith(prefix)), "")


def test_every_named_collection_is_below() -> None:
    assert {name for name in NAMED if not in_family(name)} == IDS.keys()
    counts = {prefix: sum(name.startswith(prefix) for name in NAMED) for prefix in FAMILIES}
    assert counts == FAMILIES


@pytest.mark.parametrize("name", IDS)
def test_a_name_has_the_queries_and_judgments_that_it_says(name: str) -> None:
    splits = NAMED[name].splits
    found = {split: [part.dataset_id for part in parts] for split, parts in splits.items()}
    assert found == IDS[name]
    parts = NAMED[name].parts
    assert {part.query_field for part in parts} == {FIELDS.get(name)}
    tested = splits.get("test", ())
    assert [part.prefix for part in tested] == PREFIXES.get(name, [""] * len(tested))


@pytest.mark.parametrize("name", [name for name in NAMED if in_family(name)])
def test_a_name_of_a_family_has_the_test_queries_of_its_last_part(name: str) -> None:
    prefix = in_family(name)
    part = name.removeprefix(prefix)
    dataset = {
        "beir-cqadupstack-": f"beir/cqadupstack/{part}",
        "bright-": f"bright/{part}",
        "nano-beir-": f"nano-beir/{part}",
    }[prefix]
    field = "text" if prefix == "bright-" else None
    assert NAMED[name].splits == {"test": (DatasetPart(dataset, field),)}


def test_candidates_are_the_official_ones_or_those_of_bm25() -> None:
    for name, recipe in NAMED.items():
        for part in recipe.parts:
            # MS MARCO's thousand passages of a query have no order.
            ranked = () if name.startswith("msmarco-passage") else (part.dataset_id,)
            if part.dataset_id == f"{DOC}/trec-dl-hard":  # its queries are of 2019 and 2020
                ranked = (f"{DOC}/trec-dl-2019", f"{DOC}/trec-dl-2020")
            assert part.ranked_ids == ranked, name


def test_collections_of_many_millions_of_pages_keep_the_ranked_ones_alone() -> None:
    huge = ("msmarco-doc-v2", "gov2", "clueweb12")
    for name, recipe in NAMED.items():
        assert recipe.ranked_only == name.startswith(huge), name
        assert (recipe.folds == "huston-croft") == name.startswith("robust04"), name
