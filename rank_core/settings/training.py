"""The settings of training."""

from dataclasses import dataclass

from rank_core.errors import BadInput
from rank_core.own_code import is_reference
from rank_core.settings.checks import added, check_rules, check_types, setting

LOSS_NAMES = (
    "pairwise-margin",
    "pairwise-softmax",
    "ranknet",
    "cross-entropy",
    "listwise-softmax",
    "listwise-margin",
    "margin-mse",
    "teacher-ranknet",
    "teacher-listnet",
    "teacher-kl",
    "lambda",
)
TEACHER_LOSSES = ("margin-mse", "teacher-ranknet", "teacher-listnet", "teacher-kl")
MARGIN_LOSSES = ("pairwise-margin", "listwise-margin")
LAST_EPOCH = "-last-epoch"  # suffix of schedules that are constant before the last epoch
SCHEDULES = (
    "constant",
    "linear",
    "one-cycle",
    "one-cycle-last-epoch",
    "one-cycle-linear",
    "one-cycle-linear-last-epoch",
    "inverse-epoch",
)
PRECISIONS = ("auto", "fp32", "bf16", "fp16", "int8")
INT8 = PRECISIONS[-1]
UNITS = ("document", "passage")
LABELS = ("qrels", "first-stage")
KEEP_WEIGHTS = ("best", "all", "none")


@dataclass(frozen=True)
class Training:
    """Training on groups: a query, a relevant document and candidates that are not relevant."""

    num_epochs: int = setting(
        1, "passes over the training queries", hf="num_train_epochs epochs", rule="[0, 1,000,000]"
    )
    epoch_steps: int = added(
        0, "steps per epoch; 0: one pass over the training queries", rule=">=0"
    )
    max_steps: int = setting(
        0, "maximum number of training steps; 0: no limit", hf="max_steps", rule=">=0"
    )
    batch_size: int = setting(
        16,
        "groups (a relevant document and its negatives) per optimizer step, over all workers; "
        "not pairs, not per device",
        hf="per_device_train_batch_size train_batch_size",
        rule="[1, 100,000]",
    )
    micro_batch_tokens: int = setting(
        0,
        "encoder tokens per backward pass; 0: chosen for the device. It limits memory and is not "
        "part of the cell: without dropout it changes only rounding; with dropout, other masks are "
        "drawn from the same stream",
        hf="gradient_accumulation_steps",
        rule=">=0",
    )
    backbone_learning_rate: float = setting(
        1e-5, "learning rate of the pre-trained encoder", hf="learning_rate lr", rule=">0"
    )
    head_learning_rate: float = setting(
        1e-4, "learning rate of the randomly initialised layers", hf="learning_rate lr", rule=">0"
    )
    aggregator_learning_rate: float = setting(
        1e-4, "learning rate of the aggregator over chunk vectors", rule=">0"
    )
    interaction_learning_rate: float = added(
        0.0, "learning rate of model.interaction; 0: the aggregator's", rule=">=0"
    )
    weight_decay: float = setting(1e-7, "AdamW's weight decay", hf="weight_decay", rule=">=0")
    schedule: str = setting(
        "constant",
        "schedule of the learning rates after the linear warm-up: " + ", ".join(SCHEDULES),
        hf="lr_scheduler_type scheduler",
        rule=SCHEDULES,
    )
    warmup: float = setting(
        0.2,
        "warm-up as a fraction of all steps, or of each epoch's with reset_optimizer",
        hf="warmup_ratio warmup_steps",
        rule="[0, 1]",
    )
    warmup_backbone: bool = added(True, "false: no warm-up for the backbone")
    epoch_decay: float = added(
        1.0, "factor by which all learning rates are multiplied after every epoch", rule="(0, 1]"
    )
    reset_optimizer: bool = added(
        False, "resets moments, warm-up and schedule at the start of every epoch"
    )
    loss: str = added(
        "pairwise-margin",
        f"training loss: {', '.join(LOSS_NAMES)}; yours: module:function",
        rule=LOSS_NAMES,
        accepts_code=True,
    )
    negatives: int = added(
        1, "negatives per group", hf="num_negatives train_group_size", rule="[1, 1,000]"
    )
    margin: float = setting(1.0, "margin of the margin losses", rule=">0")
    teacher: str = added(
        "",
        f"run file with a teacher's scores, for the losses {', '.join(TEACHER_LOSSES)} and for the "
        "filters of negatives",
    )
    unit: str = added(
        "document", "unit of training: document, or passage (each chunk alone)", rule=UNITS
    )
    passage_keep: float = added(
        0.1, "unit=passage: fraction of the passages after the first that is used", rule="[0, 1]"
    )
    chunk_dropout: float = added(
        0.0, "fraction of a document's chunks after the first that is dropped", rule="[0, 1)"
    )
    labels: str = added(
        "qrels",
        "source of labels: qrels, or first-stage (the top candidate counts as relevant)",
        rule=LABELS,
    )
    depth: int = added(
        0, "number of candidates that negatives are sampled from; 0: evaluation.depth", rule=">=0"
    )
    negatives_below: int = added(
        0, "number of top candidates excluded from the negatives", rule=">=0"
    )
    negatives_share: float = added(
        0.0,
        "drops candidates that the teacher scores above this share of a relevant document's score, "
        "such as 0.95, as they may be relevant; 0: none",
        rule="[0, 1]",
    )
    negatives_margin: float = added(
        0.0,
        "drops candidates that the teacher does not score lower than a relevant document by this "
        "margin; 0: none",
        rule=">=0",
    )
    negatives_from: tuple[str, ...] = added(
        (), "run files that replace the candidates, one per epoch"
    )
    init_from: str = added(
        "",
        "folder of a finished trial, or its weights.safetensors, to start from; or a cell "
        "(trials/CELL, without -seedN): each trial starts from the one with its own seed; or "
        "sweep:DIR: each cell starts from the finished cell of the same model, by seed",
    )
    keep_weights: str = added(
        "best",
        "which trials keep weights.safetensors, for `ranksweep export` and init_from: best (the "
        "seed of each cell that is best on dev, within --weights-gib), all, or none; not part of "
        "the cell. With folds, best keeps nothing, as there is no single model",
        hf="save_strategy",
        rule=KEEP_WEIGHTS,
    )
    keep_run: bool = added(
        False,
        "keeps train.run.gz, the reranked candidates of the training queries, for negatives_from "
        "and teacher; not part of the cell",
    )
    gradient_clip: float = setting(
        1.0, "maximum global norm of the gradient; 0: no clipping", hf="max_grad_norm", rule=">=0"
    )
    validate_every: int = setting(
        0,
        "steps between validations; 0: at the end of each epoch",
        hf="eval_steps eval_strategy",
        rule=">=0",
    )
    patience: int = added(
        0,
        "consecutive validations without improvement on dev after which training stops; 0: never",
        hf="early_stopping_patience",
        rule=">=0",
    )
    precision: str = setting(
        "auto",
        "fp32, bf16, fp16, or auto: bf16 or fp16 on a GPU, bf16 on a CPU with AMX, else fp32; "
        "int8: scoring on a CPU with OpenVINO, if nothing is trained",
        hf="bf16 fp16",
        rule=PRECISIONS,
    )
    deterministic: bool = added(
        False,
        "makes repeated runs on a GPU bit-equal, but slower; on a CPU they always are",
        hf="full_determinism",
    )
    lora_rank: int = added(
        0,
        "rank of LoRA adapters, trained at the backbone's learning rate (about ten times the usual "
        "one) while the encoder is frozen; 0: the whole encoder is trained",
        hf="lora_r",
        rule="[0, 10,000]",
    )
    lora_alpha: float = added(
        0.0, "scale of the adapters, alpha / rank; 0: twice the rank", rule=">=0"
    )
    lora_dropout: float = added(0.0, "dropout probability of the adapters' inputs", rule="[0, 1)")
    lora_targets: tuple[str, ...] = added(
        (),
        "linear layers with adapters, by the last part of their names; empty: all",
        hf="lora_target_modules",
    )
    paired_seeds: bool = setting(
        False, "uses the same order and negatives for a seed in every cell"
    )

    def __post_init__(self) -> None:
        check_types("training", self)
        check_rules("training", self)

    @property
    def filters_negatives(self) -> bool:
        """True if a teacher's scores decide which candidates may be negatives."""
        return bool(self.negatives_share or self.negatives_margin)

    def share_read(self, num_chunks: float) -> float:
        """The mean fraction of a document's chunks that one training step reads."""
        keep = self.passage_keep if self.unit == "passage" else 1 - self.chunk_dropout
        return (1 + keep * (num_chunks - 1)) / num_chunks if num_chunks > 1 else 1.0


def check_training(training: Training, model: str, *, one_chunk_is_firstp: bool) -> None:
    """Raises `BadInput` for settings that contradict each other or would have no effect."""
    by_teacher = training.loss in TEACHER_LOSSES
    if (by_teacher or training.filters_negatives) and not training.teacher:
        name = f"loss={training.loss}" if by_teacher else "negatives_share or negatives_margin"
        raise BadInput(f"training.{name} needs training.teacher, a teacher's run file")
    is_own = is_reference(training.loss)
    if training.teacher and not (by_teacher or is_own or training.filters_negatives):
        raise BadInput(
            f"training.teacher has no effect with training.loss={training.loss}; losses with a "
            f"teacher: {', '.join(TEACHER_LOSSES)}; filters: training.negatives_share, "
            "training.negatives_margin"
        )
    if training.unit == "passage" and training.chunk_dropout:
        raise BadInput(
            "training.chunk_dropout has no effect with training.unit=passage, whose passages are "
            "sampled by training.passage_keep"
        )
    if training.unit == "passage" and not one_chunk_is_firstp:
        raise BadInput(
            f"training.unit=passage needs a model that scores single passages, got {model}; use "
            "training.unit=document"
        )
    if training.unit == "document" and training.passage_keep != Training().passage_keep:
        raise BadInput("training.passage_keep needs training.unit=passage")
    if not training.lora_rank and (
        training.lora_alpha or training.lora_dropout or training.lora_targets
    ):
        raise BadInput(
            "training.lora_alpha, lora_dropout and lora_targets have no effect without "
            "training.lora_rank"
        )
    if training.reset_optimizer and training.schedule == "inverse-epoch":
        raise BadInput(
            "training.schedule=inverse-epoch decays over all epochs and cannot be combined with "
            "training.reset_optimizer, which restarts the schedule in each"
        )
