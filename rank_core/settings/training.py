"""The settings of training."""

from dataclasses import dataclass

from rank_core.errors import BadInput
from rank_core.settings.checks import added, choice, not_negative, positive, require, setting

LOSS_NAMES = (
    "pairwise-margin",
    "pairwise-softmax",
    "ranknet",
    "cross-entropy",
    "listwise-softmax",
    "listwise-margin",
    "margin-mse",
    "lambda",
)
SCHEDULES = (
    "constant",
    "linear",
    "one-cycle",
    "one-cycle-last-epoch",
    "one-cycle-linear",
    "one-cycle-linear-last-epoch",
    "inverse-epoch",
)
PRECISIONS = ("auto", "fp32", "bf16", "fp16")
UNITS = ("document", "passage")
LABELS = ("qrels", "first-stage")
KEEP_WEIGHTS = ("best", "all", "none")


@dataclass(frozen=True)
class Training:
    """Training on groups of a query, a relevant document and candidates that are not relevant."""

    num_epochs: int = setting(1, "passes over the training queries", hf="num_train_epochs epochs")
    epoch_steps: int = added(0, "steps of one epoch; 0: one pass over the training queries")
    max_steps: int = setting(0, "steps after which training ends; 0: no limit", hf="max_steps")
    batch_size: int = setting(
        16,
        "groups (a relevant document and its negatives) of one optimizer step, over all workers; "
        "not pairs, not per device",
        hf="per_device_train_batch_size train_batch_size",
    )
    micro_batch_tokens: int = setting(
        0,
        "encoder tokens of one backward pass, a matter of memory and no part of the cell; 0: what "
        "suits the device. Without dropout it changes no number but for rounding; with dropout it "
        "draws other masks from the same stream",
        hf="gradient_accumulation_steps",
    )
    backbone_learning_rate: float = setting(
        1e-5, "learning rate of the pre-trained encoder", hf="learning_rate lr"
    )
    head_learning_rate: float = setting(
        1e-4, "learning rate of the layers that start from nothing", hf="learning_rate lr"
    )
    aggregator_learning_rate: float = setting(
        1e-4, "learning rate of what puts the vectors of chunks together"
    )
    interaction_learning_rate: float = added(
        0.0, "learning rate of model.interaction; 0: the aggregator's"
    )
    weight_decay: float = setting(1e-7, "AdamW's weight decay", hf="weight_decay")
    schedule: str = setting(
        "constant",
        "of the learning rates after a linear warm-up: " + ", ".join(SCHEDULES),
        hf="lr_scheduler_type scheduler",
    )
    warmup: float = setting(
        0.2,
        "share of the steps that warms up; of each epoch's steps with reset_optimizer",
        hf="warmup_ratio warmup_steps",
    )
    warmup_backbone: bool = added(True, "false: the backbone learns at its whole rate at once")
    epoch_decay: float = added(1.0, "all rates are multiplied by it after every epoch")
    reset_optimizer: bool = added(False, "moments, warm-up and schedule start anew in every epoch")
    loss: str = added("pairwise-margin", ", ".join(LOSS_NAMES))
    negatives: int = added(1, "negatives of each group", hf="num_negatives train_group_size")
    margin: float = setting(1.0, "of the margin losses")
    teacher: str = added("", "a run file whose scores margin-mse follows")
    unit: str = added("document", "what is scored as a whole: a document, or each passage of it")
    passage_keep: float = added(0.1, "unit=passage: share of the passages after the first")
    chunk_dropout: float = added(0.0, "dropped share of a document's chunks after the first")
    labels: str = added(
        "qrels", "qrels, or first-stage: the first candidate counts as the relevant one"
    )
    depth: int = added(0, "candidates of a query that negatives come from; 0: evaluation.depth")
    negatives_below: int = added(0, "so many candidates at the top are never negatives")
    negatives_from: tuple[str, ...] = added((), "run files, one per epoch, for the candidates")
    init_from: str = added(
        "",
        "a finished trial's folder, or its weights.safetensors; or a cell, runs/CELL without its "
        "-seedN, of which each trial takes the one with its own seed",
    )
    keep_weights: str = added(
        "best",
        "keeps weights.safetensors, for `sweeps export` and init_from, of the seed of each cell "
        "that is best on dev (best, as far as --weights-gib holds), of every trial (all), or none; "
        "no part of the cell. With folds there is no one model, and best keeps nothing",
        hf="save_strategy",
    )
    keep_run: bool = added(
        False,
        "keeps train.run.gz, the training queries' candidates in its order, for negatives_from and "
        "teacher; no part of the cell",
    )
    gradient_clip: float = setting(
        1.0, "largest global norm of the gradient; 0: off", hf="max_grad_norm"
    )
    validate_every: int = setting(
        0, "steps between validations; 0: at the end of an epoch", hf="eval_steps eval_strategy"
    )
    patience: int = added(
        0,
        "training ends after so many validations in a row without a better value on dev; 0: never",
        hf="early_stopping_patience",
    )
    precision: str = setting(
        "auto",
        "fp32, bf16, fp16, or auto: bf16 or fp16 on a GPU, bf16 on a CPU with AMX, fp32 on others",
        hf="bf16 fp16",
    )
    deterministic: bool = added(
        False,
        "a repeat on a GPU gives the same bits, at a price in speed; on a CPU it always does",
        hf="full_determinism",
    )
    paired_seeds: bool = setting(
        False, "the order and negatives of a seed are the same in every cell"
    )

    def __post_init__(self) -> None:
        positive(
            "training",
            self,
            "batch_size backbone_learning_rate head_learning_rate "
            "aggregator_learning_rate negatives margin",
        )
        not_negative(
            "training",
            self,
            "num_epochs epoch_steps max_steps micro_batch_tokens interaction_learning_rate "
            "weight_decay depth negatives_below gradient_clip validate_every patience",
        )
        require(0 <= self.warmup <= 1, f"0 <= training.warmup <= 1 must hold, got {self.warmup}")
        require(
            0 < self.epoch_decay <= 1,
            f"0 < training.epoch_decay <= 1 must hold, got {self.epoch_decay}",
        )
        require(
            0 <= self.passage_keep <= 1,
            f"0 <= training.passage_keep <= 1 must hold, got {self.passage_keep}",
        )
        require(
            0 <= self.chunk_dropout < 1,
            f"0 <= training.chunk_dropout < 1 must hold, got {self.chunk_dropout}",
        )
        choice("training.loss", self.loss, LOSS_NAMES)
        choice("training.schedule", self.schedule, SCHEDULES)
        choice("training.unit", self.unit, UNITS)
        choice("training.labels", self.labels, LABELS)
        choice("training.keep_weights", self.keep_weights, KEEP_WEIGHTS)
        choice("training.precision", self.precision, PRECISIONS)

    def share_read(self, num_chunks: float) -> float:
        """The share of a document's chunks that training reads of it at once, on average."""
        keep = self.passage_keep if self.unit == "passage" else 1 - self.chunk_dropout
        return (1 + keep * (num_chunks - 1)) / num_chunks if num_chunks > 1 else 1.0


def check_training(training: Training, model: str, *, one_chunk_is_firstp: bool) -> None:
    """Refuses settings that contradict each other or have no effect beside the others."""
    if training.loss == "margin-mse" and not training.teacher:
        raise BadInput("training.loss=margin-mse needs training.teacher, the run of a teacher")
    if training.teacher and training.loss != "margin-mse":
        raise BadInput(
            "training.teacher has no effect but with training.loss=margin-mse, got "
            f"training.loss={training.loss}"
        )
    if training.unit == "passage" and training.chunk_dropout:
        raise BadInput(
            "training.chunk_dropout has no effect with training.unit=passage, which leaves out "
            "passages by training.passage_keep"
        )
    if training.unit == "passage" and not one_chunk_is_firstp:
        raise BadInput(
            "training.unit=passage trains a score of single passages, which model "
            f"{model} has none of; use training.unit=document"
        )
    if training.unit == "document" and training.passage_keep != Training().passage_keep:
        raise BadInput("training.passage_keep has no effect but with training.unit=passage")
    if training.reset_optimizer and training.schedule == "inverse-epoch":
        raise BadInput(
            "training.schedule=inverse-epoch lowers rates over all epochs; it does not go together "
            "with training.reset_optimizer, which starts schedules anew"
        )
