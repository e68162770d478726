"""The tables of names against ir_datasets: ids exist, have what is asked of them, and match."""

import pytest

from rank_core.data.ir_datasets.source import IrSource
from rank_core.data.named import NAMED

every_name = pytest.mark.parametrize("name", sorted(NAMED))


@every_name
def test_every_part_has_documents_queries_and_judgments(name, ir_home):
    recipe = NAMED[name]
    for part in recipe.parts:
        source = IrSource(part.dataset_id)
        assert source.has("docs", "queries", "qrels")
        if part.candidates:
            assert all(IrSource(ranked).has("scoreddocs") for ranked in part.candidates)
        if part.query_field:
            assert part.query_field in source._dataset.queries_cls()._fields


@every_name
def test_all_parts_rank_the_same_documents(name, ir_home):
    assert len({IrSource(part.dataset_id).documents_id for part in NAMED[name].parts}) == 1
