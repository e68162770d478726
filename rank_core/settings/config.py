"""The settings of one trial: frozen, typed, validated, changed only by `override`."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, get_type_hints

from rank_core.arguments import by_name, takes
from rank_core.errors import unknown
from rank_core.settings.checks import (
    BOOLEANS,
    added,
    check_rules,
    check_types,
    require,
    setting,
    typed,
    wrong_type,
)
from rank_core.settings.training import INT8, Training

RUNTIMES = ("auto", "torch", "openvino")
STORED = ("fp32", "int8", "binary")
"""Precisions of the vectors of an index."""

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
"""Incremented when the same settings give other numbers on purpose (CHANGELOG.md)."""
MODEL_NUMERICS = {"bi-encoder": 5, "bm25-rm3": 5, "cedr-pacrr": 5, "co-pacrr": 5}
"""The next version, of the models that alone give other numbers: trials of the rest stay."""

NO_PART_OF_A_CELL = (
    "training.micro_batch_tokens",
    "training.deterministic",
    "training.keep_weights",
    "training.keep_run",
    "evaluation.batch_tokens",
    "evaluation.keep_chunk_scores",
    "evaluation.keep_selected_blocks",
    "evaluation.evidence",
    "evaluation.test_on",
    "evaluation.test_alpha",
    "chat.key_variable",
    "chat.requests_per_minute",
    "chat.input_price",
    "chat.output_price",
)
"""Settings that change no result of a trial beyond rounding."""

AUTO = "auto"
"""The backbone that `rank_core.models.reading.with_encoder` replaces."""
AS_STATED = "auto"
"""A prompt as the folder of an embedding model says it."""
FILES = (
    "training.init_from",
    "training.teacher",
    "training.negatives_from",
    "evaluation.folds_file",
)
"""Settings that name files or folders of files."""
OVERFLOWS = ("first", "first-last-sampled")
PROTOCOLS = ("openai", "anthropic")


BEST_WINDOW = "window"
MAXSIM = ("", BEST_WINDOW)
HEADS = ("auto", "checkpoint", "classifier", "new")
ALPHA_OF = TRAINING_DEV, OWN_DEV = ("training", "own")


@dataclass(frozen=True)
class Model:
    """The ranker: a model of the zoo and its backbone."""

    name: str = setting("maxp", "the ranking system: `ranksweep models` lists them", hf="model")
    backbone: str = setting(
        AUTO,
        "a Hugging Face id, a local folder or `tiny-docs` (shipped); `auto`: all-MiniLM-L6-v2, "
        "`tiny-docs` over the embedded collections and where no encoder is read",
        hf="model_name_or_path model_name",
    )
    dropout: float = setting(
        0.1,
        "dropout probability of the encoder and the head",
        hf="hidden_dropout_prob classifier_dropout",
        rule="[0, 1)",
    )
    # A model rejects those of the following that it does not use (`Ranker.options`).
    aggregator: str = added("", "encoder over chunk vectors: a folder or a Hugging Face id")
    interaction: str = added(
        "", "encoder over query and chunk tokens: a folder or a Hugging Face id"
    )
    selector: str = added("", "how key blocks are selected")
    selector_backbone: str = added(
        "", "encoder that selects key blocks: a folder or a Hugging Face id"
    )
    pool: str = added("", "pooling of token vectors: cls, mean or last; empty: the backbone's")
    query_prompt: str = added(
        AS_STATED,
        "text before a query: `auto`: as the folder of the embedding model says; `@NAME`: the one "
        "of its prompts that has this name; `@@text`: a text that begins with @; empty: none",
    )
    document_prompt: str = added(AS_STATED, "text before a chunk: as `model.query_prompt`")
    truncate_dim: int = added(
        0,
        "first dimensions of a vector that are kept; 0: as the folder says, else all",
        rule=">=0",
    )
    stored: str = added(
        "fp32",
        "precision of the vectors of an index: fp32, int8 (256 steps for each dimension) or binary "
        "(its sign); the query stays in fp32",
        rule=STORED,
    )
    maxsim: str = added(
        "",
        "where a query's token finds its most similar one: `window`: in each window, of which the "
        "best scores; empty: in all windows of a document",
        rule=MAXSIM,
    )
    chunk_scores: str = added(
        "", "`probability` pools P(relevant) of each chunk; empty pools its score"
    )
    k: int = added(0, "number of chunks, blocks or sentences used; 0: the model's default")
    stage: str = added("", "training stage, for models trained in stages")
    quirks: tuple[str, ...] = added(
        (), "deviations of a reference implementation to reproduce, by name"
    )
    head: str = added(
        "auto",
        "`auto`: the trained head of a published reranker if the model scores chunks, else a new "
        "one; `checkpoint`: the trained head, refused if there is none; `classifier`: the head of "
        "the architecture, which other servers load, random if it is not trained; `new`: random",
        rule=HEADS,
    )

    def __post_init__(self) -> None:
        check_types("model", self)
        check_rules("model", self)

    @property
    def given_prompts(self) -> dict[str, str | None]:
        """The prompts of an embedding model by their names; None: as its folder says."""
        given = {"query_prompt": self.query_prompt, "document_prompt": self.document_prompt}
        return {name: None if prompt == AS_STATED else prompt for name, prompt in given.items()}


@dataclass(frozen=True)
class Chunking:
    """The chunking of documents. Sizes in tokens of the backbone, without query and special
    tokens."""

    window: int = setting(150, "tokens of a chunk", hf="max_seq_length max_length model_max_length")
    stride: int = setting(
        75,
        "tokens between the starts of neighbouring chunks (a tokenizer's `stride` is their "
        "overlap, window - stride)",
        hf="doc_stride",
    )
    max_chunks: int = setting(0, "maximum number of chunks of a document; 0: no limit", rule=">=0")
    max_document_tokens: int = setting(
        1431, "longer documents are truncated to this length before chunking", rule=">0"
    )
    max_query_tokens: int = setting(
        32, "longer queries are truncated to this length", hf="max_query_length", rule=">0"
    )
    overflow: str = setting(
        "first",
        "which chunks are kept of a document with more than max_chunks: " + ", ".join(OVERFLOWS),
        rule=OVERFLOWS,
    )
    # Read by dense retrieval alone, in place of the stride.
    overlap: float = added(
        0.0,
        "share of a window's tokens that the next one repeats: 0.25 of 256 is 64",
        rule="[0, 1)",
    )
    snap: bool = added(
        False, "windows end where a sentence or a paragraph ends, and may be shorter"
    )
    title: bool = added(
        False, "each chunk begins with its document's title, which counts as part of the window"
    )

    @property
    def windows(self) -> str:
        """`150/75`; one number where windows do not overlap."""
        return f"{self.window}" if self.stride == self.window else f"{self.window}/{self.stride}"

    def __post_init__(self) -> None:
        check_types("chunking", self)
        both = (
            f": give both, such as chunking.stride={self.window}, which is also that of models "
            "that read no stride"
        )
        require(
            0 < self.stride <= self.window,
            "0 < chunking.stride <= chunking.window must hold, "
            f"got chunking.stride={self.stride}, chunking.window={self.window}"
            f"{both if self.window > 0 else ''}",
        )
        check_rules("chunking", self)


@dataclass(frozen=True)
class Evaluation:
    """Reranking and measures. The first measure selects the checkpoint, on dev only."""

    measures: tuple[str, ...] = setting(
        ("nDCG@10", "RR@10"),
        "ir_measures names (`ranksweep measures`), or yours: module:function; the first selects "
        "the checkpoint, on dev",
        hf="metric_for_best_model metrics",
    )
    depth: int = setting(100, "number of candidates reranked per query", hf="top_k", rule=">0")
    max_dev_queries: int = setting(
        0,
        "size of a sample of the dev queries, drawn by id hash; 0: all",
        hf="max_eval_samples",
        rule=">=0",
    )
    max_test_queries: int = setting(
        0, "size of a sample of the test queries, drawn by id hash; 0: all", rule=">=0"
    )
    batch_tokens: int = setting(
        0,
        "encoder tokens per scoring batch; 0: chosen for the device",
        hf="per_device_eval_batch_size eval_batch_size",
        rule=">=0",
    )
    folds: int = added(
        0,
        "number of cross-validation folds over the judged queries of all splits, one model per "
        "fold; the query limits above apply to all folds together. 0: the collection's own splits",
    )
    folds_file: str = added(
        "",
        "file with the fold of each judged query (query_id, fold), such as published folds; "
        "evaluation.folds is their number. Empty: the folds that a collection publishes, or dealt "
        "by the ids of its queries",
    )
    evidence: str = added(
        "auto",
        "share of the relevant text that the best chunks contain within 1,024, 2,048 and 4,096 "
        "tokens (dense retrieval): `auto`: if the positions of relevant text are known; `yes`: "
        "refused if they are not; `no`",
        rule=("auto", "yes", "no"),
    )
    runtime: str = added(
        "auto",
        "library that computes the encoder if nothing is trained: torch, openvino (on a CPU), or "
        "auto: openvino for training.precision=int8, else torch",
        rule=RUNTIMES,
    )
    keep_chunk_scores: bool = added(
        False, "keeps chunk scores, so that `ranksweep derive` can aggregate them without the model"
    )
    keep_selected_blocks: bool = added(
        False,
        "keeps the positions of the blocks that a model selects from the test candidates, which "
        "are selected a second time for it; the report draws them",
    )
    test_on: tuple[str, ...] = added(
        (),
        "further collections whose test queries each finished trial ranks with its weights: "
        "names as of `collection`, `NAME:dev` for another split; not part of the cell",
    )
    test_alpha: str = added(
        ALPHA_OF[0],
        "dev queries that choose the weight of the first stage on `evaluation.test_on`: training: "
        "those of the collection that the model was trained on; own: those of the test collection",
        rule=ALPHA_OF,
    )

    def __post_init__(self) -> None:
        check_types("evaluation", self)
        require(
            self.folds == 0 or self.folds >= 3,
            "evaluation.folds must be 0 (the collection's own splits) or at least 3 (one for "
            f"testing, one for validation, the rest for training), got {self.folds}",
        )
        require(
            self.folds > 0 or not self.folds_file,
            "evaluation.folds_file needs evaluation.folds, the number of folds in the file",
        )
        require(
            len(self.measures) > 0 and all(self.measures),
            f"evaluation.measures must name at least one measure, got {self.measures}",
        )
        check_rules("evaluation", self)


@dataclass(frozen=True)
class Chat:
    """The chat model of `rankgpt`, and how much text it is shown. API keys are never settings:
    `key_variable` names the environment variable that holds the key."""

    protocol: str = added(
        "openai",
        "API of the server: openai (or any compatible server) or anthropic",
        rule=PROTOCOLS,
    )
    base_url: str = added("https://api.openai.com/v1", "URL of the server")
    model: str = added("gpt-4o-mini", "the model's name on the server")
    key_variable: str = added(
        "OPENAI_API_KEY", "the environment variable that holds the API key; empty: no key"
    )
    max_words: int = added(
        300,
        "maximum number of words shown of a document; 900 words are about three windows",
        rule=">0",
    )
    window: int = added(20, "documents per request")
    step: int = added(10, "documents between the starts of consecutive requests")
    requests_per_minute: float = added(
        0.0, "maximum number of requests per minute; 0: no limit", rule=">=0"
    )
    input_price: float = added(
        0.0, "price of a million input tokens, for the cost ledger", rule=">=0"
    )
    output_price: float = added(
        0.0, "price of a million output tokens, for the cost ledger", rule=">=0"
    )

    def __post_init__(self) -> None:
        check_types("chat", self)
        # Neither a URL with a password nor the value of key_variable, perhaps a key, is shown.
        host = r"([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?"
        url = rf"https?://{host}(/[\w.~!$&'()*+,;=:%/-]*)?"
        require(
            re.fullmatch(url, self.base_url, re.ASCII) is not None,
            "chat.base_url must be http(s)://host[:port][/path] without user, password or query; "
            "put the key into the environment",
        )
        require(
            re.fullmatch(r"([A-Z_][A-Z0-9_]*)?", self.key_variable) is not None,
            "chat.key_variable must be the name of an environment variable in capitals, such as "
            "OPENAI_API_KEY, never the key itself",
        )
        require(bool(self.model), "chat.model must name the chat model, got an empty name")
        require(
            0 < self.step < self.window,
            "0 < chat.step < chat.window must hold, "
            f"got chat.step={self.step}, chat.window={self.window}",
        )
        check_rules("chat", self)


@dataclass(frozen=True)
class TrialConfig:
    """One trial: a configuration and a seed. They determine its numbers, together with the contents
    of the collection and of the backbone, which `fingerprint` adds.

    Examples:
        >>> import ranksweep
        >>> config = ranksweep.TrialConfig(collection="python-docs", seed=2)
        >>> config.model.name, config.training.num_epochs
        ('maxp', 1)
    """

    collection: str = setting(
        "python-docs",
        "a name (`ranksweep collections`), a folder or an ir_datasets id (docs/data.md)",
        hf="dataset_name",
    )
    model: Model = field(default_factory=Model)
    chunking: Chunking = field(default_factory=Chunking)
    training: Training = field(default_factory=Training)
    evaluation: Evaluation = field(default_factory=Evaluation)
    chat: Chat = field(default_factory=Chat)
    seed: int = setting(1, "seed of the random streams; set by --seeds or --num-seeds")

    def __post_init__(self) -> None:
        check_types("", self)

    @takes(settings=by_name("{dotted setting: value}"))
    def override(self, settings: Mapping[str, Any]) -> "TrialConfig":
        """A copy with dotted settings changed: `override({"chunking.window": 75})`. Raises
        `BadInput` for an unknown setting, another type or a value outside its range.

        Examples:
            >>> import ranksweep
            >>> config = ranksweep.TrialConfig().override({"model.name": "firstp", "seed": 3})
            >>> config.model.name, config.seed
            ('firstp', 3)
        """
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
        """{dotted setting: value}, in declaration order.

        Examples:
            >>> import ranksweep
            >>> ranksweep.TrialConfig().settings()["evaluation.measures"]
            ('nDCG@10', 'RR@10')
        """
        return {
            # 1 and 1.0 are the same setting and must name the same cell.
            name: float(value) if kind is float else value
            for (name, kind), value in zip(setting_types().items(), _values()(self), strict=True)
        }

    def fingerprint(
        self, *, collection_hash: str, backbone_hash: str, contents: Mapping[str, str] | None = None
    ) -> str:
        """12 hex digits that name the cell: a hash of its inputs' contents and of all settings but
        the seed. `contents` maps a setting that names another file to that file's hash."""
        inputs = {"collection": collection_hash, "model.backbone": backbone_hash}
        settings = self._naming() | inputs | dict(contents or {})
        del settings["seed"]
        version = max(NUMERICS_VERSION, MODEL_NUMERICS.get(self.model.name, 0))
        return _hash([version, settings])

    def meaning(self) -> dict[str, Any]:
        """The settings that a cell's name stands for: all but the seed and those that change no
        number of a trial."""
        return {
            name: value
            for name, value in self.settings().items()
            if name not in NO_PART_OF_A_CELL and name != "seed"
        }

    def training_hash(
        self, *, backbone_hash: str, contents: Mapping[str, str] | None = None
    ) -> str:
        """12 hex digits over all that determines the trained model. They seed the cell's random
        streams, so that these stay the same when only the evaluation changes."""
        settings = self._naming() | {"model.backbone": backbone_hash} | dict(contents or {})
        del settings["training.paired_seeds"]
        shaping = ("model.", "chunking.", "training.")
        return _hash({name: value for name, value in settings.items() if name.startswith(shaping)})

    def _naming(self) -> dict[str, Any]:
        """The seed and the settings that name a cell."""
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
    kind: Any  # its type: int, float, str, bool or tuple[str, ...]
    default: Any
    text: str  # description for docs/settings.md
    aliases: tuple[str, ...]  # names in Hugging Face trainers
    added: bool  # see `checks.added`
    rule: str | tuple[str, ...]  # its choices or an entry of `checks.RULES`; empty: any value
    accepts_code: bool  # it may name a user's code, `module:name`


@cache
def declared_settings() -> tuple[Setting, ...]:
    """Every setting, in declaration order."""
    settings = []
    for name, section in get_type_hints(TrialConfig).items():
        nested = dataclasses.is_dataclass(section)
        owner, prefix = (section, f"{name}.") if nested else (TrialConfig, "")
        types = get_type_hints(owner)
        for leaf in dataclasses.fields(owner):
            if nested or leaf.name == name:
                about = leaf.metadata
                settings.append(
                    Setting(
                        f"{prefix}{leaf.name}",
                        types[leaf.name],
                        leaf.default,
                        about.get("text", ""),
                        tuple(about.get("hf", "").split()),
                        about.get("added", False),
                        about.get("rule", ""),
                        about.get("accepts_code", False),
                    )
                )
    return tuple(settings)


def runtime_of(config: TrialConfig) -> str:
    """What computes the encoder of a configuration: one of `RUNTIMES` but auto."""
    return chosen_runtime(config.evaluation.runtime, config.training.precision)


def chosen_runtime(runtime: str, precision: str) -> str:
    """What `auto` is for a precision; any other runtime as it is."""
    if runtime != "auto":
        return runtime
    return "openvino" if precision == INT8 else "torch"


@cache
def setting_types() -> Mapping[str, Any]:
    """{dotted setting: type}, in declaration order."""
    return MappingProxyType({declared.name: declared.kind for declared in declared_settings()})


@cache
def _values() -> Callable[[TrialConfig], tuple[Any, ...]]:
    """What reads the values of all settings, in declaration order."""
    return attrgetter(*setting_types())


def setting_aliases() -> dict[str, list[str]]:
    """{name in Hugging Face trainers: the settings that it corresponds to}."""
    names: dict[str, list[str]] = {}
    for declared in declared_settings():
        for alias in declared.aliases:
            names.setdefault(alias, []).append(declared.name)
    return names


def setting_type(name: str) -> Any:
    """The type of a setting; raises `BadInput` for an unknown name."""
    types = setting_types()
    if name not in types:
        raise unknown("setting", name, types, setting_aliases())
    return types[name]


def parse_setting(name: str, text: str) -> Any:
    """The value of a setting from its text on a command line. Raises `BadInput` for an unknown
    setting and for a text that is not of its type."""
    kind = setting_type(name)
    if kind == tuple[str, ...]:
        # A comma inside brackets belongs to a measure: AP(rel=2,judged_only=True).
        return tuple(word for word in re.split(r",(?![^(]*\))", text) if word)
    try:
        value = BOOLEANS[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise wrong_type(name, kind, text) from None
    return checked_setting(name, value)


def checked_setting(name: str, value: Any) -> Any:
    """The value, converted to its setting's type (`checks.typed`). Raises `BadInput` for any other
    type."""
    return typed(name, setting_type(name), value)


_ADDED = {declared.name: declared.default for declared in declared_settings() if declared.added}
