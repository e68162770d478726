"""Ties and ranks lost to products of 16 bits: MaxP over the candidates of test queries in fp32, in
bf16 with an fp32 [CLS] (padded rows on a CPU), and in bf16 throughout (a flat row of tokens; on a
CPU attention computes its rows one by one).

Documents of the same text tie in any precision. Run: python -m tests.benchmarks.ties
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from scipy.stats import kendalltau

from rank_core.chunking.batches import tokenize_queries
from rank_core.chunking.inputs import Inputs, load_inputs
from rank_core.encoders.backbones import load_tokenizer
from rank_core.models.build import build_model
from rank_core.ranking.encode import Work
from rank_core.ranking.rerank import rerank
from rank_core.records import Run
from rank_core.settings.config import TrialConfig
from tests.benchmarks.workload import print_table, save

WAYS = {  # products, flat rows
    "fp32": (None, False),
    "bf16, [CLS] fp32": (torch.bfloat16, False),
    "bf16, flat row": (torch.bfloat16, True),
}


def main(argv: Sequence[str]) -> None:
    """Scores and prints."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--collection", default="python-docs")
    flags.add_argument("--backbone", default="tiny")
    flags.add_argument("--queries", type=int, default=40)
    flags.add_argument("--window", type=int, default=96)
    flags.add_argument("--json", type=Path, help="write the figures here")
    options = flags.parse_args(argv)
    inputs = load_inputs(options.collection, options.backbone)
    settings = {
        "model.name": "maxp",
        "model.backbone": options.backbone,
        "chunking.window": options.window,
        "chunking.stride": options.window // 2,
    }
    config = TrialConfig().override(settings)
    runs = {way: scored(config, inputs, options.queries, *WAYS[way]) for way in WAYS}
    rows = [_row(way, *run, runs["fp32"][0]) for way, run in runs.items()]
    print(f"{sum(map(len, runs['fp32'][0].values()))} documents of {options.queries} queries")
    print_table(rows)
    save(options.json, {"rows": rows})


def scored(
    config: TrialConfig, inputs: Inputs, num_queries: int, dtype: torch.dtype | None, flat: bool
) -> tuple[Run, Work]:
    """The run of one way, and its ties."""
    model = build_model(config, inputs.backbone, init_seed=1)
    model.encoder.reads_flat_rows = flat  # type: ignore[assignment]
    split, work = inputs.collection.splits["test"], Work()
    query_ids = sorted(split.queries)[:num_queries]
    tokenizer = load_tokenizer(inputs.backbone.folder)
    texts = [split.queries[query_id] for query_id in query_ids]
    run = rerank(
        model,
        type(model).reader(config, inputs.backbone, inputs.tokens),
        queries=dict(zip(query_ids, tokenize_queries(tokenizer, texts, 32), strict=True)),
        candidates=split.candidates,
        depth=100,
        batch_tokens=4096,
        autocast=dtype,
        work=work,
    )
    return run, work


def _row(way: str, run: Run, work: Work, exact: Run) -> dict[str, str]:
    pairs = [(run[q][d], exact[q][d]) for q in exact for d in exact[q]]
    scores, expected = np.array(pairs).T
    taus = [kendalltau([run[q][d] for d in docs], [*docs.values()])[0] for q, docs in exact.items()]
    shared = [len({*list(run[q])[:10]} & {*list(exact[q])[:10]}) / 10 for q in exact]
    return {
        "products": way,
        "ties": str(work.ties),
        "mean score difference": f"{np.abs(scores - expected).mean():.1e}",
        "largest": f"{np.abs(scores - expected).max():.1e}",
        "score SD": f"{expected.std():.2f}",
        "Kendall's tau": f"{np.mean(taus):.4f}",
        "same top 10": f"{np.mean(shared):.1%}",
    }


if __name__ == "__main__":
    main(sys.argv[1:])
