"""Fixtures of the tests of models whose documents are one row: settings, a model, its scores.

A module names its model in `MODEL` and its chunking in `CHUNKING`.
"""

import numpy as np
import pytest
import torch

from rank_core.chunking.batches import Chunk, PairEncoder
from rank_core.models import model_class
from rank_core.models.build import build_model
from rank_core.settings.config import Model, TrialConfig


@pytest.fixture
def config(request, backbone):
    """The settings of the module's model, without dropout."""
    settings = Model(request.module.MODEL, backbone=str(backbone.folder), dropout=0.0)
    return TrialConfig(model=settings, chunking=request.module.CHUNKING)


@pytest.fixture
def model(config, backbone):
    """The module's model in evaluation mode."""
    return build_model(config, backbone, init_seed=1).eval()


@pytest.fixture
def batch_of(config, backbone):
    """A function from the ids of a query and of documents to their batch."""

    def build(query, *documents):
        pairs = model_class(config.model.name).reader(config, backbone, {})
        chunks = [[Chunk(np.asarray(query, np.int32), np.asarray(d, np.int32))] for d in documents]
        return pairs.collate(chunks)

    return build


@pytest.fixture
def score(model, batch_of):
    """A function from the ids of a query and of documents to their scores."""

    @torch.inference_mode()
    def scores(query, *documents):
        return model(batch_of(query, *documents))

    return scores


@pytest.fixture
def chunked(request, backbone):
    """A function from documents, given as lists of texts, to their batch."""

    def build(*documents, query=None):
        pairs = PairEncoder({}, request.module.CHUNKING, False, backbone)
        query = request.module.QUERY if query is None else query
        return pairs.collate([[Chunk(query, text) for text in texts] for texts in documents])

    return build


@pytest.fixture
def system(request, backbone):
    """A function from a name and settings to a model and its reader of the module's documents."""

    def build(name, documents=None, chunking=None, seed=1, **settings):
        config = TrialConfig(
            model=Model(name, backbone=str(backbone.folder), **settings),
            chunking=chunking or request.module.CHUNKING,
            seed=seed,
        )
        model = build_model(config, backbone, init_seed=1).eval()
        texts = request.module.DOCUMENTS if documents is None else documents
        return model, model_class(name).reader(config, backbone, texts)

    return build
