"""Constants that are a fact of a paper or of its code, typed here by hand from that source."""

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import rank_core
from rank_core.data.made.mldr import FOLDERS
from rank_core.first_stage.bm25 import Rm3
from rank_core.settings.config import Chat

ROOT = Path(rank_core.__file__).parent
KERNELS = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)
"""Xiong et al. 2017, K-NRM: one kernel for equal terms and ten, 0.2 apart."""

PUBLISHED: dict[str, Any] = {
    # CEDR (MacAvaney et al. 2019), the authors' code.
    "models.cedr.CedrKnrm.MU": KERNELS[::-1],
    "models.cedr.CedrKnrm.SIGMA": (0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.001),
    "models.cedr.CedrDrmm.NUM_BINS": 11,
    "models.cedr.CedrDrmm.NUM_HIDDEN": 5,
    "models.cedr.CedrPacrr.NGRAMS": (1, 2, 3),
    "models.cedr.CedrPacrr.NUM_FILTERS": 32,
    "models.cedr.CedrPacrr.NUM_MATCHES": 2,
    "models.cedr.CedrPacrr.NUM_HIDDEN": 32,
    "models.cedr.MAX_QUERY": 32,  # Boytsov et al. 2022; CEDR has 20
    # Boytsov et al. 2022: RAND has 2 layers (RAND-L3 has 3) with 4 heads.
    "models.parade.ParadeTransformer.NUM_LAYERS": 2,
    "models.parade.ParadeTransformer.NUM_HEADS": 4,
    "models.parade.ParadeTransformerL3.NUM_LAYERS": 3,
    # KeyB(PARADE5) of Li et al. 2023; their code's BM25 of blocks, and idf of unseen words.
    "models.keyb.KeyBParade.DEFAULT_K": 5,
    "models.key_blocks.UNSEEN_IDF": 10.0,
    "models.key_blocks.K1": 0.9,
    "models.key_blocks.B": 0.4,
    # CogLTX (Ding et al. 2020): blocks of at most 63 tokens; the costs of a cut are its code's.
    "chunking.chunks.BLOCK_TOKENS": 63,
    "chunking.chunks.BLOCK_COST": 4,
    "chunking.chunks.FORCED_CUT_COST": 8,
    "chunking.chunks.MARK_COSTS": {"\n": 0, ".": 1, "?": 1, "!": 1, ",": 2},
    "models.qds.CLAUSE_COST": 2,
    # QDS-Transformer (Jiang et al. 2020): local attention of 128, half on either side.
    "models.qds.REACH": 64,
    # IDCM (Hofstätter et al. 2021), matchmaker.
    "models.idcm.CENTRES": KERNELS,
    "models.idcm.WIDTH": 0.1,
    "models.idcm.NGRAM": 3,
    "models.idcm.LEAST": 1e-4,
    "models.idcm.BEST": 3,
    "models.idcm.Idcm.DEFAULT_K": 3,
    # TK and TKL (Hofstätter et al. 2020), matchmaker.
    "models.word_vectors.TEXT_START": 500,
    "models.word_vectors.Contextualiser.NUM_LAYERS": 2,
    "models.word_vectors.Contextualiser.MAX_HEADS": 10,
    "models.word_vectors.Contextualiser.INNER_SIZE": 300,
    "models.word_vectors.MU": KERNELS,
    "models.word_vectors.SIGMA": 0.1,
    "models.word_vectors.PIECE": 40,
    "models.word_vectors.OVERLAP": 5,
    "models.word_vectors.WINDOW": 30,
    "models.word_vectors.STEP": 2,
    "models.word_vectors.NUM_PEAKS": 3,
    "models.word_vectors.NEIGHBOURS": (0, -1, 1, -2, 2),
    # Co-PACRR (Hui et al. 2018): up to 3-grams, 32 filters, the 2 strongest matches in each of four
    # prefixes, a context of 4 terms.
    "models.word_vectors.NGRAMS": (2, 3),
    "models.word_vectors.NUM_FILTERS": 32,
    "models.word_vectors.NUM_MATCHES": 2,
    "models.word_vectors.CASCADE": (0.25, 0.5, 0.75, 1.0),
    "models.word_vectors.CONTEXT": 4,
    # DeepRank (Pang et al. 2017), with the sizes of Li et al. 2023.
    "models.word_vectors.SIDE": 15,
    "models.word_vectors.MAX_MATCHES": 20,
    "models.word_vectors.NUM_MAPS": 4,
    "models.word_vectors.NUM_STATES": 3,
    # MORES (Gao et al. 2020), the authors' code: two interaction blocks.
    "models.mores.NUM_BLOCKS": 2,
    # E5 (Wang et al. 2022): the temperature of its loss, BERT's positions, its prompts.
    "models.bi_encoder.BiEncoder.TEMPERATURE": 0.01,
    "encoders.e5.ORIGINAL_POSITIONS": 512,
    "encoders.e5.PROMPTS": ("query: ", "passage: "),
    # ColBERT (Khattab & Zaharia 2020): 128 dimensions, queries of 32 tokens; the score that
    # sentence-transformers gives a text without tokens.
    "encoders.multi_vector.DIMENSIONS": 128,
    "encoders.multi_vector.QUERY_LENGTH": 32,
    "models.late_interaction.NO_TOKEN": -1e9,
    # Anserini's defaults, and the share above which its RM3 takes no term.
    "first_stage.bm25.K1": 0.9,
    "first_stage.bm25.B": 0.4,
    "first_stage.bm25.MOST_FREQUENT": 0.1,
    "first_stage.analysis.MAX_WORD_LENGTH": 255,  # of Lucene's StandardTokenizer
    # Reciprocal rank fusion (Cormack et al. 2009); grid of weights (Yilmaz et al. 2019).
    "ranking.interpolation.RANK_OFFSET": 60,
    "ranking.interpolation.ALPHAS": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    # Capreolus: the rate is divided by 1 + 0.1 x iteration. torch's OneCycleLR: div_factor 25,
    # final_div_factor 10,000.
    "training.optimizer.INVERSE_DECAY": 0.1,
    "training.optimizer.ONE_CYCLE_START": 1 / 25,
    "training.optimizer.ONE_CYCLE_END": 1 / 250_000,
}
OURS = {
    "models.cedr.SMALLEST_VARIANCE", "models.cedr.ROUNDING", "models.cedr.EPSILON",
    "models.cedr.NUM_HIDDEN", "models.key_blocks.STATISTICS_VERSION",
    "models.key_blocks.WORDS_AT_ONCE", "models.key_blocks.CASCADE_SURPLUS",
    "models.key_blocks.DOCUMENTS_KEPT", "models.keyb.BLOCKS_AT_ONCE",
    "models.keyb.SAME_SCORE_DECIMALS", "models.parade.RANDOM_POSITIONS",
    "models.parade.ParadePretrained.OTHER_PLACES",
    "models.embedding_model.BLOCK", "models.late_interaction.KEPT_BYTES",
    "models.late_interaction.MOST_QUERY_TOKENS", "models.text_vectors.NO_LIMIT",
    "models.parade.ParadeWithQuery.OTHER_PLACES", "models.passage_scores.KMaxAvgP.DEFAULT_K",
    "models.ranking_system.ReadingFacts.DEFAULT_K",
    "models.passage_scores.Birch.WEIGHTS", "models.readers.PADDING", "first_stage.bm25.DEPTH",
    "first_stage.analysis.REPEATED_LENGTH",
    "chunking.chunks.NO_MARK", "models.runtimes.PER_QUERY", "models.runtimes.PER_DOCUMENT",
    "models.runtimes.CALIBRATION_ROWS", "models.runtimes.ROWS_AT_ONCE",
}  # fmt: skip
"""Numbers that no paper has: our own choices, limits and versions."""
LOOKED_AT = ("models/*.py", "first_stage/*.py", "chunking/chunks.py")


def value_of(name: str) -> Any:
    place, _, attribute = name.rpartition(".")
    owner, _, kind = place.rpartition(".")
    if kind[0].isupper():
        return getattr(getattr(import_module(f"rank_core.{owner}"), kind), attribute)
    return getattr(import_module(f"rank_core.{place}"), attribute)


def is_number(value: object) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(map(is_number, value))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


SOURCE = re.compile(r"#.*(\b(19|20)\d\d\b|\bours\b)")
"""A comment with the year of a paper, or that says that a number is our own."""


def numbers() -> set[str]:
    """The public constants of the models and the first stage that are numbers and have no source
    in a comment on their line."""
    found = set()
    for path in sorted(path for pattern in LOOKED_AT for path in ROOT.glob(pattern)):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        text = path.read_text("utf-8")
        tree, lines = ast.parse(text), text.splitlines()
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        for owner, body in [("", tree.body), *((f"{node.name}.", node.body) for node in classes)]:
            for node in body:
                assigns = isinstance(node, (ast.Assign, ast.AnnAssign))
                names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and assigns
                         and isinstance(one.ctx, ast.Store)}  # fmt: skip
                found |= {
                    f"{module}.{owner}{name}"
                    for name in names
                    if re.fullmatch("[A-Z][A-Z0-9_]*", name)
                    and not SOURCE.search(lines[node.lineno - 1])
                }
    return {name for name in found if is_number(value_of(name))}


def test_every_number_of_a_model_has_a_source_or_is_ours() -> None:
    """A new one has its source in a comment, `# Li et al. 2020` or `# ours`, or stands above with
    its value as its source has it."""
    named = numbers()
    assert named - PUBLISHED.keys() - OURS == set()
    assert OURS <= named


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_constant_has_the_value_of_its_source(name: str) -> None:
    assert value_of(name) == PUBLISHED[name]


def test_defaults_of_published_methods() -> None:
    # RankGPT (Sun et al. 2023): windows of 20, step 10, 300 words of a passage.
    assert (Chat().window, Chat().step, Chat().max_words) == (20, 10, 300)
    # Anserini's RM3.
    assert (Rm3().fb_terms, Rm3().fb_docs, Rm3().original_weight) == (10, 10, 0.5)


def test_mldr_has_its_thirteen_languages() -> None:
    languages = "ar de en es fr hi it ja ko pt ru th zh".split()
    assert {
        name: f"mldr-v1.0-{name[5:]}" for name in (f"mldr-{one}" for one in languages)
    } == FOLDERS
