"""Serving on this processor: torch, OpenVINO in three precisions, a tuned CrossEncoder.

Every system ranks the candidates of the same queries by the first window, query by query in turn,
texts to scores. Printed are tokens per second, the median and the 95th percentile of a query, the
largest difference of a score from torch's in fp32, and whether nDCG@10 is equivalent to that of
torch in fp32: its difference over the queries, the 95% interval, and the p of two one-sided tests.
Run: python -m tests.benchmarks.runtimes [--backbone FOLDER] [--queries 20] [--threads 1]
"""

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import numpy as np
import torch

from rank_core.chunking.batches import tokenize_queries
from rank_core.chunking.inputs import load_inputs
from rank_core.encoders.backbones import load_tokenizer, resolve_backbone
from rank_core.encoders.cpu_layers import has_kernels
from rank_core.evaluate import per_query
from rank_core.export.folder import ExportedModel
from rank_core.export.reranker import Reranker
from rank_core.machine import autocast_type
from rank_core.models.build import build_model, drawn_weights
from rank_core.models.runtimes import use_runtime
from rank_core.ranking.scorer import evaluated_queries
from rank_core.records import Run
from rank_core.settings.config import TrialConfig
from rank_core.stats.scopes import confidence_interval, equivalence_p, scope_test
from tests.benchmarks.scoring import DEFAULTS, cross_encoders
from tests.benchmarks.workload import Workload, parser, show, turns, workload

REFERENCE, MEASURE = "torch fp32", "nDCG@10"
OPENVINO = ("fp32", "bf16", "int8")
TORCH = {"fp32": "fp32", "bf16": "bf16", "int8": "fp32"}
"""{precision of the encoder: that of what torch computes}."""
TUNED = f"{DEFAULTS} bf16, batch 512"

Rank = Callable[[str], dict[str, float]]
"""The scores of a query's candidates."""


class Served:
    """Queries, their candidates and texts, and the model that ranks them."""

    def __init__(
        self, collection: str, work: Workload, backbone: str, num_queries: int, depth: int
    ) -> None:
        self.work, self.backbone = work, resolve_backbone(backbone)
        settings = {"model.name": "firstp", "model.backbone": backbone, "evaluation.depth": depth}
        settings |= {"training.num_epochs": 0, "evaluation.max_test_queries": num_queries}
        longest = self.backbone.max_window(32)
        settings |= dict.fromkeys(("chunking.window", "chunking.stride"), min(150, longest))
        self.config = TrialConfig().override(settings | {"training.precision": "fp32"})
        self.inputs = load_inputs(collection, backbone)
        self.split = self.inputs.collection.splits["test"]
        names = evaluated_queries(self.inputs.collection, "test", self.config.evaluation)
        self.query_ids = [name for name in names if self.split.candidates.get(name)]
        self.lists: Run = {
            name: dict(list(self.split.candidates[name].items())[:depth]) for name in self.query_ids
        }

    def reranker(self, precision: str, runtime: str = "torch") -> Reranker:
        """The model, computed so."""
        config = self.config.override(
            {"training.precision": precision, "evaluation.runtime": runtime}
        )
        model = build_model(self.config, self.backbone, init_seed=0).eval()
        if runtime == "openvino":
            autocast = autocast_type(precision, model.device)
            use_runtime(model, config, self.backbone, autocast, inputs=self.inputs)
        # The graph is in the model already: the reranker converts nothing itself.
        return Reranker(ExportedModel(model, self.config, self.backbone), "cpu", TORCH[precision])

    def rank(self, reranker: Reranker, query_id: str) -> dict[str, float]:
        """The scores of a query's candidates."""
        queries, documents = self.split.queries, self.inputs.collection.documents
        ranked = reranker.rerank({query_id: self.lists[query_id]}, queries, documents)
        return dict(ranked[query_id])

    def texts(self, query_id: str) -> list[tuple[str, str]]:
        """(query, first window) of every candidate, as texts."""
        tokenizer, limits = load_tokenizer(self.backbone.folder), self.config.chunking
        found = []
        [query] = tokenize_queries(tokenizer, [self.split.queries[query_id]], 32)
        for doc_id in self.lists[query_id]:
            window = self.inputs.tokens[doc_id][: limits.window].tolist()
            found.append((tokenizer.decode(query), tokenizer.decode(window)))
        return found

    def tokens(self) -> int:
        """Encoder tokens of all queries."""
        reranker = self.reranker("fp32")
        for query_id in self.query_ids:
            self.rank(reranker, query_id)
        return reranker._tokens


def systems(served: Served) -> dict[str, Rank]:
    """Every way to compute the scores that this machine has, the reference first."""
    found: dict[str, Rank] = {
        name: partial(served.rank, served.reranker(name.removeprefix("torch ")))
        for name in (REFERENCE, "torch bf16")
    }
    for precision in OPENVINO if find_spec("openvino") else ():
        if precision != "bf16" or has_kernels(torch.bfloat16):
            reranker = served.reranker(precision, "openvino")
            found[f"OpenVINO {precision}"] = partial(served.rank, reranker)
    return found | _tuned(served)


def _tuned(served: Served) -> dict[str, Rank]:
    """The model as a CrossEncoder of sentence-transformers, where it is installed and the model is
    a BERT with a linear head."""
    if served.backbone.kind != "bert" or served.backbone.trained_head:
        return {}
    model = build_model(served.config, served.backbone, init_seed=0).eval()
    with tempfile.TemporaryDirectory() as folder:
        for path in served.backbone.folder.iterdir():
            if path.is_file():
                shutil.copy(path, Path(folder, path.name))
        beside = Workload(served.work.collection, resolve_backbone(folder), served.work.tokens)
        peers = cross_encoders(model, beside, [TUNED])

    class Texts:
        def __init__(self, texts: list[tuple[str, str]]) -> None:
            self.texts = texts

    def rank(query_id: str) -> dict[str, float]:
        scores = peers[TUNED](Texts(served.texts(query_id)))  # type: ignore[arg-type]
        return dict(zip(served.lists[query_id], map(float, scores), strict=True))

    return {TUNED: rank} if peers else {}


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    add = (words := parser(__doc__ or "")).add_argument
    add("--backbone", default="", help="a reranker's folder (default: random weights of --size)")
    add("--queries", type=int, default=20)
    add("--depth", type=int, default=100)
    add("--margin", type=float, default=0.01, help="of equivalent nDCG@10")
    add("--only", default="", help="systems whose name contains this, beside the reference")
    flags = words.parse_args(argv)
    torch.set_num_threads(flags.threads)
    work = workload(flags.collection, flags.size)
    backbone = flags.backbone or str(work.backbone.folder)
    served = Served(flags.collection, work, backbone, flags.queries, flags.depth)
    ranks = {n: r for n, r in systems(served).items() if n == REFERENCE or flags.only in n}
    tokens = served.tokens()
    runs: dict[str, Run] = {name: {} for name in ranks}
    seconds: dict[str, list[float]] = {name: [] for name in ranks}
    for rank in ranks.values():  # a warm-up
        rank(served.query_ids[0])
    for query_id in served.query_ids:

        def score(name: str, query_id: str = query_id) -> None:
            runs[name][query_id] = ranks[name](query_id)

        for name, times in turns({n: partial(score, n) for n in ranks}, flags.repeats).items():
            seconds[name].append(median(times))
    trained = not drawn_weights(served.config.model, served.backbone)
    rows = [_row(served, name, runs, seconds, tokens, flags.margin, trained) for name in ranks]
    print(f"{len(served.query_ids)} queries of {flags.depth} candidates, {tokens:,} tokens\n")
    show(rows, flags.json, seconds=seconds, tokens=tokens)


def _row(
    served: Served,
    name: str,
    runs: dict[str, Run],
    seconds: dict[str, list[float]],
    tokens: int,
    margin: float,
    trained: bool,
) -> dict[str, str]:
    own, ms = seconds[name], 1000 * np.asarray(seconds[name])
    differences = [
        abs(score - runs[REFERENCE][query_id][doc_id])
        for query_id, scores in runs[name].items()
        for doc_id, score in scores.items()
    ]
    row = {
        "system": name,
        "tokens/s": f"{tokens / sum(own):,.0f}",
        "ratio": f"{median(r / t for r, t in zip(seconds[REFERENCE], own, strict=True)):.2f}",
        "p50 ms": f"{np.percentile(ms, 50):,.0f}",
        "p95 ms": f"{np.percentile(ms, 95):,.0f}",
        "largest difference": f"{max(differences):.1e}",
    }
    return row | (_equivalence(served, runs, name, margin) if trained else {})


def _equivalence(served: Served, runs: dict[str, Run], name: str, margin: float) -> dict[str, str]:
    """nDCG@10 beside the reference's over the queries, tested."""
    qrels = {query_id: served.split.qrels[query_id] for query_id in served.query_ids}
    own, reference = (
        per_query(qrels, runs[one], (MEASURE,)).sort_values("query_id")["value"].to_numpy()[None]
        for one in (name, REFERENCE)
    )
    test = scope_test(own, reference, deterministic=(True, True))
    if not np.any(own != reference):
        return {MEASURE: f"{own.mean():.4f}", "difference": "none", "equivalent": "the same"}
    low, high = confidence_interval(test, scope="queries")
    p = equivalence_p(test, margin=margin)
    verdict = "yes" if p < 0.05 else "not shown"
    return {
        MEASURE: f"{own.mean():.4f}",
        "difference": f"{test.delta:+.4f} [{low:+.4f}, {high:+.4f}]",
        "equivalent": f"{verdict} (within {margin:g}: p {p:.3f})",
    }


if __name__ == "__main__":
    main(sys.argv[1:])
