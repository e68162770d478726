"""The dev and test runs that a trained model is evaluated by.

Birch alone interpolates its scores with those of the first stage (Yilmaz et al. 2019):
alpha S_doc + (1 - alpha) (S_1 + beta S_2 + gamma S_3), where S_doc is the first stage's score of
the document and S_i is the relevance of its i-th best sentence. `interpolated_runs` does all of it
after training: `best_sentences`, `tune_interpolation` on dev, then `interpolate` on each split.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rank_core.chunking.batches import PairEncoder
from rank_core.models.kept_files import SELECTED_BLOCKS
from rank_core.models.passage_scores import Birch
from rank_core.models.ranker import pad_chunks
from rank_core.ranking.encode import How, Work, encode_chunks
from rank_core.ranking.interpolation import ALPHAS, chosen_on_dev
from rank_core.ranking.rerank import ordered
from rank_core.ranking.scorer import Scorer, require_finite
from rank_core.ranking.selected_blocks import selected_blocks
from rank_core.records import EVALUATED, Qrels, Run


@dataclass(frozen=True)
class FinalRuns:
    """The dev and test runs that a model is evaluated by, and facts about them."""

    runs: dict[str, Run]
    notes: Mapping[str, Any] = field(default_factory=dict)  # {file name: its content as JSON}


BestSentences = dict[str, dict[str, tuple[float, ...]]]
"""{query_id: {doc_id: relevance of its best sentences, in descending order, padded with 0}}."""


@dataclass(frozen=True)
class Interpolation:
    """The weights of the first stage and of the second and third best sentences."""

    alpha: float
    beta: float
    gamma: float


def interpolated_runs(scorer: Scorer) -> FinalRuns:
    """The interpolated dev and test runs, with weights tuned on dev, which are kept in
    `interpolation.json`."""
    model, evaluation = scorer.model, scorer.config.evaluation
    assert isinstance(model, Birch)
    splits = {name: scorer.inputs.collection.splits[name] for name in EVALUATED}
    best = {}
    for name in splits:
        sentences = best_sentences(
            model,
            scorer.pairs,
            queries=scorer.own_queries(name),
            candidates=splits[name].candidates,
            depth=evaluation.depth,
            batch_tokens=scorer.batch_tokens,
            autocast=scorer.autocast,
            work=scorer.work,
        )
        best[name], own_test = scorer.gathered(name, sentences), sentences
    dev, test = splits["dev"], splits["test"]
    weights = tune_interpolation(best["dev"], dev.candidates, dev.qrels, evaluation.measures[0])
    for query_id, documents in own_test.items():
        scorer.work.add_ties(_scores(documents, test.candidates[query_id], weights).values())
    runs = {
        name: require_finite(interpolate(best[name], split.candidates, weights))
        for name, split in splits.items()
    }
    return FinalRuns(runs, {"interpolation.json": asdict(weights)})


def best_sentences(
    model: Birch,
    pairs: PairEncoder,
    *,
    queries: Mapping[str, NDArray[np.int32]],
    candidates: Run,
    depth: int,
    batch_tokens: int,
    autocast: torch.dtype | None = None,
    work: Work | None = None,
) -> BestSentences:
    """The relevance of the best sentences of each query's first `depth` candidates."""
    how = How(batch_tokens, autocast, Work() if work is None else work)
    best: BestSentences = {}
    model.eval()
    with torch.inference_mode():
        for query_id, query in queries.items():
            doc_ids = list(candidates.get(query_id, ()))[:depth]
            documents = [pairs.chunks(query, doc_id) for doc_id in doc_ids]
            best[query_id] = {}
            if documents:
                chunks = [chunk for document in documents for chunk in document]
                x_CH = encode_chunks(model, pairs, chunks, how)
                best_BK = model.best(*pad_chunks(x_CH, [len(document) for document in documents]))
                best[query_id] = dict(zip(doc_ids, map(tuple, best_BK.tolist()), strict=True))
    return best


def interpolate(best: BestSentences, candidates: Run, weights: Interpolation) -> Run:
    """The documents of `best` ranked by interpolated score; ties are broken by doc_id."""
    return {
        query_id: ordered(_scores(documents, candidates[query_id], weights))
        for query_id, documents in best.items()
    }


def _scores(
    documents: Mapping[str, tuple[float, ...]],
    first_stage: Mapping[str, float],
    weights: Interpolation,
) -> dict[str, float]:
    of_sentence = (1.0, weights.beta, weights.gamma)
    return {
        doc_id: weights.alpha * first_stage[doc_id]
        + (1 - weights.alpha) * sum(map(float.__mul__, of_sentence, relevance))
        for doc_id, relevance in documents.items()
    }


def tune_interpolation(
    best: BestSentences, candidates: Run, qrels: Qrels, measure: str
) -> Interpolation:
    """The weights in {0, .1, .., 1}^3 with the best mean `measure`; among equals the first, with
    the smallest alpha. 1211 distinct points are evaluated."""
    judged = {query_id: qrels[query_id] for query_id in best if query_id in qrels}
    every = (Interpolation(*point) for point in product(ALPHAS, repeat=3))
    # With alpha 1, beta and gamma have no effect.
    distinct = (point for point in every if point.alpha < 1 or point.beta == point.gamma == 0)
    return chosen_on_dev(
        distinct, lambda weights: interpolate(best, candidates, weights), judged, measure
    )


def final_runs(scorer: Scorer, dev_run: Run | None) -> FinalRuns:
    """The final runs of the scorer's model; `dev_run` is the best checkpoint's run on dev, None
    without a dev split."""
    if not scorer.model.by_score_alone:
        return interpolated_runs(scorer)
    dev = {} if dev_run is None else {"dev": dev_run}
    final = FinalRuns(dev | {"test": scorer.run("test")})
    config = scorer.config
    if config.evaluation.keep_selected_blocks and scorer.model.selects_blocks(config.model):
        return replace(final, notes={SELECTED_BLOCKS: selected_blocks(scorer)})
    return final
