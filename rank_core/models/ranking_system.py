"""What the rest of the product knows of a ranking system: attributes of its class, which trained
models and systems without weights share."""

from typing import Any, ClassVar, NamedTuple

from rank_core.encoders.backbone_types import Backbone
from rank_core.settings.config import Model

BEST_CHUNKS_FIRST: dict[str, Any] = {"model.dropout": 0.0}
"""Without dropout the best chunks are found first, and only they get a gradient."""


class BlocksRead(NamedTuple):
    """The blocks of a document that are read, counted from 0 in document order, and how many it
    has."""

    blocks: tuple[int, ...]
    number: int


class RankingSystem:
    """Base class of every system in `MODELS`."""

    label: ClassVar[str]  # name in tables
    paper: ClassVar[str]  # source
    family: ClassVar[str]  # group in lists
    trains: ClassVar[bool]  # it has an encoder, weights and chunks
    deterministic: ClassVar[bool] = False  # every seed gives the same run, whatever the settings
    reads: ClassVar[tuple[str, ...]] = ()  # settings that it reads and other systems do not
    retrieves: ClassVar[bool] = False  # it ranks the whole collection and not the candidates
    options: ClassVar[tuple[str, ...]] = ()  # optional settings of `Model` that it uses
    first_chunk_only: ClassVar[bool] = False
    one_chunk_is_firstp: ClassVar[bool] = False  # equal to FirstP on documents of one chunk
    max_chunks: ClassVar[int | None] = None  # maximum per document; None: no limit
    chunk_pooling: ClassVar[str] = ""
    """How its score follows from chunk scores alone, as serving.json says it; "" where it does
    not."""
    DEFAULT_K: ClassVar[int] = 0  # what `model.k` 0 stands for, where that is an option
    keeps_chunk_scores: ClassVar[bool] = False  # other aggregations can be computed from its chunks
    not_interpolated: ClassVar[str] = ""  # why there is no row of it with the first stage
    by_score_alone: ClassVar[bool] = True  # its ranking depends on no value that is tuned on dev
    waits: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Settings with which the host waits for the device, because what it then leaves out costs
    more."""

    def __init_subclass__(cls, **options: Any) -> None:
        # A subclass may compute another score: what is said of its chunk scores is not inherited.
        super().__init_subclass__(**options)
        cls.chunk_pooling = vars(cls).get("chunk_pooling", "")
        cls.keeps_chunk_scores = vars(cls).get("keeps_chunk_scores", False)

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
