"""The settings of one trial: frozen, typed, validated, changed only by `override`.

Those of training are in `training`.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from numbers import Real
from typing import Any, get_type_hints

from rank_core.errors import BadInput, shown, unknown
from rank_core.settings.checks import added, choice, require, setting
from rank_core.settings.training import Training

__all__ = [
    "Chat",
    "Chunking",
    "Evaluation",
    "Model",
    "Training",
    "TrialConfig",
    "checked_setting",
    "parse_setting",
    "setting_types",
]

NUMERICS_VERSION = 4
"""Raised when equal settings give other numbers on purpose (CHANGELOG, "Numbers that changed")."""

NO_PART_OF_A_CELL = (
    "training.micro_batch_tokens",
    "training.deterministic",
    "training.keep_weights",
    "training.keep_run",
    "evaluation.batch_tokens",
    "evaluation.keep_chunk_scores",
    "chat.key_variable",
    "chat.requests_per_minute",
    "chat.input_price",
    "chat.output_price",
)
"""Settings that change no number of a trial, or its rounding only."""

LARGEST: Mapping[Any, float] = {int: 1e15, float: 1e300}
"""Every number is smaller: JSON, tables and tensors hold it, and the difference of any two."""
OVERFLOWS = ("first", "first-last-sampled")
PROTOCOLS = ("openai", "anthropic")


@dataclass(frozen=True)
class Model:
    """The ranker: an entry of `MODELS` over an encoder."""

    name: str = setting("maxp", "the ranking system: `ranksweep models` lists them", hf="model")
    backbone: str = setting(
        "tiny", "`tiny`, a Hugging Face id, or a local folder", hf="model_name_or_path model_name"
    )
    dropout: float = setting(
        0.1, "of the encoder and of the head", hf="hidden_dropout_prob classifier_dropout"
    )
    # Each of these is refused by a model that does not use it (`Ranker.options`).
    aggregator: str = added("", "encoder over the vectors of chunks: a folder or id")
    interaction: str = added("", "encoder over query and chunk tokens: a folder or id")
    selector: str = added("", "how blocks are chosen")
    selector_backbone: str = added("", "the encoder that chooses blocks: a folder or id")
    pool: str = added("", "cls, mean or last; empty: what suits the backbone")
    chunk_scores: str = added("", "probability: what is pooled of a chunk is P(relevant)")
    k: int = added(0, "chunks, blocks or sentences that count; 0: the model's own number")
    stage: str = added("", "of a model that is trained in stages")
    quirks: tuple[str, ...] = added((), "of reference implementations, reproduced by name")

    def __post_init__(self) -> None:
        require(
            0 <= self.dropout < 1,
            f"0 <= model.dropout < 1 must hold, got model.dropout={self.dropout}",
        )


@dataclass(frozen=True)
class Chunking:
    """The cut of a document. All sizes in model tokens, without query and special tokens."""

    window: int = setting(150, "tokens of a chunk", hf="max_seq_length max_length model_max_length")
    stride: int = setting(
        75,
        "tokens between the starts of neighbouring chunks (a tokenizer's `stride` is their "
        "overlap, window - stride)",
        hf="doc_stride",
    )
    max_chunks: int = setting(0, "chunks of a document at most; 0: no limit")
    max_document_tokens: int = setting(1431, "a longer document is cut here first")
    max_query_tokens: int = setting(32, "a longer query is cut here", hf="max_query_length")
    overflow: str = setting(
        "first", "which chunks a document of more than max_chunks keeps: " + ", ".join(OVERFLOWS)
    )

    def __post_init__(self) -> None:
        require(
            0 < self.stride <= self.window,
            "0 < chunking.stride <= chunking.window must hold, "
            f"got chunking.stride={self.stride}, chunking.window={self.window}",
        )
        for name, least in (("max_chunks", 0), ("max_document_tokens", 1), ("max_query_tokens", 1)):
            value = getattr(self, name)
            require(
                value >= least, f"chunking.{name} >= {least} must hold, got chunking.{name}={value}"
            )
        choice("chunking.overflow", self.overflow, OVERFLOWS)


@dataclass(frozen=True)
class Evaluation:
    """Reranking and measures. The first measure chooses the checkpoint, on dev only."""

    measures: tuple[str, ...] = setting(
        ("nDCG@10", "RR@10"),
        "in the spelling of ir_measures (`ranksweep measures`); the first one chooses the "
        "checkpoint, on dev",
        hf="metric_for_best_model metrics",
    )
    depth: int = setting(100, "candidates of a query that are reranked", hf="top_k")
    max_dev_queries: int = setting(
        0, "a sample by the hash of their ids; 0: all", hf="max_eval_samples"
    )
    max_test_queries: int = setting(0, "a sample by the hash of their ids; 0: all")
    batch_tokens: int = setting(
        0,
        "encoder tokens of one scoring batch; 0: what suits the device",
        hf="per_device_eval_batch_size eval_batch_size",
    )
    folds: int = added(
        0,
        "cross-validation over the judged queries of all splits, a model for each fold; the folds "
        "share the limits above. 0: the collection's own splits",
    )
    keep_chunk_scores: bool = added(
        False, "keeps the scores of chunks for `ranksweep derive DIR`: other aggregations, no model"
    )

    def __post_init__(self) -> None:
        require(
            self.folds == 0 or self.folds >= 3,
            "evaluation.folds must be 0 (the collection's own splits) or at least 3 (one to test, "
            f"one to choose by, the others to train on), got {self.folds}",
        )
        require(
            len(self.measures) > 0 and all(self.measures),
            f"evaluation.measures must name at least one measure, got {self.measures}",
        )
        for name, least in (
            ("depth", 1),
            ("max_dev_queries", 0),
            ("max_test_queries", 0),
            ("batch_tokens", 0),
        ):
            value = getattr(self, name)
            require(
                value >= least,
                f"evaluation.{name} >= {least} must hold, got evaluation.{name}={value}",
            )


@dataclass(frozen=True)
class Chat:
    """The language model that `rankgpt` asks, and how much it is shown. Keys are never settings:
    `key_variable` names the environment variable that holds one."""

    protocol: str = added("openai", "openai (any server that speaks it) or anthropic")
    base_url: str = added("https://api.openai.com/v1", "where the server is")
    model: str = added("gpt-4o-mini", "the model's name at the server")
    key_variable: str = added(
        "OPENAI_API_KEY",
        "the environment variable that holds the key; empty: the server asks for none",
    )
    max_words: int = added(300, "of a document: FirstP's; 900 words show about three windows")
    window: int = added(20, "documents of one question")
    step: int = added(10, "documents between questions")
    requests_per_minute: float = added(0.0, "questions a minute at most; 0: no limit")
    input_price: float = added(0.0, "of a million tokens, for the ledger of costs")
    output_price: float = added(0.0, "of a million tokens, for the ledger of costs")

    def __post_init__(self) -> None:
        choice("chat.protocol", self.protocol, PROTOCOLS)
        require(
            0 < self.step < self.window,
            "0 < chat.step < chat.window must hold, "
            f"got chat.step={self.step}, chat.window={self.window}",
        )
        require(
            self.max_words > 0, f"chat.max_words > 0 must hold, got chat.max_words={self.max_words}"
        )


@dataclass(frozen=True)
class TrialConfig:
    """One trial: a configuration and a seed. Everything that affects its numbers is in here,
    except the contents of the collection and of the backbone, which `fingerprint` adds."""

    collection: str = setting(
        "python-docs",
        "a name (`ranksweep collections`), a folder, an ir_datasets id (docs/data.md)",
        hf="dataset_name",
    )
    model: Model = field(default_factory=Model)
    chunking: Chunking = field(default_factory=Chunking)
    training: Training = field(default_factory=Training)
    evaluation: Evaluation = field(default_factory=Evaluation)
    chat: Chat = field(default_factory=Chat)
    seed: int = setting(1, "given by --seeds or --num-seeds")

    def override(self, settings: Mapping[str, Any]) -> "TrialConfig":
        """A copy with dotted settings changed: `override({"chunking.window": 75})`."""
        nested: dict[str, dict[str, Any]] = {}
        top: dict[str, Any] = {}
        for name, value in settings.items():
            section, _, leaf = name.rpartition(".")
            changed = nested.setdefault(section, {}) if section else top
            changed[leaf] = checked_setting(name, value)
        sections = {
            name: dataclasses.replace(getattr(self, name), **changes)
            for name, changes in nested.items()
        }
        return dataclasses.replace(self, **sections, **top)

    def settings(self) -> dict[str, Any]:
        """Every setting under its dotted name, in declaration order."""
        flat: dict[str, Any] = {}
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, dict):
                flat.update({f"{name}.{leaf}": item for leaf, item in value.items()})
            else:
                flat[name] = value
        # 1 and 1.0 are the same setting and must name the same cell.
        types = setting_types()
        return {k: float(v) if types[k] is float else v for k, v in flat.items()}

    def fingerprint(
        self, *, collection_hash: str, backbone_hash: str, contents: Mapping[str, str] | None = None
    ) -> str:
        """12 hex digits that name the cell: all settings but the seed, and the inputs' contents.

        `contents` has the hash of each other file that a setting names, under the setting's name.
        """
        inputs = {"collection": collection_hash, "model.backbone": backbone_hash}
        settings = self._naming() | inputs | dict(contents or {})
        del settings["seed"]
        return _hash([NUMERICS_VERSION, settings])

    def training_hash(
        self, *, backbone_hash: str, contents: Mapping[str, str] | None = None
    ) -> str:
        """12 hex digits over what shapes the trained model; names the cell's random streams, which
        must not move when only the evaluation changes."""
        settings = self._naming() | {"model.backbone": backbone_hash} | dict(contents or {})
        del settings["training.paired_seeds"]
        shaping = ("model.", "chunking.", "training.")
        return _hash({name: value for name, value in settings.items() if name.startswith(shaping)})

    def _naming(self) -> dict[str, Any]:
        """The settings that name a cell, and the seed."""
        return {
            name: value
            for name, value in self.settings().items()
            if name not in NO_PART_OF_A_CELL and _ADDED.get(name, ...) != value
        }


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Setting:
    """A declared setting."""

    name: str  # dotted
    kind: Any  # int, float, str, bool or tuple[str, ...]
    default: Any
    text: str  # what it is, for docs/settings.md
    aliases: tuple[str, ...]  # what trainers of Hugging Face call it
    added: bool  # later: at its default no part of a cell's name


@cache
def declared_settings() -> tuple[Setting, ...]:
    """Every setting, in declaration order."""
    found = []
    for name, section in get_type_hints(TrialConfig).items():
        nested = dataclasses.is_dataclass(section)
        owner, prefix = (section, f"{name}.") if nested else (TrialConfig, "")
        types = get_type_hints(owner)
        for leaf in dataclasses.fields(owner):
            if nested or leaf.name == name:
                about = leaf.metadata
                found.append(
                    Setting(
                        f"{prefix}{leaf.name}",
                        types[leaf.name],
                        leaf.default,
                        about.get("text", ""),
                        tuple(about.get("hf", "").split()),
                        about.get("added", False),
                    )
                )
    return tuple(found)


def setting_types() -> dict[str, Any]:
    """{dotted setting: type}, in declaration order."""
    return {one.name: one.kind for one in declared_settings()}


def setting_aliases() -> dict[str, list[str]]:
    """{name that trainers of Hugging Face use: the settings that it stands for}."""
    found: dict[str, list[str]] = {}
    for one in declared_settings():
        for alias in one.aliases:
            found.setdefault(alias, []).append(one.name)
    return found


def setting_type(name: str) -> Any:
    """The type of the setting called `name`."""
    types = setting_types()
    if name not in types:
        raise unknown("setting", name, types, setting_aliases())
    return types[name]


def parse_setting(name: str, text: str) -> Any:
    """The value of a setting from its text on a command line, which is typed here and nowhere else;
    `BadInput` where there is no such setting or the text is none of its type."""
    kind = setting_type(name)
    if kind == tuple[str, ...]:
        # A comma inside brackets belongs to a measure: AP(rel=2,judged_only=True).
        return tuple(word for word in re.split(r",(?![^(]*\))", text) if word)
    try:
        value = _WORDS[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise _wrong_type(name, kind, text) from None
    return checked_setting(name, value)


def checked_setting(name: str, value: Any) -> Any:
    """A value that is of its setting's type, or stands for one as in JSON: a list for a tuple, 16.0
    for 16, 1 for 1.0."""
    kind = setting_type(name)
    if name in _FORMERLY and isinstance(value, bool):
        return _FORMERLY[name][value]
    if kind == tuple[str, ...] and isinstance(value, (list, tuple)):
        return tuple(value)
    if kind in (int, float) and isinstance(value, Real) and not isinstance(value, bool):
        limit: Any = LARGEST[kind]
        if not -limit < value < limit and value == value:
            raise BadInput(f"|{name}| < {limit:.0e} must hold, got {shown(value)}")
        if value == value and (kind is float or float(value).is_integer()):
            return kind(value)
    elif kind in (str, bool) and isinstance(value, kind):
        return value
    raise _wrong_type(name, kind, value)


def _wrong_type(name: str, kind: Any, value: Any) -> BadInput:
    return BadInput(f"{name} must be {_ARTICLES[kind]}, got {shown(value)}")


_ADDED = {one.name: one.default for one in declared_settings() if one.added}
_FORMERLY = {"training.keep_weights": {True: "all", False: "none"}}
"""Values of settings in the files of earlier trials."""
_ARTICLES = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    tuple[str, ...]: "a list of texts",
}
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
