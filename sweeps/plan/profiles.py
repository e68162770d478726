"""Settings of published experiments by name: `--profile NAME`, overridden by the user's settings.

A profile has the hyperparameters of a paper or its code beside the reference's names for them, the
faults of the code that affect its numbers (quirks), and the differences that no setting removes.
`ranksweep models --profile NAME` prints it. The user chooses backbone, collection and fields.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from rank_core.errors import unknown
from rank_core.models import model_class
from rank_core.settings.config import TrialConfig

Stated = Mapping[str, tuple[Any, str]]
"""{setting: (its value, the reference's name or remark)}."""


@dataclass(frozen=True)
class Profile:
    """The experiments of a paper, as far as settings can reproduce them."""

    source: str = ""
    settings: Stated = field(default_factory=dict)
    of_models: Mapping[str, Stated] = field(default_factory=dict)  # for one model, above `settings`
    quirks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # {model: model.quirks}
    not_the_same: tuple[str, ...] = ()  # remaining differences
    by_hand: tuple[str, ...] = ()  # settings of its other runs


_BOYTSOV: Stated = {
    "model.dropout": (0.1, "dropout 0.1"),
    "chunking.max_query_tokens": (32, "max_query_len 32"),
    "chunking.max_document_tokens": (1431, "max_doc_len 1431 = 3 x 477"),
    "chunking.window": (150, "window_size 150"),
    "chunking.stride": (100, "stride 75 in the files; Table 4 is the row 150/100 of Table 8"),
    "training.num_epochs": (1, "epoch_qty 1, on MS MARCO"),
    "training.batch_size": (16, "batch_size 16"),
    "training.backbone_learning_rate": (1e-5, "init_bert_lr 1e-5"),
    "training.head_learning_rate": (1e-4, "init_lr 1e-4"),
    "training.aggregator_learning_rate": (1e-4, "init_lr: aggregators are no part of init_bert_lr"),
    "training.weight_decay": (1e-7, "weight_decay 1e-7, of all parameters"),
    "training.schedule": ("constant", "lr_schedule const_with_warmup"),
    "training.warmup": (0.2, "warmup_pct 0.2"),
    "training.epoch_decay": (0.95, "epoch_lr_decay 0.95"),
    "training.reset_optimizer": (True, "optimizer and schedule are rebuilt in each epoch"),
    "training.loss": ("pairwise-margin", "loss_func pairwise_margin, summed"),
    "training.margin": (1.0, "loss_margin 1.0"),
    "training.negatives": (1, "one negative a query and epoch"),
    "training.depth": (100, "candidates exported for training; 1000 on Robust04"),
    "training.gradient_clip": (0.0, "never clipped"),
    "evaluation.depth": (100, "Section 4; 1000 on Robust04"),
}
_LATE_INTERACTION: Stated = {
    "chunking.stride": (75, "stride 75"),
    "training.num_epochs": (3, "epoch_qty 3"),
    "training.aggregator_learning_rate": (1e-5, "init_aggreg_lr 1e-5"),
    "training.interaction_learning_rate": (1e-4, "init_lr 1e-4"),
}
_RANDOM_AGGREGATOR: Stated = {"training.num_epochs": (2, "epoch_qty 2")}
_UNMASKED = ("unmasked-chunks",)  # the reference computes masks of blocks without using them
_BOYTSOV_QUIRKS: dict[str, tuple[str, ...]] = {
    "firstp": ("padded-rows",),
    "maxp": _UNMASKED,
    "sump": _UNMASKED,
    "parade-avg": _UNMASKED,
    "parade-max": _UNMASKED,
    # A Linear(H, H) in which every dimension attends separately; the paper has one vector.
    "parade-attn": ("unmasked-chunks", "elementwise-attention"),
    "parade-transformer": _UNMASKED,
    "parade-transformer-pretrained": _UNMASKED,
    "parade-transformer-query": _UNMASKED,
    "parade-late-interaction": _UNMASKED,
}
_SEQUENCE_2022 = (*_UNMASKED, "sequence-2022")  # later code has SEP and scores C everywhere
_BOYTSOV_QUIRKS_2022 = _BOYTSOV_QUIRKS | {
    "parade-transformer-pretrained": _SEQUENCE_2022,
    "parade-transformer-query": _SEQUENCE_2022,
}
_BOYTSOV_NOT_THE_SAME = (
    "Several GPUs train on a shard each and average parameters every 4 steps (local SGD); workers "
    "here add up gradients.",
    "A micro-batch is one pair; half precision is fp16.",
    "The checkpoint is chosen by AP on a sample of the queries.",
    "Of a warm-up of n steps, step k (from 0) has k/n of the rate, so the first has none; here it "
    "has (k+1)/n.",
    "AvgP (avg-cls) and CEDR pad query and document in place as well, and divide a sum over all "
    "chunks by the number of real ones; CEDR compares padding like text. Not reproduced.",
)
_BOYTSOV_BY_HAND = (
    "Robust04: training.epoch_steps=1250 (an epoch is 100 passes over 200 queries) and "
    "training.init_from the cell on MS MARCO, so that every seed resumes from its own.",
    "Rows of a Longformer are padded in place: model.quirks=padded-rows of `longp`, which other "
    "backbones do not have.",
)

PROFILES: dict[str, Profile] = {
    "clean": Profile("The defaults: masks are right, aggregators are the papers'"),
    "boytsov2022": Profile(
        "Boytsov et al. 2022, 13 models on MS MARCO documents and Robust04; FlexNeuART, branch "
        "pypi2021, and master for late interaction, which the branch lacks",
        _BOYTSOV,
        of_models={"parade-late-interaction": _LATE_INTERACTION},
        quirks=_BOYTSOV_QUIRKS_2022,
        not_the_same=(
            *_BOYTSOV_NOT_THE_SAME,
            "RAND's self-attention runs across the batch, and the first chunk's output is scored: "
            "not reproduced.",
            "In leaderboard runs one-cycle also moves Adam's beta1, from .95 to .85 and back.",
        ),
        by_hand=(
            *_BOYTSOV_BY_HAND,
            "Leaderboard: training.num_epochs=3 training.schedule=one-cycle-linear-last-epoch and, "
            "as training.negatives_from, the train.run.gz of three rankers, each better than the "
            "one before.",
        ),
    ),
    "boytsov2025": Profile(
        "Boytsov et al. 2025, positional bias, more than 20 models; FlexNeuART, master",
        _BOYTSOV,
        of_models={
            "parade-late-interaction": _LATE_INTERACTION,
            "parade-transformer": _RANDOM_AGGREGATOR,
        },
        quirks=_BOYTSOV_QUIRKS,
        not_the_same=(
            *_BOYTSOV_NOT_THE_SAME,
            "RAND's aggregator has as many heads as the backbone; here it has the 4 of the paper.",
        ),
        by_hand=(
            *_BOYTSOV_BY_HAND,
            "BigBird's all-zero random blocks are a quirk of `longp` "
            "(model.quirks=bigbird-zero-blocks), which other backbones do not have.",
        ),
    ),
    "zhang2021": Profile(
        "Zhang, Yates & Lin 2021; Capreolus, optimal_configs/maxp.txt",
        {
            "model.dropout": (0.1, "of BERT and of the head"),
            "chunking.window": (150, "passagelen 150, of wordpieces"),
            "chunking.stride": (75, "stride 75"),
            "chunking.max_query_tokens": (20, "maxqlen 20"),
            "chunking.max_document_tokens": (100_000, "documents are not cut, passages are chosen"),
            "chunking.max_chunks": (30, "numpassages 30"),
            "chunking.overflow": ("first-last-sampled", "of the version of 2020"),
            "training.unit": ("passage", "passages are trained alone"),
            "training.passage_keep": (0.1, "prob 0.1, of the passages after the first"),
            "training.num_epochs": (36, "niters 36"),
            "training.epoch_steps": (256, "itersize 256, in batches"),
            "training.batch_size": (16, "batch 16, of triples"),
            "training.validate_every": (4 * 256, "validatefreq 4"),
            "training.backbone_learning_rate": (1e-5, "bertlr 1e-5"),
            "training.head_learning_rate": (1e-3, "lr 1e-3"),
            "training.aggregator_learning_rate": (1e-3, "lr 1e-3"),
            "training.weight_decay": (0.0, "Adam"),
            "training.schedule": ("inverse-epoch", "decaytype linear, decay 0.1"),
            "training.warmup": (8 / 36, "warmupiters 8"),
            "training.warmup_backbone": (False, "warmupbert False"),
            "training.loss": ("pairwise-margin", "TF-Ranking's pairwise hinge"),
            "training.margin": (1.0, "of that hinge"),
            "training.negatives": (1, "triples"),
            "training.depth": (1000, "hits 1000"),
            "training.gradient_clip": (0.0, "never clipped"),
            "evaluation.depth": (100, "threshold 100"),
            "evaluation.measures": (("nDCG@20", "P@20", "AP"), "optimize ndcg_cut_20"),
        },
        not_the_same=(
            "The head is BERT's pooler (a layer and tanh) and logit 1 of two classes; here it is "
            "linear over [CLS].",
            "Windows start at 0, 75, 150, .. as long as the document lasts, so that each document "
            "has one more, inside the one before, which AvgP and SumP count.",
            "AvgP and SumP skip passages of at most 5 tokens; AvgP divides by the passages of "
            "the whole batch.",
            "Passages are drawn per pair, and absent ones are one [PAD] token that competes in "
            "MaxP; more than 30 are kept in random order.",
            "An iteration's 256 batches are whole passes here only by count.",
        ),
    ),
    "cedr2019": Profile(
        "MacAvaney et al. 2019, CEDR; the authors' code",
        {
            "model.dropout": (0.1, "DROPOUT 0.1"),
            "chunking.max_query_tokens": (20, "QLEN 20"),
            "chunking.max_document_tokens": (800, "MAX_DLEN 800"),
            "chunking.window": (489, "BERT's 512 - QLEN - 3: equal parts of at most so many"),
            "chunking.stride": (489, "parts do not overlap"),
            "training.num_epochs": (100, "MAX_EPOCH 100"),
            "training.epoch_steps": (32, "BATCHES_PER_EPOCH 32"),
            "training.batch_size": (16, "BATCH_SIZE 16, of pairs"),
            "training.backbone_learning_rate": (2e-5, "BERT_LR 2e-5"),
            "training.head_learning_rate": (1e-3, "LR 1e-3"),
            "training.aggregator_learning_rate": (1e-3, "LR 1e-3"),
            "training.weight_decay": (0.0, "Adam"),
            "training.schedule": ("constant", "none"),
            "training.warmup": (0.0, "none"),
            "training.loss": ("pairwise-softmax", "1 - softmax of the relevant document"),
            "training.negatives": (1, "pairs"),
            "training.gradient_clip": (0.0, "never clipped"),
            "evaluation.measures": (
                ("P@20", "nDCG(dcg='exp-log2')@20", "ERR@20"),
                "validated by P@20; nDCG@20 and ERR@20 are those of gdeval",
            ),
        },
        not_the_same=(
            "Training stops after 20 epochs without a better one; all 100 run here, and the best "
            "counts all the same.",
            "A document is cut into as many parts as the longest one beside it in the batch.",
            "The query is padded in place to 20 tokens, a document to the longest of its batch; "
            "kernels count padding as similarity 0, where it is masked here.",
        ),
        by_hand=("CEDR models start from a fine-tuned BERT (avg-cls): training.init_from.",),
    ),
    "parade2020": Profile(
        "Li et al. 2020, PARADE; the authors' TensorFlow code",
        {
            "model.dropout": (0.1, "of BERT and of the head"),
            "chunking.max_query_tokens": (62, "64 with [CLS] and [SEP]"),
            "chunking.window": (150, "passages of 150 words"),
            "chunking.stride": (100, "an overlap of 50"),
            "chunking.max_document_tokens": (100_000, "documents are not cut, passages are chosen"),
            "chunking.max_chunks": (16, "16 passages"),
            "chunking.overflow": ("first-last-sampled", "first, last, 14 at random in order"),
            "training.num_epochs": (3, "3 epochs"),
            "training.batch_size": (32, "batches of 32"),
            "training.backbone_learning_rate": (3e-6, "3e-6, one rate for everything"),
            "training.head_learning_rate": (3e-6, "the same"),
            "training.aggregator_learning_rate": (3e-6, "the same"),
            "training.weight_decay": (0.01, "BERT's optimizer"),
            "training.schedule": ("linear", "BERT's optimizer"),
            "training.warmup": (0.1, "of all steps"),
            "training.loss": ("cross-entropy", "two classes, document by document"),
            "training.negatives": (1, "as many negatives as relevant documents"),
            "training.depth": (1000, "the top 1000"),
            "training.gradient_clip": (1.0, "BERT's optimizer"),
            "evaluation.measures": (("nDCG@20", "P@20", "AP"), "those of its tables"),
        },
        not_the_same=(
            "Windows are of whitespace words; a last one of at most 50 words is dropped.",
            "Passage vectors are BERT's pooled ones (a layer and tanh).",
            "The aggregator reads [C, cls_1 .. cls_n] without SEP, positions, segments and an "
            "embedding LayerNorm; it has the backbone's number of heads, and C starts as the "
            "embedding of [SEP].",
            "All of the top 1000 are trained on, with the class ratio that they have.",
            "Weight decay spares LayerNorm and biases; there is no validation.",
        ),
    ),
    "keyb2022": Profile(
        "Li, Popa, Chagnon, Cinar & Gaussier 2023, KeyB; the authors' code",
        {
            "model.dropout": (0.1, "of BERT and of the head"),
            "chunking.window": (477, "of key blocks: BERT's 512 less 32 and 3"),
            "chunking.stride": (477, "one sequence"),
            "chunking.max_document_tokens": (100_000, "documents are not cut, blocks are chosen"),
            "training.num_epochs": (10, "10 epochs"),
            "training.epoch_steps": (128, "1024 batches of 2 pairs, a step every 8 of them"),
            "training.batch_size": (16, "a step every 32 documents"),
            "training.backbone_learning_rate": (2e-5, "2e-5"),
            "training.head_learning_rate": (1e-3, "1e-3"),
            "training.aggregator_learning_rate": (1e-3, "1e-3"),
            "training.weight_decay": (0.0, "Adam"),
            "training.schedule": ("constant", "none"),
            "training.warmup": (0.0, "none"),
            "training.loss": ("pairwise-margin", "a hinge"),
            "training.margin": (1.0, "of that hinge"),
            "training.negatives": (1, "pairs"),
            "training.gradient_clip": (0.0, "never clipped"),
            "evaluation.depth": (200, "BM25's top 200; 100 on TREC 2019"),
            "evaluation.measures": (("nDCG@20", "P@20", "AP"), "those of its tables"),
        },
        of_models={
            "keyb-parade": {
                "chunking.window": (225, "5 passages of 225: 1,025 tokens of key blocks"),
                "chunking.stride": (200, "200"),
            },
            "parade-transformer": {
                "chunking.window": (225, "the baseline PARADE"),
                "chunking.stride": (200, "200"),
                "chunking.max_chunks": (16, "16 passages; 5 of PARADE5"),
                "chunking.overflow": ("first-last-sampled", "first, last, 14 at random"),
            },
        },
        quirks={"keyb": ("truncate-latest",)},  # the block latest in the document is cut
        not_the_same=(
            "The two pairs of a batch share a query.",
            "Each measure is reported from the checkpoint that is best for it; here one "
            "checkpoint, by the first measure, gives all.",
            "A query is as long as the longest of its batch, with no limit.",
        ),
        by_hand=("training.epoch_steps=256 on MQ2007/8, 1875 on TREC 2019.",),
    ),
}


def profile(name: str) -> Profile:
    """The profile called `name`."""
    if name not in PROFILES:
        raise unknown("profile", name, PROFILES)
    return PROFILES[name]


def profile_settings(name: str, model: str = "") -> dict[str, Any]:
    """The dotted settings of a profile, for one model where it is named."""
    stated = {**profile(name).settings, **profile(name).of_models.get(model, {})}
    return {setting: value for setting, (value, _) in stated.items()}


def suited_to_model(name: str, config: TrialConfig, given: Collection[str] = ()) -> dict[str, Any]:
    """A profile's changes for a model: its settings for that model and its quirks, except those in
    `given` (settings of the user or sweep); and no limits on chunks for a model of one chunk."""
    model = config.model.name
    changes = profile_settings(name, model) if model in profile(name).of_models else {}
    changes = {setting: value for setting, value in changes.items() if setting not in given}
    if not config.model.quirks:
        changes["model.quirks"] = profile(name).quirks.get(model, ())
    one_chunk = model_class(model).first_chunk_only
    if one_chunk and config.training.unit == "document":
        set_here, settings = profile_settings(name), config.settings()
        for setting in ("chunking.max_chunks", "chunking.overflow"):
            if setting in set_here and settings[setting] == set_here[setting]:
                changes[setting] = TrialConfig().settings()[setting]
    return changes
