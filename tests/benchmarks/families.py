"""Published families of rerankers and embedding models: a small model of each with random weights,
saved by its own library, its scores here, and those of that library.

    python -m tests.benchmarks.families [--json FILE]

Pairs are scored by sentence-transformers' `CrossEncoder`, vectors by its `SentenceTransformer` and
its `MultiVectorEncoder`, one text at a time: in batches some kinds of encoder read their padding.
"""

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers import AutoTokenizer

from rank_core.encoders.backbones import resolve_backbone
from rank_core.errors import BadInput
from rank_core.export.folder import ExportedModel
from rank_core.export.reranker import Reranker
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.models.embedding_model import EmbeddingModel
from rank_core.settings.config import TrialConfig
from tests.benchmarks.kinds import write_classifier, write_encoder
from tests.benchmarks.workload import print_table, save
from tests.rank_core.encoders import test_decoder_rerankers as decoders
from tests.rank_core.encoders.test_module_chain import write_chain
from tests.rank_core.models import test_late_interaction as multi_vector

QUERIES = ("w1 w2 w3", "w4", "w40 w41 w2 w5 w6")
TEXTS = tuple(" ".join(f"w{(7 * i + 3 * j) % 48}" for j in range(3 + i % 9)) for i in range(12))
LENGTHS = {"maxp": (46, 20), "late-interaction": (11, 5)}
"""Tokens that hold every text, and every query."""
E5 = {"query": "w30 w31 ", "document": "w32 "}
ASKED = {"query": "w8 w9 "}
Scores = NDArray[np.float64]


class Family(NamedTuple):
    """Published models of one form."""

    name: str
    write: Callable[[Path], str]  # writes a small one; returns its folder
    scores: Callable[[str], tuple[Scores, Scores]]  # s_QN here and by its library


class Found(NamedTuple):
    """A family's scores, compared."""

    family: str
    refused: str = ""
    difference: float = 0.0  # the largest, of a score
    reordered: int = 0  # queries with another order of their documents


def ranked_here(folder: str, model: str) -> Scores:
    """s_QN by a ranker over a published folder, as `--backbone FOLDER` reads it."""
    settings = {"model.name": model, "model.backbone": folder, "training.num_epochs": 0}
    window, query = LENGTHS[model]
    settings |= {"chunking.window": window, "chunking.stride": window}
    settings |= {"chunking.max_query_tokens": query}
    config = TrialConfig().override(settings)
    backbone = resolve_backbone(folder)
    check_model(config, backbone)
    built = build_model(config, backbone, init_seed=1).eval()
    backbone = built.backbone_of(config.model, backbone)
    reranker = Reranker(ExportedModel(built, config, backbone), "cpu", "fp32")
    each = (dict(reranker.rank(query, list(TEXTS))) for query in QUERIES)
    return np.array([[ranked[i] for i in range(len(TEXTS))] for ranked in each])


def of_pairs(folder: str) -> tuple[Scores, Scores]:
    """Scores of a cross-encoder."""
    from sentence_transformers import CrossEncoder

    theirs = CrossEncoder(folder, activation_fn=torch.nn.Identity(), device="cpu")
    score_QN = [[float(theirs.predict([(q, text)])[0]) for text in TEXTS] for q in QUERIES]
    return ranked_here(folder, "maxp"), np.array(score_QN)


def of_vectors(folder: str) -> tuple[Scores, Scores]:
    """Similarities of an embedding model's vectors."""
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(folder, device="cpu", local_files_only=True)
    queries = [theirs.encode_query([query])[0] for query in QUERIES]
    texts = [theirs.encode_document([text])[0] for text in TEXTS]
    ours = EmbeddingModel.load(folder, device="cpu")
    here = ours.scores(ours.encode_queries(QUERIES), ours.encode_documents(TEXTS))
    return np.asarray(here), theirs.similarity(np.array(queries), np.array(texts)).numpy()


def of_token_vectors(folder: str) -> tuple[Scores, Scores]:
    """MaxSim of late interaction."""
    from sentence_transformers import MultiVectorEncoder

    theirs = MultiVectorEncoder(folder, device="cpu", local_files_only=True)
    vectors = theirs.encode_query([*QUERIES]), theirs.encode_document([*TEXTS])
    return ranked_here(folder, "late-interaction"), theirs.similarity(*vectors).numpy()


def cross_encoder(folder: Path, write: Callable[[Path], object]) -> str:
    """A cross-encoder, loaded and saved by sentence-transformers."""
    from sentence_transformers import CrossEncoder

    write(folder / "made")
    loaded = CrossEncoder(str(folder / "made"), device="cpu")
    loaded.save(str(folder / "model"), create_model_card=False)
    return str(folder / "model")


def classifier(folder: Path, *, kind: str) -> str:
    """A classifier with one label."""
    return cross_encoder(folder, partial(write_classifier, kind))


def logit_score(folder: Path, *, kind: str, false: int | None = decoders.NO) -> str:
    """A decoder that answers yes or no."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    made = decoders.publish(kind, folder / "made", false=false)
    tokenizer = AutoTokenizer.from_pretrained(made)
    tokenizer.pad_token = "<pad>"
    tokenizer.save_pretrained(made)
    modules: list[Any] = [Transformer(made, transformer_task="text-generation")]
    modules.append(LogitScore(decoders.YES, false))
    model = CrossEncoder(modules=modules, device="cpu")
    model.save(str(folder / "model"), create_model_card=False)
    return str(folder / "model")


def chain(folder: Path, *, kind: str) -> str:
    """An encoder with modules behind it."""
    return cross_encoder(folder, partial(write_chain, kind))


def embedding_model(
    folder: Path,
    *,
    kind: str,
    pooling: str = "mean",
    dense: Sequence[tuple[int, torch.nn.Module]] = (),
    normalize: bool = True,
    **facts: Any,
) -> str:
    """An encoder, a pooling, and what lies behind it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    write_encoder(kind, folder / "encoder")
    torch.manual_seed(4)
    modules: list[Any] = [Transformer(str(folder / "encoder"))]
    modules.append(Pooling(16, pooling))
    width = 16
    for size, activation in dense:
        modules.append(Dense(width, size, activation_function=activation))
        width = size
    modules += [Normalize()] * normalize
    made = SentenceTransformer(modules=modules, device="cpu", **facts)
    made.save(str(folder / "model"), create_model_card=False)
    return str(folder / "model")


def adapted(folder: Path, *, kind: str) -> str:
    """An embedding model with LoRA adapters, which peft saves without the encoder."""
    from peft import LoraConfig, TaskType
    from sentence_transformers import SentenceTransformer

    base = embedding_model(folder / "base", kind=kind)
    made = SentenceTransformer(base, device="cpu", local_files_only=True)
    targets = ["query", "value"]
    task = TaskType.FEATURE_EXTRACTION
    made.add_adapter(LoraConfig(task, r=2, target_modules=targets, init_lora_weights=False))
    made.save(str(folder / "model"), create_model_card=False)
    return str(folder / "model")


def static(folder: Path, *, normalize: bool) -> str:
    """A table of token vectors without an encoder."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    write_encoder("bert", folder / "encoder")
    torch.manual_seed(4)
    tokenizer = AutoTokenizer.from_pretrained(folder / "encoder").backend_tokenizer
    modules: list[Any] = [StaticEmbedding(tokenizer, embedding_dim=16)]
    modules += [Normalize()] * normalize
    made = SentenceTransformer(modules=modules, device="cpu")
    made.save(str(folder / "model"), create_model_card=False)
    return str(folder / "model")


def colbert(folder: Path, *, kind: str, **form: Any) -> str:
    """A model of late interaction of sentence-transformers."""
    import sentence_transformers

    return multi_vector.saved(sentence_transformers, folder, kind, **form)


def pylate(folder: Path, *, kind: str) -> str:
    """A model of late interaction with the files of PyLate."""
    return multi_vector.pylate(folder / "model", kind, **multi_vector.PYLATE["as it is"])


TANH, PLAIN = torch.nn.Tanh(), torch.nn.Identity()
CLASSIFIERS = {
    "ms-marco-MiniLM": "bert",
    "ms-marco-electra": "electra",
    "ms-marco-distilroberta": "roberta",
    "bge-reranker-v2-m3": "xlm-roberta",
    "mxbai-rerank-v1": "deberta-v2",
    "gte-reranker-modernbert": "modernbert",
    "gte-multilingual-reranker": "gte",
    "opensearch distilbert": "distilbert",
    "RankLLaMA": "llama",
    "Qwen3 classifiers": "qwen3",
}
ANSWERS = {
    "Qwen3-Reranker": {"kind": "qwen3"},
    "mxbai-rerank-v2": {"kind": "qwen2"},
    "bge-reranker-v2-gemma": {"kind": "gemma", "false": None},
}
EMBEDDINGS: dict[str, dict[str, Any]] = {
    "all-MiniLM": {"kind": "bert"},
    "all-mpnet": {"kind": "mpnet"},
    "msmarco-distilbert-tas-b": {"kind": "distilbert", "pooling": "cls", "normalize": False}
    | {"similarity_fn_name": "dot"},
    "bge": {"kind": "bert", "pooling": "cls", "prompts": ASKED},
    "e5": {"kind": "bert", "prompts": E5},
    "multilingual-e5": {"kind": "xlm-roberta", "prompts": E5},
    "snowflake-arctic": {"kind": "xlm-roberta", "pooling": "cls", "prompts": ASKED},
    "gte-modernbert": {"kind": "modernbert", "pooling": "cls", "normalize": False},
    "nomic-embed": {"kind": "nomic_bert", "prompts": E5},
    "jina-embeddings-v3": {"kind": "jina_embeddings_v3", "prompts": E5},
    "LaBSE": {"kind": "bert", "pooling": "cls", "dense": [(16, TANH)]},
    "sentence-t5": {"kind": "t5", "dense": [(12, PLAIN)]},
    "Qwen3-Embedding": {"kind": "qwen3", "pooling": "lasttoken", "prompts": ASKED},
    "EmbeddingGemma": {"kind": "gemma3_text", "prompts": E5, "dense": [(32, PLAIN), (16, PLAIN)]},
    "nomic, 8 dimensions": {"kind": "nomic_bert", "prompts": E5, "truncate_dim": 8},
}
COLBERTS: dict[str, dict[str, Any]] = {
    "answerai-colbert": {"kind": "bert", "query_expansion": multi_vector.FIXED},
    "GTE-ModernColBERT": {"kind": "modernbert", "prompts": E5},
}
FAMILIES = (
    *(Family(name, partial(classifier, kind=k), of_pairs) for name, k in CLASSIFIERS.items()),
    *(Family(name, partial(logit_score, **form), of_pairs) for name, form in ANSWERS.items()),
    Family("Ettin rerankers", partial(chain, kind="modernbert"), of_pairs),
    *(Family(n, partial(embedding_model, **form), of_vectors) for n, form in EMBEDDINGS.items()),
    Family("static-retrieval-mrl", partial(static, normalize=False), of_vectors),
    Family("potion", partial(static, normalize=True), of_vectors),
    Family("LoRA over bert", partial(adapted, kind="bert"), of_vectors),
    *(Family(n, partial(colbert, **form), of_token_vectors) for n, form in COLBERTS.items()),
    Family("PyLate", partial(pylate, kind="bert"), of_token_vectors),
)


def compared(family: Family, folder: Path) -> Found:
    """A family's scores here beside those of its library."""
    written = family.write(folder)
    try:
        here_QN, there_QN = family.scores(written)
    except BadInput as error:
        return Found(family.name, str(error).splitlines()[0])
    except Exception as error:  # of any kind: of the library, or a fault here
        return Found(family.name, f"FAULT {type(error).__name__}: {str(error).splitlines()[0]}")
    pairs = zip(here_QN, there_QN, strict=True)
    other = sum(not np.array_equal(np.argsort(-a), np.argsort(-b)) for a, b in pairs)
    return Found(family.name, "", float(np.abs(here_QN - there_QN).max()), other)


def main(argv: Sequence[str]) -> None:
    """Prints a row for each family."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("families", nargs="*", metavar="NAME", help="such as e5; all by default")
    words.add_argument("--json", type=Path, help="where to write the numbers")
    args = words.parse_args(argv)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    found = []
    for family in FAMILIES:
        if args.families and family.name not in args.families:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found.append(compared(family, Path(folder)))
    rows = [
        {
            "family": one.family,
            "largest difference": one.refused or f"{one.difference:.1e}",
            "queries in another order": "" if one.refused else f"{one.reordered}",
        }
        for one in found
    ]
    print_table(rows)
    save(args.json, {"families": [one._asdict() for one in found]})


if __name__ == "__main__":
    main(sys.argv[1:])
