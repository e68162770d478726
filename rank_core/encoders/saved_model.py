"""What a folder of sentence-transformers says, as `st_folder` reads it: one record for rerankers,
embedding models and late interaction."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rank_core.errors import shown

LIBRARY = "sentence_transformers"
TRANSFORMER_SETTINGS, MODEL_SETTINGS = (
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)
EMBEDS, RANKS = "SentenceTransformer", "CrossEncoder"
"""The model_type of embedding models, and of old files without one; that of rerankers."""
MULTI_VECTOR = ("MultiVectorEncoder", "ColBERT")
"""Those of models with a vector for each token: sentence-transformers' and PyLate's."""
SPARSE = "SparseEncoder"
"""That of models with a weight for each word of a vocabulary."""
HOLDERS = ("Router", "Asym")
"""Modules with modules of their own, in folders within theirs."""


class Module(NamedTuple):
    """A module that `modules.json` names."""

    type: str
    path: str  # its folder, relative

    @property
    def kind(self) -> str:
        """The name of its class."""
        return self.type.rpartition(".")[2]

    @property
    def of_library(self) -> bool:
        """False for one whose code is elsewhere, such as in the folder."""
        return self.type.startswith(f"{LIBRARY}.")

    def __str__(self) -> str:
        return f"{self.kind} ({self.path})" if self.path else self.kind


class Step(NamedTuple):
    """A module behind a Pooling: its class, its folder, and the names of what it reads and
    writes."""

    kind: str
    path: str
    takes: str
    gives: str


def folders_of(folder: Path, modules: Sequence[Module]) -> Iterator[Path]:
    """The folders of modules, and of those within them, but for `folder` itself."""
    for module in modules:
        place = folder / module.path
        if module.path:
            yield place
        if module.kind in HOLDERS:
            yield from sorted(path for path in place.rglob("*") if path.is_dir())


def encoder_path(modules: Sequence[Module]) -> str:
    """The folder of the Transformer, relative; "" without one."""
    return next((module.path for module in modules if module.kind == "Transformer"), "")


@dataclass(frozen=True)
class SavedModel:
    """What a folder says of its model; of one without `modules.json` little more than defaults.

    Examples:
        >>> SavedModel(Path("published")).gives_vectors
        False
    """

    folder: Path  # with modules.json, if there is one
    modules: tuple[Module, ...] = ()
    task: str = EMBEDS  # its model_type; of PyLate also where it is not stated
    scores: bool = False  # it is a reranker, by its task or by its modules
    prompts: tuple[tuple[str, str], ...] = ()  # (name, text); "": none
    default_prompt: str | None = None  # a name
    similarity: str = ""  # "": not stated
    truncate_dim: int | None = None  # dimensions that are kept; None: all
    max_length: int | None = None  # tokens of a row; None: as tokenizer and encoder say
    lowers: bool = False  # texts are lowered (do_lower_case)
    chats: bool = False  # rows are written by a chat template
    template: Mapping[str, Any] = field(default_factory=dict, hash=False)  # what that is given
    pooling: str = ""  # one of POOLINGS, or modes of sentence-transformers joined by +; "": unread
    reads_prompt: bool = True  # the pooling reads the tokens of a prompt
    steps: tuple[Step, ...] = ()  # behind the pooling
    row_problem: str = ""  # why rows here are not those of sentence-transformers; "": they are
    unread: str = ""  # why the chain is not computed here; "": it is
    damage: str = ""  # why nothing but the encoder can be read; "": all can
    notes: tuple[str, ...] = ()  # what a plan says about the reading, in sentences

    @property
    def encoder(self) -> Path:
        """The folder of the Transformer; the folder itself without one."""
        return self.folder / encoder_path(self.modules)

    @property
    def query_prefix(self) -> str:
        """The text that a reranker has before every query by default."""
        return dict(self.prompts).get(self.default_prompt or "", "") if self.task == RANKS else ""

    @property
    def is_stated(self) -> bool:
        """True where `modules.json` says how vectors are made."""
        return bool(self.modules)

    @property
    def is_multi_vector(self) -> bool:
        """True for the modules of a `MultiVectorEncoder`, or of PyLate."""
        return self.is_stated and self.task in MULTI_VECTOR

    @property
    def gives_vectors(self) -> bool:
        """True for the modules of an embedding model."""
        return self.is_stated and not self.other_task

    @property
    def other_task(self) -> str:
        """Why it gives no vectors of texts, in words; "" where it may."""
        stated = f"in {self.folder / MODEL_SETTINGS}"
        if self.task == SPARSE:
            return (
                f"is a {SPARSE} ({stated}), whose weights of words (SPLADE) are not computed here"
            )
        if self.task != EMBEDS:
            return f"is a {shown(self.task)} ({stated})"
        scores = [module for module in self.modules if module.kind == "LogitScore"]
        return f"is a reranker (its module {scores[0]} gives scores)" if scores else ""

    def problem(self, *, has_prompt: bool) -> str:
        """Why the chain is not computed here, over texts that have a prompt or none."""
        if self.unread or self.reads_prompt or not has_prompt:
            return self.unread
        return f"its module {self.modules[1]} leaves out the prompt (include_prompt)"

    @property
    def module_folders(self) -> list[Path]:
        """The folders of all modules but those in `folder` itself."""
        return [*folders_of(self.folder, self.modules)]

    @property
    def described(self) -> str:
        """Its modules, in words."""
        return ", ".join(map(str, self.modules))
