"""What an encoder reads of a batch: the tokens of its rows without padding, and all other integers
of the batch, in one block of memory that one copy brings to a device.

Padded tensors are made on the device, when something reads them: encoders of flat rows do not.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, chain, pairwise, repeat
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rank_core.encoders.flat_rows import FlatRows, host_block, on

# C rows of a batch, L columns of its longest row, T tokens of all rows; N is T and the padding that
# stands within rows.

NUM_SPECIAL = 3  # [CLS] query [SEP] chunk [SEP]
CPU = torch.device("cpu")


class RowSize(NamedTuple):
    """The token counts of a row [CLS] query [SEP] text [SEP]."""

    num_query: int
    num_text: int

    def __len__(self) -> int:
        return self.num_query + self.num_text + NUM_SPECIAL


class EncoderInput:
    """Rows of [CLS] query [SEP] chunk [SEP], padded at the end; every row has real tokens. Facts
    about the rows are also kept on the host: reading them back from a GPU would block."""

    input_ids_CL: Tensor
    attention_mask_CL: Tensor
    token_type_ids_CL: Tensor | None
    query_length_C: Tensor  # query tokens of each row, from position 1 on
    sizes: Sequence[RowSize]  # of each row; empty for rows selected on the device
    query_rows: Sequence[int]  # for each row, the first row with the same query
    texts: Sequence[bytes] = ()  # what identifies each row's text; empty for rows of a device
    width: int  # L
    padded: bool  # False: no position is masked
    flat: FlatRows | None  # the real tokens; None for rows selected on the device

    @property
    def device(self) -> torch.device:
        """The device of its tensors."""
        return self.query_length_C.device

    @property
    def encoder_mask(self) -> Tensor | None:
        """mask_CL for an encoder; None where nothing is masked, which is faster."""
        return self.attention_mask_CL if self.padded else None

    @property
    def words(self) -> tuple[Tensor, Tensor | None]:
        """(ids, segments) of `flat`, each of T tokens or padded."""
        return self.input_ids_CL, self.token_type_ids_CL

    def to(self, device: torch.device) -> "EncoderInput":
        """The input on a device, copied without blocking."""
        raise NotImplementedError


class SelectedRows(EncoderInput):
    """Rows given as padded tensors, such as those that a model selects on the device."""

    def __init__(
        self,
        input_ids_CL: Tensor,
        attention_mask_CL: Tensor,
        token_type_ids_CL: Tensor | None,
        query_length_C: Tensor,
        sizes: Sequence[RowSize] = (),
        query_rows: Sequence[int] = (),
        *,
        padded: bool = True,
        flat: FlatRows | None = None,
    ) -> None:
        self.input_ids_CL = input_ids_CL
        self.attention_mask_CL = attention_mask_CL
        self.token_type_ids_CL = token_type_ids_CL
        self.query_length_C = query_length_C
        self.sizes, self.query_rows = sizes, query_rows
        self.width, self.padded, self.flat = input_ids_CL.shape[1], padded, flat

    def to(self, device: torch.device) -> EncoderInput:
        """The input on a device, copied without blocking."""
        given = (self.input_ids_CL, self.attention_mask_CL, self.token_type_ids_CL)
        ids_CL, mask_CL, segments_CL = (on(device, part) for part in given)
        assert ids_CL is not None and mask_CL is not None
        return SelectedRows(
            ids_CL,
            mask_CL,
            segments_CL,
            on(device, self.query_length_C),
            self.sizes,
            self.query_rows,
            padded=self.padded,
            flat=on(device, self.flat),
        )


class Facts(NamedTuple):
    """What the host knows about the rows of a block."""

    queries: Sequence[NDArray[np.int32]]  # of each row
    texts: Sequence[NDArray[np.int32]]
    num_query_C: NDArray[np.int64]
    num_text_C: NDArray[np.int64]
    real_C: NDArray[np.int64]  # tokens of each row that are not padding
    width: int
    pad_id: int
    has_segments: bool

    @property
    def parts(self) -> list[int]:
        """The sizes of a block's parts: for each token its id, position, place and segment; for
        each row its first token, query tokens, second segment and end; the boundaries of rows."""
        num_tokens, num_rows = int(self.real_C.sum()), len(self.real_C)
        # Two boundaries of 32 bits have the room of one number.
        return [*[num_tokens] * (3 + self.has_segments), *[num_rows] * 4, num_rows // 2 + 1]

    @property
    def size(self) -> int:
        """The numbers of a block."""
        return sum(self.parts)


Numbers = TypeVar("Numbers", Tensor, NDArray[np.int64])


class Parts(NamedTuple, Generic[Numbers]):
    """The parts of a block, as views of it."""

    ids_T: Numbers
    position_T: Numbers  # in its row
    place_T: Numbers  # row * L + column
    segments_T: Numbers | None
    first_C: Numbers  # the first token of each row
    query_length_C: Numbers
    second_C: Numbers  # the column where the second segment begins
    end_C: Numbers  # the column behind each row
    cu_seqlens: Numbers  # int32 (C + 1)


def parts_of(facts: Facts, block: Numbers) -> Parts[Numbers]:
    """The parts of a block of int64, on the host or a device."""
    views = (block[start:end] for start, end in pairwise(accumulate(facts.parts, initial=0)))
    dtype: Any = torch.int32 if isinstance(block, Tensor) else np.int32
    return Parts(
        ids_T=next(views),
        position_T=next(views),
        place_T=next(views),
        segments_T=next(views) if facts.has_segments else None,
        first_C=next(views),
        query_length_C=next(views),
        second_C=next(views),
        end_C=next(views),
        cu_seqlens=next(views).view(dtype)[: len(facts.real_C) + 1],
    )


class LaidOutRows(EncoderInput):
    """Rows whose integers are one block of int64, on the host or a device."""

    def __init__(self, facts: Facts, block: Tensor) -> None:
        self.facts, self.block, self.parts = facts, block, parts_of(facts, block)
        self.query_length_C = self.parts.query_length_C
        self.width = facts.width
        self.padded = len(self.parts.ids_T) < len(facts.real_C) * facts.width

    def to(self, device: torch.device) -> EncoderInput:
        """The input on a device: one copy, without blocking."""
        return LaidOutRows(self.facts, on(device, self.block))

    @property
    def words(self) -> tuple[Tensor, Tensor | None]:
        """(ids_T, segments_T)."""
        return self.parts.ids_T, self.parts.segments_T

    @cached_property
    def input_ids_CL(self) -> Tensor:  # type: ignore[override]  # noqa: N802
        """The padded ids."""
        shape = (len(self.facts.real_C), self.width)
        ids_CL = self.block.new_full(shape, self.facts.pad_id)
        return ids_CL.view(-1).index_copy_(0, self.parts.place_T, self.parts.ids_T).view(shape)

    @cached_property
    def attention_mask_CL(self) -> Tensor:  # type: ignore[override]  # noqa: N802
        """1 at tokens, 0 at padding."""
        mask_CL = self.block.new_zeros(len(self.facts.real_C), self.width)
        return mask_CL.view(-1).index_fill_(0, self.parts.place_T, 1).view(mask_CL.shape)

    @cached_property
    def token_type_ids_CL(self) -> Tensor | None:  # type: ignore[override]  # noqa: N802
        """1 from a row's text to its end, also at padding within; None without segments."""
        if not self.facts.has_segments:
            return None
        place_L = torch.arange(self.width, device=self.device)
        second_CL = (place_L >= self.parts.second_C[:, None]) & (
            place_L < self.parts.end_C[:, None]
        )
        return second_CL.long()

    @cached_property
    def flat(self) -> FlatRows | None:  # type: ignore[override]
        """The real tokens."""
        return FlatRows(
            self.parts.place_T,
            self.parts.position_T,
            self.parts.cu_seqlens,
            self.parts.first_C,
            tuple(self.facts.real_C.tolist()),
            int(self.facts.real_C.max()),
            self.width,
        )

    @cached_property
    def sizes(self) -> Sequence[RowSize]:  # type: ignore[override]
        """The token counts of each row."""
        return tuple(map(RowSize, self.facts.num_query_C.tolist(), self.facts.num_text_C.tolist()))

    @cached_property
    def query_rows(self) -> Sequence[int]:  # type: ignore[override]
        """For each row, the first row with the same query."""
        # Models that encode the query alone do so once for all rows that share it.
        first: dict[bytes, int] = {}
        queries = enumerate(self.facts.queries)
        return tuple(first.setdefault(query.tobytes(), row) for row, query in queries)

    @cached_property
    def texts(self) -> Sequence[bytes]:  # type: ignore[override]
        """The token ids of each row's text."""
        return tuple(text.tobytes() for text in self.facts.texts)


class RowFormat(NamedTuple):
    """The tokens around query and text, and how padding is written."""

    before: int
    between: int
    behind: int
    pad_id: int
    has_segments: bool
    absent: int | None = None  # the id of padding within rows, which is masked
    counts_absent: bool = True  # whether that padding takes a position
    closes_up: bool = False  # whether rows close up over it, as if it had never been there


def lay_out(
    queries: Sequence[NDArray[np.int32]],
    texts: Sequence[NDArray[np.int32]],
    form: RowFormat,
    *,
    device: torch.device = CPU,
    query_alone: Sequence[int] = (),
) -> LaidOutRows:
    """Rows of queries and texts, in memory from which a copy to `device` does not wait. All of a
    row in `query_alone` is in the first segment."""
    num_query_C, num_text_C = (
        np.fromiter(map(len, parts), np.int64, len(parts)) for parts in (queries, texts)
    )
    length_C = num_query_C + num_text_C + NUM_SPECIAL
    width = int(length_C.max())
    own = (form.pad_id, form.has_segments)
    facts = Facts(queries, texts, num_query_C, num_text_C, length_C, width, *own)
    second_C = num_query_C + 2
    second_C[list(query_alone)] = length_C[list(query_alone)]
    if form.absent is None:
        block, numbers = host_block(facts.size, device)
    else:  # rows that contain padding are laid out with it first
        numbers = np.empty(facts.size, np.int64)
    parts = parts_of(facts, numbers)
    start_C = _write_rows(parts, facts, second_C, length_C)
    np.concatenate(_pieces(queries, texts, form), out=parts.ids_T)
    # Sums in place of arrays that are made for a moment: new memory costs more than they do.
    for target_T, jump in ((parts.position_T, 0), (parts.place_T, width)):
        target_T[:] = 1
        target_T[0] = 0
        target_T[start_C[1:]] += jump - length_C[:-1]
        np.cumsum(target_T, out=target_T)
    if parts.segments_T is not None:
        lengths = np.stack([second_C, length_C - second_C], axis=1).ravel()
        parts.segments_T[:] = np.tile([0, 1], len(length_C)).repeat(lengths)
    if form.absent is None:
        return LaidOutRows(facts, block)
    return _without_absent(facts, parts, form, device)


def _write_rows(
    parts: Parts[NDArray[np.int64]],
    facts: Facts,
    second_C: NDArray[np.int64],
    end_C: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The first token of each row, written with all other numbers of rows."""
    behind_C = facts.real_C.cumsum()
    parts.first_C[:] = behind_C - facts.real_C
    parts.query_length_C[:], parts.second_C[:], parts.end_C[:] = facts.num_query_C, second_C, end_C
    parts.cu_seqlens[0], parts.cu_seqlens[1:] = 0, behind_C
    return parts.first_C


def _without_absent(
    facts: Facts, parts: Parts[NDArray[np.int64]], form: RowFormat, device: torch.device
) -> LaidOutRows:
    """The rows without the padding that is in them."""
    present_N = parts.ids_T != form.absent
    real_C = np.add.reduceat(present_N, parts.first_C, dtype=np.int64)
    width = int(real_C.max()) if form.closes_up else facts.width
    facts = facts._replace(real_C=real_C, width=width)
    second_C, end_C = parts.second_C, parts.end_C
    if form.closes_up:
        lost_C = (form.before, form.between).count(form.absent)
        second_C, end_C = second_C - lost_C, real_C
    block, numbers = host_block(facts.size, device)
    real = parts_of(facts, numbers)
    start_C = _write_rows(real, facts, second_C, end_C)
    for target_T, source_N in zip(real[:4], parts[:4], strict=True):
        if target_T is not None and source_N is not None:
            np.compress(present_N, source_N, out=target_T)
    if form.closes_up or not form.counts_absent:
        real.position_T[:] = np.arange(len(real.ids_T)) - start_C.repeat(real_C)
    if form.closes_up:
        real.place_T[:] = real.position_T + (np.arange(len(real_C)) * width).repeat(real_C)
    return LaidOutRows(facts, block)


def _pieces(
    queries: Sequence[NDArray[np.int32]], texts: Sequence[NDArray[np.int32]], form: RowFormat
) -> list[NDArray[np.int32]]:
    """The parts of all rows, in order."""
    before, between, behind = (repeat(np.array([token], np.int32)) for token in form[:3])
    rows = zip(before, queries, between, texts, behind, strict=False)
    return list(chain.from_iterable(rows))
