"""Scoring speed on real text: ours, a plain padded loop, sentence-transformers, the papers' policy.

First (query, chunk) pairs, then MaxP over the whole documents of a query's candidates. All score
the same with the same weights, turn by turn in one process; ratios are of medians.
Run: python -m tests.benchmarks.scoring [--collection DIR] [--size minilm] [--json FILE]
"""

import hashlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification

from rank_core.chunking.batches import PairEncoder, tokenize_queries
from rank_core.chunking.token_store import open_token_store
from rank_core.encoders.backbone_types import Backbone, type_of
from rank_core.encoders.backbones import load_tokenizer
from rank_core.machine import trial_device
from rank_core.models.build import build_model
from rank_core.models.ranker import Ranker
from rank_core.ranking.encode import Work, score_documents
from rank_core.ranking.rerank import rerank
from rank_core.records import Run
from rank_core.settings.config import TrialConfig
from tests.benchmarks.papers_policy import padded_scores, untouched
from tests.benchmarks.workload import (
    Workload,
    encoder_flops,
    machine,
    parser,
    print_rates,
    print_table,
    save,
    shares,
    turns,
    workload,
)

QUERIES, DEPTH = {"cpu": 2, "cuda": 8}, {"cpu": 10, "cuda": 100}  # 34 k, 1.2 M tokens
WINDOW, STRIDE = 150, 75
CUT = {"chunking.window": WINDOW, "chunking.stride": STRIDE}
PLAIN_BATCH = 32
NUM_CANDIDATES = 100

Scores = NDArray[np.float32]
Peer = Callable[["Pairs"], Scores]


class Pairs:
    """Chunks of the candidates of a few test queries, each one a text and a document of its own."""

    def __init__(self, work: Workload, batch_tokens: int, num_queries: int, depth: int) -> None:
        split = work.collection.splits["test"]
        tokenizer = load_tokenizer(work.backbone.folder)
        cut = TrialConfig().override(CUT)
        whole = PairEncoder(work.tokens, cut.chunking, False, work.backbone)
        query_ids = sorted(split.queries)[:num_queries]
        self.texts: list[tuple[str, str]] = []
        self.candidates: Run = {query_id: {} for query_id in query_ids}
        documents: dict[str, str] = {}
        for query_id in query_ids:
            for doc_id in list(split.candidates[query_id])[:depth]:
                for chunk in whole.chunks(np.zeros(0, np.int32), doc_id):
                    text = tokenizer.decode(chunk.text.tolist())
                    name = f"c{len(documents):05}"
                    documents[name] = text
                    self.candidates[query_id][name] = 0.0
                    self.texts.append((split.queries[query_id], text))
        content = hashlib.sha256(repr(documents).encode()).hexdigest()
        tokens = open_token_store(documents, content_hash=content, tokenizer=tokenizer)
        whole_chunk = {"chunking.window": 477, "chunking.stride": 477}
        own = {"model.name": "firstp", "evaluation.batch_tokens": batch_tokens}
        self.config = cut.override(whole_chunk | own)
        self.encoder = PairEncoder(tokens, self.config.chunking, True, work.backbone)
        texts = [split.queries[query_id] for query_id in query_ids]
        self.queries = dict(zip(query_ids, tokenize_queries(tokenizer, texts, 32), strict=True))
        self.order = [(q, name) for q, names in self.candidates.items() for name in names]


def ours(model: Ranker, pairs: Pairs, autocast: torch.dtype | None, work: Work) -> Scores:
    """The product's own path."""
    run = rerank(
        model,
        pairs.encoder,
        queries=pairs.queries,
        candidates=pairs.candidates,
        depth=10**9,
        batch_tokens=pairs.config.evaluation.batch_tokens,
        autocast=autocast,
        work=work,
    )
    return np.array([run[query_id][name] for query_id, name in pairs.order], dtype=np.float32)


def plain(encoder: nn.Module, model: Ranker, pairs: Pairs, work: Work) -> Scores:
    """A loop over the pairs as they come, padded to the longest of each batch, in fp32, with the
    encoder as transformers loads it."""
    chunks = [pairs.encoder.chunks(pairs.queries[q], name)[0] for q, name in pairs.order]
    scores = []
    with torch.inference_mode():
        for first in range(0, len(chunks), PLAIN_BATCH):
            some = chunks[first : first + PLAIN_BATCH]
            work.add([len(chunk) for chunk in some])
            rows = pairs.encoder.layout(some).to(model.device)
            segments_CL = rows.token_type_ids_CL
            output = encoder(
                input_ids=rows.input_ids_CL,
                attention_mask=rows.attention_mask_CL,
                **({} if segments_CL is None else {"token_type_ids": segments_CL}),
            )
            scores.append(model.score(output.last_hidden_state[:, 0]))
    return torch.cat(scores).cpu().numpy()


class _FirstToken(nn.Module):
    """The [CLS] vector itself, so that the cross-encoder computes our function."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states[:, 0]


DEFAULTS = "CrossEncoder.predict"
PEERS: dict[str, tuple[Any, int]] = {  # dtype and batch
    DEFAULTS: ("auto", 32),
    f"{DEFAULTS} bf16, batch 512": (torch.bfloat16, 512),
    f"{DEFAULTS} bf16, batch 512, compiled": (torch.bfloat16, 512),
}
"""sentence-transformers as people run it. It pads the rows of rerankers: it unpads only where it
extracts features or fills masks."""


def cross_encoders(model: Ranker, work: Workload, names: Sequence[str]) -> dict[str, Peer]:
    """`CrossEncoder.predict` over our weights on the same device; none where sentence-transformers
    is missing."""
    try:
        from sentence_transformers import CrossEncoder
    except ImportError:
        return {}
    folder = write_cross_encoder(model, work.backbone)

    def peer(name: str) -> Peer:
        dtype, batch_size = PEERS[name]
        encoder = CrossEncoder(
            str(folder),
            device=str(trial_device()),
            activation_fn=nn.Identity(),
            model_kwargs={"dtype": dtype},
        )
        compute_ours(encoder)
        if "compiled" in name:
            encoder.model.compile(dynamic=True)

        def predict(pairs: Pairs) -> Scores:
            how = {"batch_size": batch_size, "show_progress_bar": False}
            return np.asarray(encoder.predict(pairs.texts, **how), dtype=np.float32)

        return predict

    return {name: peer(name) for name in names}


def write_cross_encoder(model: Ranker, backbone: Backbone) -> Path:
    """A folder of a CrossEncoder with the weights and the dropout of a FirstP."""
    folder = backbone.folder / "cross-encoder"
    config = AutoConfig.from_pretrained(backbone.folder, num_labels=1)
    for name in (*type_of(backbone.kind).dropouts, "classifier_dropout"):
        setattr(config, name, model.dropout.p)
    classifier = AutoModelForSequenceClassification.from_config(config)
    classifier.base_model.load_state_dict(model.encoder.state_dict(), strict=False)
    classifier.classifier.load_state_dict(model.head.state_dict())
    classifier.save_pretrained(folder)
    load_tokenizer(backbone.folder).save_pretrained(folder)
    return folder


def compute_ours(encoder: Any) -> None:
    """Makes a CrossEncoder compute the function of a FirstP: a linear layer over [CLS] alone."""
    classifier = encoder.model
    if classifier.config.model_type == "bert":
        classifier.bert.pooler = _FirstToken()
    else:  # ModernBERT's layer before the classifier, over the vector of [CLS]
        classifier.head = nn.Identity()


def main(argv: Sequence[str]) -> None:
    """Measures and prints."""
    device = trial_device().type
    add = (words := parser(__doc__ or "")).add_argument
    add("--queries", type=int, default=QUERIES[device])
    add("--depth", type=int, default=DEPTH[device])
    every = device == "cuda"
    add("--all-peers", action="store_true", default=every, help="on a GPU always")
    flags = words.parse_args(argv)
    torch.set_num_threads(flags.threads)
    work = workload(flags.collection, flags.size)
    print(machine())
    print_rates(flags.repeats)
    tables = {}
    peers = [*PEERS] if flags.all_peers else [DEFAULTS]
    of_pairs = partial(
        _of_pairs, Pairs(work, flags.batch_tokens, flags.queries, flags.depth), peers
    )
    for measure in (of_pairs, partial(_of_documents, flags.batch_tokens)):
        title, rows, seconds = measure(work, flags.repeats)
        print(f"\n{title}\n")
        print_table(rows)
        tables[title] = {"rows": rows, "seconds": seconds}
        save(flags.json, {"tables": tables})


Table = tuple[str, list[dict[str, str]], dict[str, list[float]]]


def _of_pairs(pairs: Pairs, peers: Sequence[str], work: Workload, repeats: int) -> Table:
    """(query, chunk) pairs, as a cross-encoder takes them."""
    config = pairs.config.override({"model.backbone": str(work.backbone.folder)})
    model = build_model(config, work.backbone, init_seed=0).to(trial_device()).eval()
    encoder = untouched(model, work.backbone).encoder
    counts = {name: Work() for name in ("ours fp32", "ours bf16", "plain fp32")}
    systems: dict[str, Callable[[], Scores]] = {
        "plain fp32": lambda: plain(encoder, model, pairs, counts["plain fp32"]),
        "ours fp32": lambda: ours(model, pairs, None, counts["ours fp32"]),
        "ours bf16": lambda: ours(model, pairs, torch.bfloat16, counts["ours bf16"]),
    }
    others = cross_encoders(model, work, peers)
    systems = {name: partial(peer, pairs) for name, peer in others.items()} | systems
    return _table(f"{len(pairs.order)} pairs", work, counts, repeats, systems, "plain fp32")


def _of_documents(batch_tokens: int, work: Workload, repeats: int) -> Table:
    """MaxP over all windows of a query's 100 candidates."""
    model_words = {"model.name": "maxp", "model.backbone": str(work.backbone.folder)}
    config = TrialConfig().override(model_words | CUT)
    model = build_model(config, work.backbone, init_seed=0).to(trial_device()).eval()
    slow = untouched(model, work.backbone)
    pairs = type(model).reader(config, work.backbone, work.tokens)
    split = work.collection.splits["test"]
    query_id = min(split.queries)
    doc_ids = list(split.candidates[query_id])[:NUM_CANDIDATES]
    tokenizer = load_tokenizer(work.backbone.folder)
    [query] = tokenize_queries(tokenizer, [split.queries[query_id]], 32)
    documents = [pairs.chunks(query, doc_id) for doc_id in doc_ids]
    counts = {name: Work() for name in ("ours fp32", "ours bf16")}

    def padded() -> Scores:
        texts = [work.tokens[doc_id] for doc_id in doc_ids]
        with torch.inference_mode():
            return padded_scores(slow, query, texts, config.chunking, work.backbone).cpu().numpy()

    def fast(autocast: torch.dtype | None, count: Work) -> Scores:
        with torch.inference_mode():
            score_B = score_documents(
                model, pairs, documents, batch_tokens=batch_tokens, autocast=autocast, work=count
            )
            return score_B.cpu().numpy()

    systems = {
        "padded plain loop fp32": padded,
        "ours fp32": lambda: fast(None, counts["ours fp32"]),
        "ours bf16": lambda: fast(torch.bfloat16, counts["ours bf16"]),
    }
    title = f"MaxP {WINDOW}/{STRIDE} over {len(doc_ids)} whole documents of a query"
    return _table(title, work, counts, repeats, systems, "ours fp32")


def _table(
    title: str,
    work: Workload,
    counts: dict[str, Work],
    repeats: int,
    systems: dict[str, Callable[[], Scores]],
    reference: str,
) -> Table:
    """A row per system; ratios to the first one, differences from the scores of `reference`."""
    scores = _first_scores(systems)
    systems = {name: systems[name] for name in scores}
    seconds, runs, count = turns(systems, repeats), repeats + 1, counts["ours fp32"]
    tokens = count.tokens / runs
    flops = encoder_flops(work, count.tokens, count.inputs) / runs
    base = median(next(iter(seconds.values())))
    rows = [
        {
            "system": name,
            "real tokens/s": f"{tokens / median(times):,.0f}",
            "ratio": f"{base / median(times):.2f}",
            **shares(flops / median(times), _dtype(name), repeats),
            "largest score difference": f"{np.abs(scores[name] - scores[reference]).max():.1e}",
            "padding": f"{counts[name].padding_share:.1%}" if name in counts else "",
        }
        for name, times in seconds.items()
    ]
    mean = f"{count.tokens / count.inputs:.0f}"
    return f"{title}, mean {mean} tokens", rows, seconds


def _first_scores(systems: dict[str, Callable[[], Scores]]) -> dict[str, Scores]:
    """The scores of each system, after which it is warm; without peers that fail."""
    scores = {}
    for name, system in systems.items():
        try:
            scores[name] = system()
        except Exception as error:  # of libraries that are not ours
            if DEFAULTS not in name:
                raise
            print(f"{name} is not measured: {type(error).__name__}: {error}")
    return scores


def _dtype(name: str) -> torch.dtype:
    return torch.bfloat16 if "bf16" in name else torch.float32


if __name__ == "__main__":
    main(sys.argv[1:])
