"""Rows as one flat row of tokens: where each token is, by hand."""

import numpy as np
import torch

from rank_core.encoders.flat_rows import flat_rows


def test_rows_are_concatenated_without_padding() -> None:
    rows = flat_rows(np.array([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]]))
    assert rows.place_T.tolist() == [0, 1, 2, 4, 8, 9, 10, 11]
    assert rows.position_T.tolist() == [0, 1, 2, 0, 0, 1, 2, 3]
    assert rows.cu_seqlens.tolist() == [0, 3, 4, 8] and rows.cu_seqlens.dtype == torch.int32
    assert rows.first_C.tolist() == [0, 3, 4]
    assert rows.lengths == (3, 1, 4) and rows.max_length == 4


def test_padding_within_a_row_is_excluded_and_takes_a_position_if_asked() -> None:
    mask_CL = np.array([[1, 0, 1, 1, 0]])
    assert flat_rows(mask_CL).position_T.tolist() == [0, 1, 2]
    assert flat_rows(mask_CL, count_padding=True).position_T.tolist() == [0, 2, 3]
    assert flat_rows(mask_CL).place_T.tolist() == [0, 2, 3]
