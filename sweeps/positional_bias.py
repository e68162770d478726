"""Where in its documents is a collection relevant: at their start, or anywhere?

Paper: Boytsov et al. 2022, section 3.3.3 (passages matched in documents); Boytsov et al. 2025,
section 3 and appendix C.4 (first relevant position, chunks graded by a chat model); Li et al.,
KeyB, section 3.2 (scores of blocks by position).
Size: no training; seconds for some hundred documents, about a minute per 1,000 long ones; with
--judge-url one call for each chunk, whose number is printed first.
Expected: most relevant text of web collections starts within the first 512 tokens, so a model that
reads no more loses little; FarRelevant and python-docs are built the other way, and a debiased
collection is flat.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import sweeps  # noqa: F401 - first: Ctrl-C is quiet while the others are imported
from rank_core.data.load import load_collection
from rank_core.errors import BadInput
from rank_core.seeding import generator
from sweeps.plan.command_line import Parser, check_writable, heed_interrupts, run_command
from sweeps.positions.analysis import (
    Settings,
    analyse,
    known_passages,
    read_passages,
    relevant_pairs,
    split_of,
)
from sweeps.positions.judged_chunks import JudgedChunk, judge_chunks
from sweeps.positions.rsv import ChunkScorer, RelevantPair, word_chunks

SMOKE_PAIRS = 20
LIMITS = {
    **{"window": (1, 10**6), "bins": (1, 1000), "first": (1, 10**6), "max_pairs": (0, 10**9)},
    **{"judge_window": (1, 10**6), "judge_pairs": (1, 10**6), "least_grade": (1, 10**9)},
}
"""{flag: its least and its greatest value}"""


def main(argv: Sequence[str]) -> int:
    """Analyse a collection, print the path of the page, and return the exit code."""
    heed_interrupts()
    return run_command(lambda: _analyse(_parser().parse_args(argv)))


def _parser() -> Parser:
    parser = Parser("ranksweep run positional_bias", __doc__)
    add = parser.add_argument
    named = "a name, a folder or an expression such as 'python-docs|debias(splits=all)'"
    add("--collection", required=True, metavar="NAME|DIR", help=named)
    add("--split", default="", help="train, dev or test; default: the first of them")
    add("--passages", type=Path, metavar="FILE", help="JSON lines of {query_id, text}: relevant")
    add("--least-grade", type=int, default=1, help="of a relevant document (default: 1)")
    add("--max-pairs", type=int, default=1000, help="sampled relevant documents, 0: all")
    add("--seed", type=int, default=1, help="of the samples (default: 1)")
    add("--window", type=int, default=50, help="words of a chunk (default: 50)")
    add("--bins", type=int, default=10, help="parts of a document in plots (default: 10)")
    add("--first", type=int, default=512, help="words of a first window, marked in plots")
    add("--backbone", metavar="NAME|DIR", help="score chunks by this encoder's mean vectors too")
    add("--judge-url", metavar="URL", help="grade chunks by a chat model of this server")
    add("--judge-model", metavar="NAME", default="", help="the model's name on that server")
    add("--judge-key", metavar="VARIABLE", default="", help="environment variable with the key")
    add("--judge-pairs", type=int, default=50, help="relevant documents to grade (default: 50)")
    add("--judge-window", type=int, default=300, help="words of a graded chunk (default: 300)")
    add("--smoke-test", action="store_true", help=f"{SMOKE_PAIRS} relevant documents alone")
    add("--storage", metavar="DIR", default="results", help="of results (default: results)")
    add("--out", type=Path, metavar="DIR", help="default: STORAGE/positional_bias/COLLECTION-SPLIT")
    return parser


def _analyse(given: argparse.Namespace) -> int:
    for flag, (least, most) in LIMITS.items():
        if not least <= (value := getattr(given, flag)) <= most:
            law = f">= {least}" if value < least else f"<= {most}"
            raise BadInput(f"--{flag.replace('_', '-')} {law} must hold, got {value}")
    check_writable("--storage", given.out or Path(given.storage))
    collection = load_collection(given.collection)
    split = split_of(collection, given.split)
    pairs = relevant_pairs(
        collection,
        split,
        max_pairs=SMOKE_PAIRS if given.smoke_test else given.max_pairs,
        least_grade=given.least_grade,
        seed=given.seed,
    )
    passages = (
        read_passages(given.passages)
        if given.passages
        else known_passages(given.collection, collection, split)
    )
    if not passages:
        print("No relevant passages are known (--passages): scores by position only.")
    home = Path(given.storage) / "positional_bias"
    folder = given.out or home / _file_name(f"{collection.name}-{split}")
    settings = Settings(window=given.window, num_bins=given.bins, first=given.first)
    result = analyse(
        collection,
        split,
        pairs,
        settings,
        passages=passages,
        scorers=_scorers(given),
        judged=_judge(given, pairs, folder),
        facts={"judge": given.judge_model} if given.judge_url else {},
    )
    from sweeps.positions.page import write_analysis

    page = write_analysis(folder, result)
    for name, value in result.summary.items():
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        print(f"{name:<62} {shown:>10}")
    print(result.answer)
    print(f"Page: {page}")
    return 0


def _scorers(given: argparse.Namespace) -> dict[str, ChunkScorer]:
    if not given.backbone:
        return {}
    from rank_core.encoders.backbones import resolve_backbone
    from sweeps.positions.embeddings import cosine_scorer

    backbone = resolve_backbone(given.backbone)
    return {f"cosine, {backbone.name}": cosine_scorer(backbone)}


def _judge(
    given: argparse.Namespace, pairs: Sequence[RelevantPair], folder: Path
) -> list[JudgedChunk]:
    if not given.judge_url:
        return []
    from rank_core.llm.chat import AnswerCache, ChatClient, ChatModel, Ledger

    order = generator(given.seed, "judged-pairs").permutation(len(pairs))[: given.judge_pairs]
    chosen = [pairs[number] for number in sorted(order.tolist())]
    calls = sum(len(word_chunks(pair.text, given.judge_window)) for pair in chosen)
    model = ChatModel("openai", given.judge_url, given.judge_model, key_variable=given.judge_key)
    client = ChatClient(model, cache=AnswerCache(folder / "answers"))
    print(f"Grading {calls} chunks of {len(chosen)} documents with {model.model}.", flush=True)
    ledger = Ledger(folder / "judge.jsonl")
    return list(judge_chunks(chosen, chat=client, window=given.judge_window, ledger=ledger))


def _file_name(name: str) -> str:
    """The name in characters that are valid in every file system and shell."""
    return "".join(c if c.isalnum() or c in "-_.=," else "_" for c in name).strip("_")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
