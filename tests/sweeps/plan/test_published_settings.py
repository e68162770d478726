"""Profiles against the papers and their code: every value is typed here from its source."""

import pytest

from sweeps.plan.profiles import PROFILES, profile_settings

BERT = 512  # positions, of which [CLS] and two [SEP] take three
WHOLE = 100_000  # tokens: no document is cut

BOYTSOV = {
    # model_conf/*.json of the repository of Boytsov et al. 2022, read by FlexNeuART; 150/100 is the
    # row of the paper's Table 8 that has the values of its Table 4.
    "model.dropout": 0.1,
    "chunking.max_query_tokens": 32,  # max_query_len
    "chunking.max_document_tokens": 3 * 477,  # max_doc_len 1431
    "chunking.window": 150,
    "chunking.stride": 100,
    "training.num_epochs": 1,  # epoch_qty, on MS MARCO
    "training.batch_size": 16,  # batch_size
    "training.backbone_learning_rate": 1e-5,  # init_bert_lr
    "training.head_learning_rate": 1e-4,  # init_lr
    "training.aggregator_learning_rate": 1e-4,  # init_lr
    "training.weight_decay": 1e-7,  # weight_decay
    "training.schedule": "constant",  # lr_schedule const_with_warmup
    "training.warmup": 0.2,  # warmup_pct
    "training.epoch_decay": 0.95,  # epoch_lr_decay
    "training.reset_optimizer": True,  # train_model.py makes it anew in each epoch
    "training.loss": "pairwise-margin",  # loss_func pairwise_margin
    "training.margin": 1.0,  # loss_margin
    "training.negatives": 1,  # one positive and one negative of a query
    "training.depth": 100,  # cedr_mcds_100_50_0_5_0_s0
    "training.gradient_clip": 0.0,  # train_model.py never clips
    "evaluation.depth": 100,  # MS MARCO
}
PUBLISHED: dict[str, dict[str, object]] = {
    "clean": {},
    "boytsov2022": BOYTSOV,
    "boytsov2025": BOYTSOV,
    # optimal_configs/maxp.txt of the replication repository of Zhang, Yates & Lin 2021 (Capreolus).
    "zhang2021": {
        "model.dropout": 0.1,
        "chunking.window": 150,  # passagelen
        "chunking.stride": 75,  # stride
        "chunking.max_query_tokens": 20,  # maxqlen
        "chunking.max_document_tokens": WHOLE,
        "chunking.max_chunks": 30,  # numpassages
        "chunking.overflow": "first-last-sampled",
        "training.unit": "passage",
        "training.passage_keep": 0.1,  # prob
        "training.num_epochs": 36,  # niters
        "training.epoch_steps": 256,  # itersize
        "training.batch_size": 16,  # batch
        "training.validate_every": 4 * 256,  # validatefreq 4, of iterations
        "training.backbone_learning_rate": 1e-5,  # bertlr
        "training.head_learning_rate": 1e-3,  # lr
        "training.aggregator_learning_rate": 1e-3,  # lr
        "training.weight_decay": 0.0,
        "training.schedule": "inverse-epoch",  # decaytype linear
        "training.warmup": 8 / 36,  # warmupiters 8 of niters 36
        "training.warmup_backbone": False,  # warmupbert
        "training.loss": "pairwise-margin",
        "training.margin": 1.0,
        "training.negatives": 1,
        "training.depth": 1000,  # hits
        "training.gradient_clip": 0.0,
        "evaluation.depth": 100,  # threshold
        "evaluation.measures": ("nDCG@20", "P@20", "AP"),  # optimize ndcg_cut_20
    },
    # train.py and data.py of MacAvaney et al. 2019 (https://github.com/Georgetown-IR-Lab/cedr).
    "cedr2019": {
        "model.dropout": 0.1,
        "chunking.max_query_tokens": 20,  # QLEN
        "chunking.max_document_tokens": 800,  # MAX_DLEN
        "chunking.window": BERT - 20 - 3,
        "chunking.stride": BERT - 20 - 3,
        "training.num_epochs": 100,  # MAX_EPOCH
        "training.patience": 20 + 1,  # PATIENCE 20: ends when the best is more than 20 back
        "training.epoch_steps": 32,  # BATCHES_PER_EPOCH
        "training.batch_size": 16,  # BATCH_SIZE
        "training.backbone_learning_rate": 2e-5,  # BERT_LR
        "training.head_learning_rate": 1e-3,  # LR
        "training.aggregator_learning_rate": 1e-3,  # LR
        "training.weight_decay": 0.0,
        "training.schedule": "constant",
        "training.warmup": 0.0,
        "training.loss": "pairwise-softmax",  # 1 - softmax of the relevant document
        "training.negatives": 1,
        "training.gradient_clip": 0.0,
        "evaluation.measures": ("P@20", "nDCG(dcg='exp-log2')@20", "ERR@20"),  # of gdeval
    },
    # The authors' run scripts of Li et al. 2020, and optimization.py of google-research/bert.
    "parade2020": {
        "model.dropout": 0.1,
        "chunking.max_query_tokens": 64 - 2,  # 64 with [CLS] and [SEP]
        "chunking.window": 150,  # plen
        "chunking.stride": 150 - 50,  # overlap 50
        "chunking.max_document_tokens": WHOLE,
        "chunking.max_chunks": 16,  # max_num_segments_perdoc
        "chunking.overflow": "first-last-sampled",
        "training.num_epochs": 3,  # num_train_epochs
        "training.batch_size": 32,  # train_batch_size
        "training.backbone_learning_rate": 3e-6,  # learning_rate
        "training.head_learning_rate": 3e-6,
        "training.aggregator_learning_rate": 3e-6,
        "training.weight_decay": 0.01,  # weight_decay_rate of BERT's optimizer
        "training.schedule": "linear",
        "training.warmup": 0.1,  # warmup_proportion
        "training.loss": "cross-entropy",
        "training.negatives": 1,
        "training.depth": 1000,
        "training.gradient_clip": 1.0,  # clip_by_global_norm of BERT's optimizer
        "evaluation.measures": ("nDCG@20", "P@20", "AP"),
    },
    # Li, Popa, Chagnon, Cinar & Gaussier 2023, and the authors' code.
    "keyb2022": {
        "model.dropout": 0.1,
        "chunking.window": BERT - 32 - 3,
        "chunking.stride": BERT - 32 - 3,
        "chunking.max_document_tokens": WHOLE,
        "training.num_epochs": 10,
        "training.epoch_steps": 1024 * 2 // 16,  # 1024 batches of 2 pairs, a step every 16 pairs
        "training.batch_size": 16,
        "training.backbone_learning_rate": 2e-5,
        "training.head_learning_rate": 1e-3,
        "training.aggregator_learning_rate": 1e-3,
        "training.weight_decay": 0.0,
        "training.schedule": "constant",
        "training.warmup": 0.0,
        "training.loss": "pairwise-margin",
        "training.margin": 1.0,
        "training.negatives": 1,
        "training.gradient_clip": 0.0,
        "evaluation.depth": 200,  # of BM25, on Robust04 and GOV2
        "evaluation.measures": ("nDCG@20", "P@20", "AP"),
    },
}
OF_MODELS: dict[tuple[str, str], dict[str, object]] = {
    # hist_scripts of the repository of Boytsov et al. 2025.
    ("boytsov2025", "parade-late-interaction"): {
        "chunking.stride": 75,
        "training.num_epochs": 3,  # epoch_qty
        "training.aggregator_learning_rate": 1e-5,  # init_aggreg_lr
        "training.interaction_learning_rate": 1e-4,  # init_lr
    },
    ("boytsov2025", "parade-transformer"): {"training.num_epochs": 2},
    # Passages of 225 tokens with stride 200 in rows of 256.
    ("keyb2022", "keyb-parade"): {
        "chunking.window": 225,
        "chunking.stride": 200,
        "chunking.max_query_tokens": 256 - 225 - 3,
    },
    ("keyb2022", "parade-transformer"): {
        "chunking.window": 225,
        "chunking.stride": 200,
        "chunking.max_query_tokens": 256 - 225 - 3,
        "chunking.max_chunks": 16,  # first, last and 14 at random
        "chunking.overflow": "first-last-sampled",
    },
}


def test_every_profile_and_every_model_of_one_is_above() -> None:
    assert PUBLISHED.keys() == PROFILES.keys()
    named = {(name, model) for name, own in PROFILES.items() for model in own.of_models}
    assert named == OF_MODELS.keys()


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_profile_has_the_values_of_its_source(name: str) -> None:
    assert profile_settings(name) == PUBLISHED[name]


@pytest.mark.parametrize(("name", "model"), OF_MODELS)
def test_a_model_has_the_values_of_its_source(name: str, model: str) -> None:
    assert profile_settings(name, model) == PUBLISHED[name] | OF_MODELS[name, model]
