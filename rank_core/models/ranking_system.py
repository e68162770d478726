"""What the rest of the product knows of a ranking system: attributes of its class, in three groups.

An author sets `label`, `paper` and `family`; every other fact has the value of a model that scores
all windows of a document, and is set where the model differs.
"""

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rank_core.encoders.backbone_types import Backbone
from rank_core.settings.config import Model

if TYPE_CHECKING:  # readers bring torch, which lists and help must not load
    from rank_core.chunking.batches import PairEncoder

BEST_CHUNKS_FIRST: dict[str, Any] = {"model.dropout": 0.0}
"""Without dropout the best chunks are found first, and only they get a gradient."""


class BlocksRead(NamedTuple):
    """The blocks of a document that are read, counted from 0 in document order, and how many it
    has."""

    blocks: tuple[int, ...]
    number: int


class ReadingFacts:
    """What a system reads."""

    pair_encoder: "ClassVar[type[PairEncoder]]"  # chunks and arranges documents
    first_chunk_only: ClassVar[bool] = False
    overlapping_chunks: ClassVar[bool] = True  # False: chunks are disjoint, the stride is unused
    max_chunks: ClassVar[int | None] = None  # maximum per document; None: no limit
    max_query: ClassVar[int | None] = None  # maximum number of query tokens; None: no limit
    limited_window: ClassVar[bool] = True  # chunks must fit the backbone's positions
    reads_tokens: ClassVar[bool] = False  # it needs the last layer's vectors other than [CLS]
    reads_pairs: ClassVar[bool] = True  # query and text share a row; False: each has its own
    takes_flat_rows: ClassVar[bool] = True  # its encoder needs no mask from the model
    reads_by_seed: ClassVar[bool] = False  # the seed decides what is read, trained or not
    retrieves: ClassVar[bool] = False  # it ranks the whole collection and not the candidates
    options: ClassVar[tuple[str, ...]] = ()  # optional settings of `Model` that it uses
    QUIRKS: ClassVar[tuple[str, ...]] = ()  # values of `model.quirks`, where that is an option
    DEFAULT_K: ClassVar[int] = 0  # what `model.k` 0 stands for, where that is an option
    reads: ClassVar[tuple[str, ...]] = ()  # settings that it reads and other systems do not
    unread: ClassVar[tuple[str, ...]] = ()  # further settings without effect on it


class TrainingFacts:
    """How a system trains."""

    trains: ClassVar[bool]  # it has an encoder, weights and chunks
    deterministic: ClassVar[bool] = False  # every seed gives the same run, whatever the settings
    rates: ClassVar[tuple[str, ...]] = ("backbone", "head", "aggregator")  # learning rates it reads
    one_chunk_is_firstp: ClassVar[bool] = False  # equal to FirstP on documents of one chunk
    num_parameters: ClassVar[int | None] = None
    """The published number over BERT-base without its pooler, which the contract tests check; None:
    that of FirstP, or not published."""
    in_fp32: ClassVar[bool] = False  # whatever `training.precision` says
    no_adapters: ClassVar[str] = ""  # why `training.lora_rank` has no effect on it
    chunks_that_learn: int = 0  # the best ones of a document, which receive a gradient; 0: all
    waits: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Settings with which the host waits for the device, because what it then leaves out costs
    more."""


class ServingFacts:
    """How a system is served, and combined with others."""

    chunk_pooling: ClassVar[str] = ""
    """How its score follows from chunk scores alone, as serving.json says it; "" where it does
    not."""
    scores_chunks: ClassVar[bool] = False
    """A chunk's score is the head's of its vector: the trained head of a checkpoint fits."""
    by_score_alone: ClassVar[bool] = True  # its ranking depends on no value that is tuned on dev
    not_interpolated: ClassVar[str] = ""  # why there is no row of it with the first stage


GROUPS = {"reads": ReadingFacts, "trains": TrainingFacts, "served": ServingFacts}


class RankingSystem(ReadingFacts, TrainingFacts, ServingFacts):
    """Base class of every system in `MODELS`."""

    label: ClassVar[str]  # name in tables
    paper: ClassVar[str]  # source
    family: ClassVar[str]  # group in lists
    citation: ClassVar[str] = (
        ""  # title, venue, arXiv number of the paper, where none other cites it
    )
    keeps_chunk_scores: ClassVar[bool] = False  # other aggregations can be computed from its chunks

    def __init_subclass__(cls, **options: Any) -> None:
        # A subclass may compute another score: what is said of its chunk scores is not inherited.
        super().__init_subclass__(**options)
        cls.chunk_pooling = vars(cls).get("chunk_pooling", "")
        if "paper" in vars(cls):
            cls.citation = vars(cls).get("citation", "")

    @classmethod
    def facts_by_group(cls) -> dict[str, dict[str, Any]]:
        """{group: {fact: value}} of the facts in which the class differs from its base class."""
        base = [kind for kind in cls.__mro__ if issubclass(kind, RankingSystem)][-2]
        return {
            name: {
                fact: value
                for fact in group.__annotations__
                if (value := getattr(cls, fact, None)) != getattr(base, fact, None)
            }
            for name, group in GROUPS.items()
        }

    @classmethod
    def selects_blocks(cls, settings: Model) -> bool:
        """True if it scores a document by some of its blocks, which it selects."""
        return False

    @classmethod
    def optional_settings(cls) -> tuple[str, ...]:
        """The optional settings of `Model` that it reads."""
        return cls.options

    @classmethod
    def stated_settings(cls, settings: Model, backbone: Backbone) -> dict[str, Any]:
        """{setting: its value} of the settings that stand for what the backbone's folder says."""
        return {}
