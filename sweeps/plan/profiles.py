"""Settings of published experiments by name: `--profile NAME`, below what the user sets.

A profile states the hyperparameters that a paper or its code documents, and `QUIRKS` the faults of
its code that its numbers depend on. It does not make a trial the same computation: what no setting
can give is said beside each. Backbones, collections and fields are for the user to choose.
"""

from collections.abc import Mapping
from typing import Any

from rank_core.errors import unknown
from rank_core.models import model_class
from rank_core.settings.config import TrialConfig

# Boytsov et al. 2022 and its successor share one recipe, that of FlexNeuART's model files.
# Not the same: their GPUs each train on a shard and average parameters every 4 steps (local SGD),
# where workers here add up gradients; one micro-batch is one pair; half precision is fp16; their
# checkpoint is chosen by AP on a sample.
_BOYTSOV: dict[str, Any] = {
    "model.dropout": 0.1,
    "chunking.max_query_tokens": 32,  # max_query_len
    "chunking.max_document_tokens": 1431,  # max_doc_len, 3 x 477
    "chunking.window": 150,  # Table 4 is the row 150/100 of Table 8, although the files say 75
    "chunking.stride": 100,
    # MS MARCO; 2 for a random aggregator; 3 for late interaction, which has rates of its own:
    # training.aggregator_learning_rate=1e-5 training.interaction_learning_rate=1e-4.
    "training.num_epochs": 1,
    # On Robust04 an epoch is 100 passes over 200 queries: training.epoch_steps=1250, and
    # training.init_from the cell on MS MARCO, so that every seed goes on from its own.
    "training.batch_size": 16,
    "training.backbone_learning_rate": 1e-5,  # init_bert_lr
    "training.head_learning_rate": 1e-4,  # init_lr
    "training.aggregator_learning_rate": 1e-4,  # init_lr: aggregators are no part of bert_lr
    "training.weight_decay": 1e-7,  # of all parameters
    "training.schedule": "constant",  # const_with_warmup
    "training.warmup": 0.2,  # warmup_pct
    "training.epoch_decay": 0.95,  # epoch_lr_decay
    "training.reset_optimizer": True,  # built anew in each epoch
    "training.loss": "pairwise-margin",
    "training.margin": 1.0,
    "training.negatives": 1,
    "training.depth": 100,  # of the exported training candidates; 1000 on Robust04
    "training.gradient_clip": 0.0,  # never clipped
    "evaluation.depth": 100,  # Section 4; 1000 on Robust04
}

PROFILES: dict[str, dict[str, Any]] = {
    # Masks are right, aggregators are the papers': the defaults.
    "clean": {},
    # Boytsov et al. 2022, 13 models on MS MARCO documents and Robust04.
    # Its leaderboard runs: training.num_epochs=3, training.schedule=one-cycle-last-epoch and, as
    # training.negatives_from, the train.run.gz of three rankers, each better than the one before.
    # Not the same: RAND's self-attention runs across the batch there; AvgP divides a sum over all
    # chunks by the number of real ones. Neither is a quirk here.
    "boytsov2022": dict(_BOYTSOV),
    # Boytsov et al., positional bias, more than 20 models: the same recipe.
    # Not the same: BigBird's all-zero random blocks are a quirk of `longp` that its user sets
    # (model.quirks=bigbird-zero-blocks), because other backbones have none.
    "boytsov2025": dict(_BOYTSOV),
    # Zhang, Yates & Lin 2021, in Capreolus (optimal_configs/maxp.txt).
    # Not the same: passages are drawn per pair there and absent ones are one [PAD] token that
    # competes in MaxP; AvgP divides by the passages of the whole batch; more than 30 passages are
    # kept in random order; an iteration's 256 batches are whole passes here only by count.
    "zhang2021": {
        "model.dropout": 0.1,
        "chunking.window": 150,  # passagelen, of wordpieces
        "chunking.stride": 75,
        "chunking.max_query_tokens": 20,  # maxqlen
        "chunking.max_document_tokens": 100_000,  # documents are not cut, passages are chosen
        "chunking.max_chunks": 30,  # numpassages
        "chunking.overflow": "first-last-sampled",  # of the version of 2020
        "training.unit": "passage",
        "training.passage_keep": 0.1,  # prob
        "training.num_epochs": 36,  # niters
        "training.epoch_steps": 256,  # itersize, in batches
        "training.batch_size": 16,  # triples
        "training.validate_every": 4 * 256,  # validatefreq
        "training.backbone_learning_rate": 1e-5,  # bertlr
        "training.head_learning_rate": 1e-3,  # lr
        "training.aggregator_learning_rate": 1e-3,
        "training.weight_decay": 0.0,  # Adam
        "training.schedule": "inverse-epoch",  # decaytype linear, decay .1
        "training.warmup": 8 / 36,  # warmupiters
        "training.warmup_backbone": False,  # warmupbert
        "training.loss": "pairwise-margin",  # TF-Ranking's pairwise hinge
        "training.margin": 1.0,
        "training.negatives": 1,
        "training.depth": 1000,  # train hits
        "training.gradient_clip": 0.0,
        "evaluation.depth": 100,  # threshold
        "evaluation.measures": ("nDCG@20", "P@20", "AP"),  # optimize ndcg_cut_20
    },
    # MacAvaney et al. 2019, the authors' code.
    # Not the same: 100 epochs with a patience of 20 are 100 epochs here, of which the best counts
    # all the same; CEDR models start from a fine-tuned BERT: training.init_from.
    "cedr2019": {
        "model.dropout": 0.1,
        "chunking.max_query_tokens": 20,  # QLEN
        "chunking.max_document_tokens": 800,  # MAX_DLEN
        "chunking.window": 400,  # 800 tokens are two equal parts there; shorter ones are cut so too
        "chunking.stride": 400,
        "training.num_epochs": 100,
        "training.epoch_steps": 32,  # batches of 16 pairs
        "training.batch_size": 16,
        "training.backbone_learning_rate": 2e-5,
        "training.head_learning_rate": 1e-3,
        "training.aggregator_learning_rate": 1e-3,
        "training.weight_decay": 0.0,  # Adam
        "training.schedule": "constant",
        "training.warmup": 0.0,
        "training.loss": "pairwise-softmax",
        "training.negatives": 1,
        "training.gradient_clip": 0.0,
        "evaluation.measures": ("P@20", "nDCG@20", "ERR@20"),  # validated by P@20
    },
    # Li et al. 2020, the authors' TensorFlow code.
    # Not the same: windows are 150 whitespace words with an overlap of 50; passage vectors are
    # BERT's pooled ones; all of the top 1000 are trained on, point by point, with the class ratio
    # that they have; weight decay spares LayerNorm and biases; there is no validation.
    "parade2020": {
        "model.dropout": 0.1,
        "chunking.max_query_tokens": 61,  # 64 with the special tokens
        "chunking.window": 150,
        "chunking.stride": 100,
        "chunking.max_document_tokens": 100_000,  # documents are not cut, passages are chosen
        "chunking.max_chunks": 16,
        "chunking.overflow": "first-last-sampled",  # first, last, 14 at random in order
        "training.num_epochs": 3,
        "training.batch_size": 32,
        "training.backbone_learning_rate": 3e-6,  # one rate for everything
        "training.head_learning_rate": 3e-6,
        "training.aggregator_learning_rate": 3e-6,
        "training.weight_decay": 0.01,  # BERT's optimiser
        "training.schedule": "linear",
        "training.warmup": 0.1,
        "training.loss": "cross-entropy",
        "training.negatives": 1,
        "training.depth": 1000,
        "training.gradient_clip": 1.0,  # BERT's optimiser
        "evaluation.measures": ("nDCG@20", "P@20", "AP"),
    },
    # Li, Popa, Chagnon, Cinar & Gaussier, KeyB, the authors' code.
    # Not the same: the two pairs of a batch share a query, and each measure is reported from the
    # checkpoint that is best for it; here one checkpoint, by the first measure, gives all.
    "keyb2022": {
        "model.dropout": 0.1,
        "chunking.window": 477,  # of key blocks: a BERT's 512 positions less 32 and 3
        "chunking.stride": 477,
        "training.num_epochs": 10,
        "training.epoch_steps": 128,  # 1024 batches of 2 pairs; 256 on MQ2007/8, 1875 on TREC 2019
        "training.batch_size": 16,  # a step every 32 documents
        "training.backbone_learning_rate": 2e-5,
        "training.head_learning_rate": 1e-3,
        "training.aggregator_learning_rate": 1e-3,
        "training.weight_decay": 0.0,  # Adam
        "training.schedule": "constant",
        "training.warmup": 0.0,
        "training.loss": "pairwise-margin",
        "training.margin": 1.0,
        "training.negatives": 1,
        "training.gradient_clip": 0.0,
        "evaluation.depth": 200,  # Robust04 and GOV2; 100 on TREC 2019
        "evaluation.measures": ("nDCG@20", "P@20", "AP"),
    },
}

_UNMASKED = ("unmasked-chunks",)  # the masks of blocks are computed there and never used
_BOYTSOV_QUIRKS: dict[str, tuple[str, ...]] = {
    "maxp": _UNMASKED,
    "sump": _UNMASKED,
    "parade-avg": _UNMASKED,
    "parade-max": _UNMASKED,
    # A Linear(H, H) whose every dimension attends by itself; the paper has one vector.
    "parade-attn": ("unmasked-chunks", "elementwise-attention"),
    "parade-transformer": _UNMASKED,
    "parade-transformer-pretrained": _UNMASKED,
    "parade-transformer-query": _UNMASKED,
}

QUIRKS: dict[str, dict[str, tuple[str, ...]]] = {
    "boytsov2022": _BOYTSOV_QUIRKS,
    "boytsov2025": _BOYTSOV_QUIRKS,
    "keyb2022": {"keyb": ("truncate-latest",)},  # the block latest in the document is cut
}
"""{profile: {model: quirks}}: faults of the code that the published numbers come from."""


def profile_settings(name: str) -> Mapping[str, Any]:
    """The dotted settings of a profile."""
    if name not in PROFILES:
        raise unknown("profile", name, PROFILES)
    return PROFILES[name]


def profile_quirks(name: str, model: str) -> tuple[str, ...]:
    """The quirks that a profile reproduces in one model."""
    return QUIRKS.get(name, {}).get(model, ())


def suited_to_model(name: str, config: TrialConfig) -> Mapping[str, Any]:
    """What a profile changes where it meets one model: quirks, unless the user has named some; and
    limits on chunks that it has set and a model of one chunk would refuse."""
    changes: dict[str, Any] = {}
    if not config.model.quirks:
        changes["model.quirks"] = profile_quirks(name, config.model.name)
    one_chunk = model_class(config.model.name).first_chunk_only
    if one_chunk and config.training.unit == "document":
        set_here, settings = profile_settings(name), config.settings()
        for setting in ("chunking.max_chunks", "chunking.overflow"):
            if setting in set_here and settings[setting] == set_here[setting]:
                changes[setting] = TrialConfig().settings()[setting]
    return changes
