"""All collections that have a name and come from ir_datasets; one file for each family."""

from rank_core.data.named.beir import BEIR
from rank_core.data.named.clueweb12 import CLUEWEB12
from rank_core.data.named.gov2 import GOV2
from rank_core.data.named.msmarco_documents import MSMARCO_DOCUMENTS
from rank_core.data.named.msmarco_passages import MSMARCO_PASSAGES
from rank_core.data.named.recipe import Recipe
from rank_core.data.named.robust04 import ROBUST04

NAMED: dict[str, Recipe] = {
    **MSMARCO_DOCUMENTS,
    **MSMARCO_PASSAGES,
    **ROBUST04,
    **GOV2,
    **CLUEWEB12,
    **BEIR,
}
