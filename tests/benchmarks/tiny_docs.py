"""`tiny-docs`, the backbone that the package ships: two layers x 96, trained on the docstrings of
installed libraries, read from their sources, and on nothing that resembles a docstring of the
standard library, of which `python-docs` is made, in any version of Python.

    python -m tests.benchmarks.tiny_docs --to FOLDER

makes it again, given the libraries in the versions that its `recipe.json` names; on another
processor with other weights, because singular vectors have no sign of their own.
Its weights begin as a lexical matcher: query tokens look for their likes in the passage, and [CLS]
averages over the query tokens, by their rarity, how much of the passage they found.
"""

import argparse
import ast
import hashlib
import json
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from rank_core.data.made.stdlib_docstrings import DocstringPair, collect_pairs, pair_of
from rank_core.encoders.cls_only import only_cls
from rank_core.encoders.shipped import RANKING_HEAD
from rank_core.errors import BadInput
from rank_core.files import file_sha256
from rank_core.machine import settings_restored
from rank_core.progress import reported
from rank_core.seeding import generator
from rank_core.testing.tokenizer import SPECIAL, train_tokenizer

PACKAGES = (
    "numpy scipy pandas torch sklearn statsmodels networkx sympy matplotlib sqlalchemy ray mlflow "
    "optuna transformers aiohttp botocore fastapi pydantic flask werkzeug click jinja2 requests "
    "urllib3 IPython rich prompt_toolkit tornado traitlets jedi pygments lxml cryptography "
    "huggingface_hub fsspec PIL skops alembic psutil jupyter_client zmq narwhals joblib anyio "
    "docker git fontTools mypy mpmath moto"
).split()
RARITY, SEGMENT, FOUND, EVIDENCE, RESERVED = 0, 1, 2, 3, 4
"""Coordinates of the hidden state that the initial matcher uses, and their number."""

MAX_BODY_WORDS = 120
NEAR_DUPLICATE = 0.75  # share of the shorter body's distinct words, as within `python-docs`
SKIPPED = frozenset("tests test testing _vendor vendor externals third_party _distutils".split())
_WORD = re.compile(r"[a-z0-9_]+")

POSITIONS = 131  # a window of 96 beside 32 query and 3 special tokens

Ids = list[tuple[list[int], list[int]]]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class DocsRecipe:
    """The recipe of the shipped backbone."""

    version: int = 1
    packages: tuple[str, ...] = field(default=tuple(PACKAGES))
    vocabulary: int = 10_000
    hidden: int = 96
    layers: int = 2
    semantic: int = 48  # dimensions of latent semantic analysis in a token's embedding
    steps: int = 1500
    batch: int = 16
    hard: int = 1  # negatives of the same package that share the query's rarest tokens
    random: int = 2
    learning_rate: float = 1e-3
    warmup: int = 100
    decay: int = 900
    inverse_cloze_share: float = 0.3
    passage_tokens: int = 64
    seed: int = 1


RECIPE = DocsRecipe()


@dataclass(frozen=True)
class Corpus:
    """The pairs as token ids, with what is counted over them; N pairs, V tokens."""

    pairs: Ids
    packages: list[str]
    rarity_V: Floats
    in_summary_NV: Any  # sparse, 1 where a token occurs
    in_body_NV: Any


def make(
    folder: Path, recipe: DocsRecipe = RECIPE, pairs: Sequence[DocstringPair] | None = None
) -> None:
    """Trains the backbone and writes it, its tokenizer, its head and `recipe.json`. `pairs` are by
    default those of the recipe's packages."""
    pairs = library_pairs(recipe.packages) if pairs is None else pairs
    texts = [text for pair in pairs for text in (pair.summary, pair.body)]
    tokenizer = train_tokenizer(texts, recipe.vocabulary, stems=True)
    tokens = tokenizer(texts, add_special_tokens=False)["input_ids"]
    kept = [n for n in range(len(pairs)) if len(tokens[2 * n]) > 1 and len(tokens[2 * n + 1]) > 7]
    names = [pairs[n].name.partition(":")[0] for n in kept]
    corpus = counted([(tokens[2 * n], tokens[2 * n + 1]) for n in kept], names, len(tokenizer))
    with torch.random.fork_rng(devices=[]), settings_restored(threads=1):
        torch.manual_seed(recipe.seed)
        model = matched_bert(len(tokenizer), recipe)
        head = nn.Linear(recipe.hidden, 1)
        start_as_matcher(model, head, corpus, recipe)
        losses = _train(model, head, corpus, recipe)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    model.config.save_pretrained(folder)
    weights = {name: value.half().contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    save_file({n: v.half() for n, v in head.state_dict().items()}, folder / RANKING_HEAD)
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
    facts = {
        "recipe": asdict(recipe),
        "versions": _versions(recipe.packages),
        "pairs": len(corpus.pairs),
        "texts_sha256": digest,
        "first_losses": losses[:5],
        "last_loss": float(np.mean(losses[-100:])),
        "files_sha256": {p.name: file_sha256(p) for p in sorted(folder.glob("*.safetensors"))}
        | {"tokenizer.json": file_sha256(folder / "tokenizer.json")},
    }
    (folder / "recipe.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def library_pairs(
    packages: Sequence[str], known: Sequence[DocstringPair] | None = None
) -> list[DocstringPair]:
    """The pairs of the named packages in the order of their files, without repeated summaries or
    bodies and without pairs that resemble one of `known` (by default all of the standard library).
    Raises `BadInput` for a package that is not installed."""
    alike = _Resembling(collect_pairs() if known is None else known)
    seen: set[str] = set()
    pairs = []
    for package in packages:
        for name, docstring in _docstrings(package):
            pair = pair_of(docstring)
            if pair is None:
                continue
            body = " ".join(pair[1].split()[:MAX_BODY_WORDS])
            parts = {f"s {pair[0].lower()}", f"b {body.lower()}"}
            if not parts & seen and not alike(pair[0], body):
                pairs.append(DocstringPair(f"{package}: {name}", pair[0], body))
                seen |= parts
    return pairs


class _Resembling:
    """True if a pair has the summary of a known pair, or most of the words of its body."""

    def __init__(self, known: Sequence[DocstringPair]) -> None:
        self._summaries = {" ".join(_words(pair.summary)) for pair in known}
        bodies = [set(_words(" ".join(pair.body.split()[:MAX_BODY_WORDS]))) for pair in known]
        self._sizes = np.array([len(body) for body in bodies])
        with_word: defaultdict[str, list[int]] = defaultdict(list)
        for number, body in enumerate(bodies):
            for word in body:
                with_word[word].append(number)
        self._with_word = {word: np.array(numbers) for word, numbers in with_word.items()}

    def __call__(self, summary: str, body: str) -> bool:
        if " ".join(_words(summary)) in self._summaries:
            return True
        words = set(_words(body))
        shared = np.zeros(len(self._sizes))
        for word in words & self._with_word.keys():
            shared[self._with_word[word]] += 1
        return bool((shared >= NEAR_DUPLICATE * np.minimum(self._sizes, len(words))).any())


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _docstrings(package: str) -> Iterator[tuple[str, str]]:
    """(file and line, docstring) of every module, class and function, without importing any."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise BadInput(f"the package {package} is not installed, and its docstrings are trained on")
    root = Path(next(iter(spec.submodule_search_locations)))
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if SKIPPED & set(place.parts):
            continue
        try:
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError):
            continue  # a template, or a file of another Python
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                if text := ast.get_docstring(node):
                    yield f"{place}:{getattr(node, 'lineno', 1)}", text


def matched_bert(vocabulary: int, recipe: DocsRecipe) -> BertModel:
    """A random BERT of one head whose first layer attends to equal tokens from the start."""
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=recipe.hidden,
        num_hidden_layers=recipe.layers,
        num_attention_heads=1,
        intermediate_size=4 * recipe.hidden,
        max_position_embeddings=POSITIONS,
        initializer_range=0.05,
        # With dropout the matching never gets off the ground at this size: after 250 steps the
        # mean reciprocal rank among 16 held-out passages is .20 with .1 and .71 with none.
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertModel(config, add_pooling_layer=False)
    attention: Any = model.encoder.layer[0].attention.self
    with torch.no_grad():
        attention.query.weight.mul_(4.0)
        attention.key.weight.copy_(attention.query.weight)
        model.embeddings.position_embeddings.weight.mul_(0.1)
    return model


def counted(pairs: Ids, packages: list[str], vocabulary: int) -> Corpus:
    """The corpus with its counts."""
    from scipy import sparse

    def occurrence(side: int) -> Any:
        sets = [sorted(set(pair[side])) for pair in pairs]
        rows = np.repeat(np.arange(len(sets)), [len(own) for own in sets])
        shape = len(sets), vocabulary
        ones = np.ones(len(rows), np.float32)
        return sparse.csr_matrix((ones, (rows, np.concatenate(sets))), shape)

    bodies = occurrence(1)
    frequency_V = np.asarray(bodies.sum(0)).ravel()
    rarity_V = np.log1p(len(pairs) / (1 + frequency_V)).astype(np.float32)
    return Corpus(pairs, packages, rarity_V, occurrence(0), bodies)


def semantic_dimensions(corpus: Corpus, size: int) -> Floats:
    """Latent semantic analysis of the pairs (tf-idf, truncated SVD), V x size, as long as random
    embeddings of standard deviation 0.05."""
    from scipy import sparse
    from scipy.sparse.linalg import svds

    both = corpus.in_summary_NV + corpus.in_body_NV
    both.data[:] = 1
    weighted = both @ sparse.diags(corpus.rarity_V)
    length_N = np.sqrt(np.asarray(weighted.multiply(weighted).sum(1)).ravel())
    scaled = sparse.diags((1 / np.maximum(length_N, 1e-6)).astype(np.float32)) @ weighted
    _, strengths, right = svds(scaled.tocsr().astype(np.float32), k=size, random_state=1)
    token_VK = right.T * strengths
    length_V = np.linalg.norm(token_VK, axis=1, keepdims=True)
    return (token_VK / np.maximum(length_V, 1e-9) * size**0.5 * 0.05).astype(np.float32)


def start_as_matcher(model: Any, head: nn.Linear, corpus: Corpus, recipe: DocsRecipe) -> None:
    """Sets the weights of a random BERT of one head and two layers so that it matches from the
    start: without training its MaxP 48/32 has nDCG@10 .31 on dev and 100 train queries of
    python-docs (BM25 .33), where random weights need some thousand steps to begin."""
    width = recipe.hidden**0.5
    embeddings, (first, second) = model.embeddings, model.encoder.layer
    rarity_V = torch.from_numpy(corpus.rarity_V)
    rarity_V = (rarity_V - rarity_V.mean()) / rarity_V.std()
    rarity_V[: len(SPECIAL)] = rarity_V[len(SPECIAL) :].min()
    with torch.no_grad():
        words = embeddings.word_embeddings.weight
        semantic = semantic_dimensions(corpus, recipe.semantic)
        words[:, RESERVED : RESERVED + recipe.semantic] = torch.from_numpy(semantic)
        words[:, :RESERVED] = 0
        words[:, RARITY] = 0.1 * rarity_V
        embeddings.position_embeddings.weight[:, :RESERVED] = 0
        segments = embeddings.token_type_embeddings.weight
        segments.mul_(0.2)[:, :RESERVED] = 0
        segments[:, SEGMENT] = torch.tensor([-0.15, 0.15])
        for layer in (first, second):
            for output in (layer.output.dense, layer.attention.output.dense):
                output.weight.mul_(0.3)[:RESERVED] = 0
        # Equal tokens attend to each other, across segments rather than within one: a query token
        # attends to its like in the passage, or, where there is none, to itself.
        own = first.attention.self
        own.query.weight.normal_(0, 0.2)
        own.query.weight[:, :RESERVED] = 0
        own.query.weight[0] = 0
        own.key.weight.copy_(own.query.weight)
        own.query.weight[0, SEGMENT], own.key.weight[0, SEGMENT] = 1.0, -5 * width / 9
        own.value.weight[0] = 0
        own.value.weight[0, SEGMENT] = 1.0
        first.attention.output.dense.weight[FOUND, 0] = 0.7
        # [CLS] averages over the query's tokens, the rare ones first, what they attended to.
        own = second.attention.self
        own.query.weight.mul_(0.3)[0] = 0
        own.query.bias[0] = width
        own.key.weight.mul_(0.3)[0] = 0
        own.key.weight[0, RARITY], own.key.weight[0, SEGMENT] = 1.5, -2.0
        own.value.weight[0] = 0
        own.value.weight[0, FOUND] = 1.0
        second.attention.output.dense.weight[EVIDENCE, 0] = 1.0
        head.weight.mul_(0.1)[0, EVIDENCE] = 3.0


def hard_negatives(corpus: Corpus, count: int = 16) -> NDArray[np.int32]:
    """The pairs of the same package whose bodies BM25 ranks fourth and lower for each summary, N x
    count; the first three are often answers themselves."""
    from scipy import sparse

    length_N = np.asarray(corpus.in_body_NV.sum(1)).ravel()
    saturation_N = 1 / (1.2 * (0.25 + 0.75 * length_N / length_N.mean()) + 1)
    bodies = sparse.diags(saturation_N.astype(np.float32)) @ corpus.in_body_NV
    summaries = corpus.in_summary_NV @ sparse.diags(corpus.rarity_V)
    names = np.array(corpus.packages)
    negatives = np.zeros((len(names), count), np.int32)
    for name in dict.fromkeys(corpus.packages):
        own = np.flatnonzero(names == name)
        score = (summaries[own] @ bodies[own].T).toarray()
        np.fill_diagonal(score, -1)
        depth = min(count + 3, len(own) - 1)
        best = np.argsort(-score, axis=1, kind="stable")[:, min(3, depth - 1) : depth]
        negatives[own] = own[best[:, np.arange(count) % best.shape[1]]]
    return negatives


def _train(model: Any, head: nn.Linear, corpus: Corpus, recipe: DocsRecipe) -> list[float]:
    """The loss of every step: softmax of a summary's own body above those of others."""
    hard = hard_negatives(corpus)
    rng = generator(recipe.seed, "docstrings")
    only_cls(model)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()])
    losses = []
    model.train()
    for step in reported(range(recipe.steps), "training the shipped backbone, steps"):
        share = min(1, (step + 1) / recipe.warmup, (recipe.steps - step) / recipe.decay)
        optimizer.param_groups[0]["lr"] = recipe.learning_rate * share
        scores = head(model(**_batch(corpus.pairs, hard, rng, recipe)).last_hidden_state[:, 0])
        loss = _loss(scores.squeeze(-1), recipe.batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def _batch(
    pairs: Ids, hard: NDArray[np.int32], rng: np.random.Generator, recipe: DocsRecipe
) -> dict[str, torch.Tensor]:
    positives, negatives = [], []
    for n in rng.choice(len(pairs), recipe.batch, replace=False):
        query, passage = pairs[n][0], _cut(pairs[n][1], recipe.passage_tokens, rng)
        if rng.random() < recipe.inverse_cloze_share:
            size = min(int(rng.integers(3, 9)), len(passage))
            query = [passage[i] for i in np.sort(rng.choice(len(passage), size, replace=False))]
        others = [*rng.choice(hard[n], recipe.hard), *rng.integers(len(pairs), size=recipe.random)]
        positives.append((query[:24], passage))
        negatives += [(query[:24], _cut(pairs[i][1], recipe.passage_tokens, rng)) for i in others]
    return _layout(positives + negatives)


def _loss(scores: Tensor, num_queries: int) -> Tensor:
    """-log softmax of each query's positive; `scores` are theirs, then the negatives of each."""
    positive_N, negatives_NK = scores[:num_queries], scores[num_queries:].view(num_queries, -1)
    return nn.functional.softplus(negatives_NK.logsumexp(1) - positive_N).mean()


def _cut(passage: list[int], size: int, rng: np.random.Generator) -> list[int]:
    """A window of the passage at a random place."""
    start = int(rng.integers(0, max(1, len(passage) - size + 1)))
    return passage[start : start + size]


def _layout(rows: list[tuple[list[int], list[int]]]) -> dict[str, Tensor]:
    cls_id, sep_id = SPECIAL.index("[CLS]"), SPECIAL.index("[SEP]")
    longest = max(len(query) + len(text) + 3 for query, text in rows)
    ids = np.zeros((3, len(rows), longest), dtype=np.int64)  # tokens, mask, segments
    for row, (query, text) in enumerate(rows):
        tokens = [cls_id, *query, sep_id, *text, sep_id]
        ids[0, row, : len(tokens)] = tokens
        ids[1, row, : len(tokens)] = 1
        ids[2, row, len(query) + 2 : len(tokens)] = 1
    names = ("input_ids", "attention_mask", "token_type_ids")
    return {name: torch.from_numpy(array) for name, array in zip(names, ids, strict=True)}


def _versions(packages: Sequence[str]) -> dict[str, str]:
    distributions = packages_distributions()
    names = sorted({distributions[package][0] for package in packages})
    return {name: version(name) for name in names}


def main(argv: Sequence[str]) -> int:
    """Makes the backbone in the folder given; exit code 0."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.tiny_docs", allow_abbrev=False
    )
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    make(parser.parse_args(argv).to)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
