"""MS MARCO documents: version 1 with training queries, version 2 as zero-shot test sets.

Document text is title and body (version 2: title, headings and body); the candidates are the
ranked lists of the TREC Deep Learning track. DL-Hard has none of its own: its queries are among
those of 2019 and 2020. Version 2 holds 12 million documents, of which only the ranked and the
relevant ones are kept.
"""

from rank_core.data.named.recipe import Part, Recipe, splits

_V1, _V2 = "msmarco-document", "msmarco-document-v2"
_TRAIN = splits(train=f"{_V1}/train", dev=f"{_V1}/dev")
_DL19, _DL20 = f"{_V1}/trec-dl-2019/judged", f"{_V1}/trec-dl-2020/judged"
_HARD = Part(f"{_V1}/trec-dl-hard", candidates=(f"{_V1}/trec-dl-2019", f"{_V1}/trec-dl-2020"))
_V2_TESTS = {year: f"{_V2}/trec-dl-20{year}/judged" for year in (21, 22, 23)}

MSMARCO_DOCUMENTS: dict[str, Recipe] = {
    "msmarco-doc": Recipe(_TRAIN | splits(test=_DL19)),
    "msmarco-doc-dl20": Recipe(_TRAIN | splits(test=_DL20)),
    "msmarco-doc-dl19-20": Recipe(
        _TRAIN | {"test": (Part(_DL19, prefix="dl19/"), Part(_DL20, prefix="dl20/"))}
    ),
    "msmarco-doc-hard": Recipe(_TRAIN | {"test": (_HARD,)}),
    **{
        f"msmarco-doc-v2-dl{year}": Recipe(splits(test=dataset_id), ranked_only=True)
        for year, dataset_id in _V2_TESTS.items()
    },
    "msmarco-doc-v2-dl21-23": Recipe(
        {"test": tuple(Part(id_, prefix=f"dl{year}/") for year, id_ in _V2_TESTS.items())},
        ranked_only=True,
    ),
}
