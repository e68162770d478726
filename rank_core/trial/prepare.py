"""Preparation of trials: everything in the cache that their inputs need, built in advance."""

from rank_core.chunking.inputs import load_inputs
from rank_core.models import model_class
from rank_core.models.ranker import Ranker
from rank_core.settings.config import TrialConfig
from rank_core.training.examples import training_queries
from rank_core.trial.cross_validation import parts_of


def prepare(config: TrialConfig) -> None:
    """Builds the collection, the tokens of documents and queries, and the training rows, unless the
    cache has them. Long steps report progress on standard error.

    A killed preparation begins its file again. Memory is bounded by a batch of documents, 12 bytes
    per candidate and, without a run file, the BM25 index.
    """
    kind = model_class(config.model.name)
    for part in parts_of(config, load_inputs(config.collection, config.model.backbone)):
        for split in part.collection.splits:
            part.query_tokens(split)
        if issubclass(kind, Ranker) and config.training.num_epochs:
            training_queries(part, config)
