"""What a system reads is declared: two values of a setting give other results, or they are said to
mean the same (`effective_settings`), and then the results are equal to the bit.

The random streams of a trial follow from its settings, so no two cells are ever equal. Here all
four (initial weights, order, negatives, dropout) are the same for every configuration.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rank_core.chunking.inputs import load_inputs
from rank_core.data.load import load_collection
from rank_core.data.trec import in_rank_order, write_run
from rank_core.encoders.backbone_types import Backbone
from rank_core.errors import BadInput
from rank_core.models import MODELS, model_class
from rank_core.models.checks import check_model
from rank_core.models.list_rankers import ListRanker
from rank_core.models.reading import effective_settings
from rank_core.ranking.scorer import evaluated_queries
from rank_core.records import EVALUATED
from rank_core.settings.config import NO_PART_OF_A_CELL, TrialConfig, setting_types
from rank_core.training.train import Streams
from rank_core.trial.fold_model import FoldModel
from rank_core.trial.trial_result import ModelResult
from sweeps.plan.experiment import suited

STREAMS = Streams(init=1, order=2, negatives=3, dropout=4)
WORKLOAD = {  # four steps of two epochs, validated once at the end
    "training.num_epochs": 2,
    "training.epoch_steps": 2,
    "training.loss": "ranknet",  # whose gradient is never 0
    "training.warmup": 0.5,
    "training.batch_size": 2,
    "training.validate_every": 4,
    "training.keep_weights": "none",
    "chunking.max_document_tokens": 120,
    "evaluation.depth": 6,
    "evaluation.max_dev_queries": 2,
    "evaluation.max_test_queries": 3,
}


@dataclass(frozen=True)
class Case:
    """Two values of a setting, beside other settings that it may need."""

    setting: str
    values: tuple[Any, Any]
    under: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        under = "".join(f", {name}={value}" for name, value in self.under.items())
        return f"{self.setting}={self.values[0]} and {self.values[1]}{under}"


def cases(section: str, under: dict[str, Any] | None = None, /, **values: Any) -> list[Case]:
    return [Case(f"{section}.{name}", own, under or {}) for name, own in values.items()]


SELECTING = {  # blocks of longer documents
    "model.selector": "bm25",
    "chunking.max_document_tokens": 400,
    "chunking.window": 20,
    "chunking.stride": 20,
}
ONE_EPOCH = {"training.num_epochs": 1, "training.epoch_steps": 4}
UNTRAINED = {"training.num_epochs": 0}
TEACHER, NEGATIVES, WEIGHTS = "<teacher>", "<negatives>", "<weights>"  # files, made below
TAUGHT = {"training.loss": "margin-mse", "training.teacher": TEACHER}
CASES = [
    *cases(
        "model",
        dropout=(0.0, 0.3),
        pool=("cls", "mean"),
        k=(1, 2),
        maxsim=("", "window"),
        chunk_scores=("", "probability"),
        head=("auto", "new"),
        quirks=((), ("padded-rows",)),
        selector=("bm25", "tfidf"),
        stage=("passages", "document"),
        query_prompt=("auto", "find: "),
        document_prompt=("auto", "text: "),
        truncate_dim=(0, 3),
        stored=("fp32", "binary"),
    ),
    *cases(
        "chunking",
        window=(40, 30),
        stride=(20, 15),
        max_chunks=(0, 2),
        overflow=("first", "first-last-sampled"),
        max_document_tokens=(120, 30),
        max_query_tokens=(32, 2),
        overlap=(0.0, 0.5),
        snap=(False, True),
    ),
    *cases("evaluation", depth=(6, 3), max_dev_queries=(2, 4), max_test_queries=(3, 4)),
    *cases(
        "training",
        num_epochs=(2, 1),
        epoch_steps=(2, 1),
        max_steps=(0, 3),
        batch_size=(2, 1),
        backbone_learning_rate=(1e-3, 2e-3),
        head_learning_rate=(1e-2, 2e-2),
        aggregator_learning_rate=(1e-3, 2e-3),
        interaction_learning_rate=(0.0, 2e-3),
        weight_decay=(0.0, 0.5),
        schedule=("constant", "linear"),
        warmup=(0.0, 0.5),
        warmup_backbone=(True, False),
        epoch_decay=(1.0, 0.5),
        reset_optimizer=(False, True),
        loss=("ranknet", "pairwise-softmax"),
        negatives=(1, 2),
        margin=(0.01, 3.0),
        teacher=("", TEACHER),
        passage_keep=(0.1, 0.9),
        chunk_dropout=(0.0, 0.9),
        labels=("qrels", "first-stage"),
        depth=(0, 3),
        negatives_below=(0, 3),
        negatives_from=((), (NEGATIVES,)),
        init_from=("", WEIGHTS),
        gradient_clip=(1.0, 0.01),
        precision=("fp32", "bf16"),
        lora_rank=(0, 2),
        lora_alpha=(0.0, 1.0),
        lora_dropout=(0.0, 0.5),
        lora_targets=((), ("query",)),
    ),
    *cases("chunking", {"chunking.max_chunks": 2}, overflow=("first", "first-last-sampled")),
    *cases("training", TAUGHT, negatives_share=(0.0, 0.5), negatives_margin=(0.0, 1.0)),
    *cases(
        "training",
        {"training.lora_rank": 2},
        lora_alpha=(0.0, 1.0),
        lora_dropout=(0.0, 0.5),
        lora_targets=((), ("query",)),
    ),
    *cases(
        "training",
        {"training.unit": "passage"},
        passage_keep=(0.1, 0.9),
        chunk_dropout=(0.0, 0.9),
    ),
    # Enough groups that some passage after the first is drawn.
    *cases(
        "training",
        {"training.epoch_steps": 8, "training.batch_size": 4},
        unit=("document", "passage"),
    ),
    *cases("training", {"training.loss": "pairwise-margin"}, margin=(1e-6, 3.0)),
    *cases("training", {"training.warmup": 0.0}, warmup_backbone=(True, False)),
    *cases(
        "training",
        ONE_EPOCH,
        epoch_decay=(1.0, 0.5),
        reset_optimizer=(False, True),
        schedule=("one-cycle", "one-cycle-last-epoch"),
    ),
    *cases("training", ONE_EPOCH, schedule=("constant", "inverse-epoch")),
    *cases("training", ONE_EPOCH, schedule=("constant", "one-cycle-linear-last-epoch")),
    *cases(
        "training",
        ONE_EPOCH | {"training.schedule": "one-cycle-last-epoch", "training.warmup": 0.5},
        warmup_backbone=(True, False),
    ),
    *cases(
        "training",
        ONE_EPOCH | {"training.warmup_backbone": False, "training.warmup": 0.5},
        schedule=("one-cycle", "one-cycle-last-epoch"),
    ),
    *cases(
        "training",
        UNTRAINED,
        batch_size=(2, 1),
        loss=("pairwise-margin", "ranknet"),
        negatives=(1, 2),
        lora_rank=(0, 2),
        precision=("fp32", "bf16"),
        backbone_learning_rate=(1e-3, 2e-3),
        depth=(0, 3),
        init_from=("", WEIGHTS),
    ),
    *cases("model", UNTRAINED, dropout=(0.0, 0.3)),
    # A default beside its own value.
    *cases("model", k=(0, 3), pool=("", "cls")),
    *cases("model", pool=("", "mean")),
    *cases("model", query_prompt=("auto", ""), document_prompt=("auto", "")),
    *cases("training", depth=(0, 6), interaction_learning_rate=(0.0, 1e-3)),
    *cases("training", {"training.lora_rank": 2}, lora_alpha=(0.0, 4.0)),
]
OTHERS = {
    "collection",
    "seed",
    "model.name",
    "model.backbone",
    "model.aggregator",
    "model.interaction",
    "model.selector_backbone",
    "chunking.title",  # of collections that have titles
    "evaluation.measures",
    "evaluation.folds",
    "evaluation.folds_file",
    "evaluation.runtime",  # in test_openvino_runtime.py
    "training.validate_every",
    "training.patience",
    "training.paired_seeds",
    *NO_PART_OF_A_CELL,
}
"""Settings that name data or code, count data, or change no result."""


@dataclass
class Reading:
    """The results of a model by its settings."""

    name: str
    base: TrialConfig
    backbone: Backbone
    workdir: Path
    files: dict[str, str]

    def __post_init__(self) -> None:
        self.inputs = load_inputs(self.base.collection, self.base.model.backbone)
        self.seen: dict[TrialConfig, Any] = {}

    def configs(self, case: Case) -> list[TrialConfig]:
        """The two configurations of a case; raises `BadInput` where they cannot be."""
        settings = [{**case.under, case.setting: value} for value in case.values]
        return [self.base.override(self._named(own)) for own in settings]

    def _named(self, settings: dict[str, Any]) -> dict[str, Any]:
        def named(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(named, value))
            return self.files.get(value, value) if isinstance(value, str) else value

        return {name: named(value) for name, value in settings.items()}

    def result(self, config: TrialConfig) -> Any:
        """The scores of dev and test, to the bit."""
        if config not in self.seen:
            self.seen[config] = self._computed(config)
        return self.seen[config]

    def _computed(self, config: TrialConfig) -> dict[str, Any]:
        kind = model_class(self.name)
        if not issubclass(kind, ListRanker):
            [*_, result] = FoldModel(config, self.inputs, STREAMS).run(self.workdir)
            assert isinstance(result, ModelResult)
            return {name: {q: dict(own) for q, own in r.items()} for name, r in result.runs.items()}
        runs = {}
        for name in EVALUATED:
            split = self.inputs.collection.splits[name]
            wanted = evaluated_queries(self.inputs.collection, name, config.evaluation)
            queries = {query: split.queries[query] for query in wanted}
            documents = self.inputs.collection.documents
            ranker = kind(config, self.workdir)
            ranker.inputs = self.inputs
            runs[name] = dict(ranker.rank(queries, documents, split.candidates))
        return runs

    def problem(self, case: Case) -> str:
        """What is wrong with the declarations of a case; "" where they are true, "refused" where
        the values cannot be."""
        try:
            configs = self.configs(case)
            for config in configs:
                check_model(config, self.backbone)
        except BadInput:
            return "refused"
        first, second = (effective_settings(own, self.backbone) for own in configs)
        equal = self.result(configs[0]) == self.result(configs[1])
        if equal == (first == second):
            return ""
        return f"{case}: {'equal results' if equal else 'other results'}, said to be otherwise"


def accepted(config: TrialConfig, backbone: Backbone) -> bool:
    with suppress(BadInput):
        check_model(config, backbone)
        return True
    return False


@pytest.fixture
def reading(
    small_trial: TrialConfig, backbone: Backbone, tmp_path: Path
) -> Callable[[str], Reading]:
    def of(name: str) -> Reading:
        own = {"model.name": name} | (SELECTING if name.startswith("keyb") else {})
        base = small_trial.override(WORKLOAD | own)
        apart = base.override({"chunking.stride": base.chunking.window})
        base = next((own for own in (base, apart) if accepted(own, backbone)), base)
        base = base.override(suited(base, backbone))
        files = {name: str(tmp_path / name.strip("<>")) for name in (TEACHER, NEGATIVES, WEIGHTS)}
        candidates = load_collection(base.collection).splits["train"].candidates
        qrels = load_collection(base.collection).splits["train"].qrels
        # Of three candidates that are not relevant one is close to the relevant ones.
        scores = {
            query: {
                d: 10.0 if qrels[query].get(d) else 9.5 - 3 * (n % 3) for n, d in enumerate(own)
            }
            for query, own in candidates.items()
        }
        write_run(Path(files[TEACHER]), {q: in_rank_order(own) for q, own in scores.items()}, "t")
        fewer = {query: dict([*own.items()][2:]) for query, own in candidates.items()}
        write_run(Path(files[NEGATIVES]), fewer, "n")
        found = Reading(name, base, backbone, tmp_path, files)
        if not issubclass(model_class(name), ListRanker):
            kept = base.override({"training.keep_weights": "all"})
            [*_] = FoldModel(kept, found.inputs, Streams(5, 6, 7, 8)).run(Path(files[WEIGHTS]))
        return found

    return of


QUICK = {
    "bm25": CASES,
    "maxp": [c for c in CASES if c.setting.startswith(("training.aggregator", "training.margin"))],
    "bi-encoder": [c for c in CASES if c.setting.endswith(("_prompt", ".truncate_dim", ".pool"))],
    "kmax-avgp": [c for c in CASES if c.setting in ("model.k", "model.pool", "model.head")],
}
"""{model: the cases that the quick tests take}; the whole law takes minutes."""
LONG = sorted(name for name in MODELS if name != "rankgpt")  # which asks a server


def test_every_setting_has_a_case():
    chat = {name for name in setting_types() if name.startswith("chat.")}
    assert {case.setting for case in CASES} | OTHERS | chat == {*setting_types()}


@pytest.mark.parametrize(
    ("name", "own"),
    [
        *((name, own) for name, own in QUICK.items()),
        *(pytest.param(name, CASES, marks=[pytest.mark.long, pytest.mark.slow]) for name in LONG),
    ],
    ids=[*(f"{name} quick" for name in QUICK), *LONG],
)
def test_two_values_differ_or_are_said_to_mean_the_same(name, own, reading):
    model = reading(name)
    found = [model.problem(case) for case in own]
    wrong = [text for text in found if text not in ("", "refused")]
    print(f"{name}: {len(found)} pairs, {found.count('refused')} refused", *wrong, sep="\n  ")
    assert not wrong, "\n".join(wrong)
