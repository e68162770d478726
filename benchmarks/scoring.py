"""Scoring speed on real (query, chunk) pairs: ours, a plain padded loop, sentence-transformers.

All score the same pairs with the same weights, turn by turn in one process; ratios are of medians.
Run: python -m benchmarks.scoring [--collection DIR] [--size minilm] [--json FILE]
"""

import hashlib
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, BertModel

from benchmarks.workload import Workload, machine, median, parser, print_table, save, workload
from rank_core.backbones import load_tokenizer
from rank_core.batches import PairEncoder, tokenize_queries
from rank_core.config import TrialConfig
from rank_core.data.collection import Run
from rank_core.encode import Work
from rank_core.models import Ranker, build_model
from rank_core.rerank import rerank
from rank_core.token_store import open_token_store

NUM_QUERIES, DEPTH = 2, 10
WINDOW, STRIDE = 150, 75
PLAIN_BATCH = 32

Scores = NDArray[np.float32]


class Pairs:
    """Chunks of the candidates of a few test queries, each one a text and a document of its own."""

    def __init__(self, work: Workload, batch_tokens: int) -> None:
        split = work.collection.splits["test"]
        tokenizer = load_tokenizer(work.backbone.folder)
        cut = TrialConfig().override({"chunking.window": WINDOW, "chunking.stride": STRIDE})
        whole = PairEncoder(work.tokens, cut.chunking, False, work.backbone)
        query_ids = sorted(split.queries)[:NUM_QUERIES]
        self.texts: list[tuple[str, str]] = []
        self.candidates: Run = {query_id: {} for query_id in query_ids}
        documents: dict[str, str] = {}
        for query_id in query_ids:
            for doc_id in list(split.candidates[query_id])[:DEPTH]:
                for chunk in whole.chunks(np.zeros(0, np.int32), doc_id):
                    text = tokenizer.decode(chunk.text.tolist())
                    name = f"c{len(documents):05}"
                    documents[name] = text
                    self.candidates[query_id][name] = 0.0
                    self.texts.append((split.queries[query_id], text))
        content = hashlib.sha256(repr(documents).encode()).hexdigest()
        tokens = open_token_store(documents, content_hash=content, tokenizer=tokenizer)
        self.config = cut.override(
            {
                "model.name": "firstp",
                "chunking.window": 477,
                "chunking.stride": 477,
                "evaluation.batch_tokens": batch_tokens,
            }
        )
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
            ids, mask, types, _ = pairs.encoder.layout(some)
            output = encoder(input_ids=ids, attention_mask=mask, token_type_ids=types)
            scores.append(model.score(output.last_hidden_state[:, 0]))
    return torch.cat(scores).numpy()


class _FirstToken(nn.Module):
    """The [CLS] vector itself, so that the cross-encoder computes our function."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states[:, 0]


def cross_encoder(model: Ranker, work: Workload) -> Callable[[Pairs], Scores] | None:
    """`CrossEncoder.predict` over our weights; None where sentence-transformers is missing."""
    try:
        from sentence_transformers import CrossEncoder
    except ImportError:
        return None
    folder = work.backbone.folder / "cross-encoder"
    config = BertConfig.from_pretrained(work.backbone.folder, num_labels=1)
    classifier = BertForSequenceClassification(config)
    classifier.bert.load_state_dict(model.encoder.state_dict(), strict=False)
    classifier.classifier.load_state_dict(model.head.state_dict())
    classifier.save_pretrained(folder)
    load_tokenizer(work.backbone.folder).save_pretrained(folder)
    encoder = CrossEncoder(str(folder), device="cpu", activation_fn=nn.Identity())
    for module in encoder.modules():
        if isinstance(module, BertForSequenceClassification):
            module.bert.pooler = _FirstToken()

    def predict(pairs: Pairs) -> Scores:
        return np.asarray(encoder.predict(pairs.texts, show_progress_bar=False))

    return predict


def main() -> None:
    """Measures and prints."""
    flags = parser(__doc__ or "").parse_args()
    torch.set_num_threads(flags.threads)
    work = workload(flags.collection, flags.size)
    pairs = Pairs(work, flags.batch_tokens)
    config = pairs.config.override({"model.backbone": str(work.backbone.folder)})
    model = build_model(config, work.backbone, init_seed=0).eval()
    untouched = BertModel.from_pretrained(work.backbone.folder, add_pooling_layer=False).eval()
    counts = {name: Work() for name in ("ours fp32", "ours bf16", "plain fp32")}
    systems: dict[str, Callable[[], Scores]] = {
        "plain fp32": lambda: plain(untouched, model, pairs, counts["plain fp32"]),
        "ours fp32": lambda: ours(model, pairs, None, counts["ours fp32"]),
        "ours bf16": lambda: ours(model, pairs, torch.bfloat16, counts["ours bf16"]),
    }
    peer = cross_encoder(model, work)
    if peer is not None:
        systems["CrossEncoder.predict"] = lambda: peer(pairs)
    scores = {name: system() for name, system in systems.items()}  # and a warm-up
    padding = {name: 1 - w.tokens / w.padded_tokens for name, w in counts.items()}
    num_tokens = counts["ours fp32"].tokens
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(flags.repeats):
        for name, system in systems.items():
            start = time.perf_counter()
            system()
            seconds[name].append(time.perf_counter() - start)
    base = median(seconds.get("CrossEncoder.predict", seconds["plain fp32"]))
    rows = [
        {
            "system": name,
            "tokens/s": f"{num_tokens / median(times):,.0f}",
            "ratio": f"{base / median(times):.2f}",
            "padding": f"{padding[name]:.1%}" if name in padding else "",
            "largest score difference": f"{np.abs(scores[name] - scores['plain fp32']).max():.1e}",
        }
        for name, times in seconds.items()
    ]
    print(f"{len(pairs.order)} pairs, mean {num_tokens / len(pairs.order):.0f} tokens; {machine()}")
    print_table(rows)
    save(flags.json, {"rows": rows, "seconds": seconds})


if __name__ == "__main__":
    main()
