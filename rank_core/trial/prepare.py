"""The preparation of trials: all that their inputs need and a machine makes once, made ahead."""

from rank_core.chunking.inputs import load_inputs
from rank_core.models import model_class
from rank_core.models.ranker import Ranker
from rank_core.settings.config import TrialConfig
from rank_core.training.examples import training_queries
from rank_core.trial.cross_validation import parts_of


def prepare(config: TrialConfig) -> None:
    """Makes the collection, the tokens of its documents and queries, and the rows of the training
    data, where the cache of this machine lacks them; tells of what takes long on standard error.

    A killed preparation resumes with its documents and tokens. Memory is bounded by a batch of
    documents, 12 bytes a candidate and, where there is no run file, the index of BM25.
    """
    kind = model_class(config.model.name)
    for part in parts_of(config, load_inputs(config.collection, config.model.backbone)):
        for split in part.collection.splits:
            part.query_tokens(split)
        if issubclass(kind, Ranker) and config.training.num_epochs:
            training_queries(part, config)
