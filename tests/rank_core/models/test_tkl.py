"""TKL: pieces, windows and peaks against values worked out by hand."""

import torch
from torch.testing import assert_close

from rank_core.models.word_vectors import peaks, slide
from rank_core.settings.config import Chunking

MODEL = "tkl"
CHUNKING = Chunking(window=300, stride=300, max_document_tokens=300)


def mask_of(*lengths):
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def test_windows_of_30_tokens_start_every_2_until_one_reaches_the_end():
    # Token d activates the one kernel by d; what stands at padding must not count.
    near = torch.arange(35.0).view(1, 1, 35, 1).repeat(3, 1, 1, 1)
    windows = slide(near, mask_of(35, 30, 3))
    # ceil((35 - 30) / 2) + 1 = 4 windows of the first document; one of each other.
    assert windows.mask_BW.tolist() == [[True] * 4, [True] + [False] * 3, [True] + [False] * 3]
    assert windows.length_BW[0].tolist() == [30, 30, 30, 29]
    assert windows.length_BW[1:, 0].tolist() == [30, 3]
    # 0 + .. + 29 = 435; each start 2 later adds 60; the last one lacks place 35: 435 + 180 - 35.
    count = windows.count_BQWK[:, 0, :, 0]
    assert_close(count[0], torch.tensor([435.0, 495.0, 555.0, 580.0]))
    assert_close(count[1:, 0], torch.tensor([435.0, 3.0]))


def test_peaks_share_no_token_and_bring_their_neighbours():
    # Windows start every 2 tokens and have 30: they share none from 15 windows on.
    score = torch.zeros(1, 40)
    score[0, 20] = 9.0
    score[0, 34] = 8.0  # 14 away: it shares tokens with the first peak
    score[0, 35] = 7.0
    score[0, 1] = 3.0
    place_BNP, found_BNP = peaks(score, torch.ones(1, 40, dtype=torch.bool))
    assert place_BNP[0, 0].tolist() == [20, 35, 1]
    assert place_BNP[0, :, 0].tolist() == [20, 19, 21, 18, 22]
    # The peak at 1 has one neighbour before it.
    assert found_BNP[0].T.tolist() == [[True] * 5, [True] * 5, [True, True, True, False, True]]


def test_short_documents_have_fewer_peaks_and_padding_is_none():
    score = torch.tensor([[1.0, 2.0, 50.0, 60.0], [-5.0, -6.0, -7.0, -8.0]])
    mask = torch.tensor([[True, True, False, False], [True] * 4])
    place_BNP, found_BNP = peaks(score, mask)
    assert place_BNP[:, 0, 0].tolist() == [1, 0]
    assert found_BNP[:, 0].tolist() == [[True, False, False]] * 2
    # Peak 1 of two windows: itself and the one before; peak 0 of four: itself, 1 and 2.
    assert found_BNP[0, :, 0].tolist() == [True, True, False, False, False]
    assert found_BNP[1, :, 0].tolist() == [True, False, True, False, True]


def test_a_token_sees_its_piece_and_5_tokens_around_it(model):
    generator = torch.Generator().manual_seed(5)
    text = torch.randn(1, 90, 32, generator=generator)
    other = text.clone()
    other[0, 50] += 1.0
    with torch.inference_mode():
        changed = model.in_pieces(text, mask_of(90)) != model.in_pieces(other, mask_of(90))
    # Place 50 is in the piece 40..79, and 10 places behind the end of 0..39.
    assert changed.any(2)[0].nonzero().squeeze(1).tolist() == list(range(40, 80))
    other = text.clone()
    other[0, 44] += 1.0
    with torch.inference_mode():
        changed = model.in_pieces(text, mask_of(90)) != model.in_pieces(other, mask_of(90))
    assert changed.any(2)[0].nonzero().squeeze(1).tolist() == list(range(80))


def test_the_score_is_the_weighted_sum_of_the_peaks(model, score, monkeypatch):
    # 92 tokens have (92 - 30) / 2 + 1 = 32 windows. Scores given by hand: peaks at 31, 16 and 1,
    # with every neighbour that exists worth 1 and weights 1 to 15.
    given = torch.ones(1, 32)
    given[0, [31, 16, 1]] = torch.tensor([30.0, 20.0, 10.0])
    monkeypatch.setattr(model, "window_scores", lambda *_: given)
    with torch.inference_mode():
        model.peak_weights[:] = torch.arange(1.0, 16.0).view(5, 3)
    # Rows are the peak itself (weights 1 2 3), then places -1, +1, -2, +2. The first peak is the
    # last window, the third the second window.
    expected = 30 * 1 + 20 * 2 + 10 * 3
    expected += (4 + 5 + 6) + (8 + 9) + (10 + 11) + (14 + 15)
    assert score([10], list(range(5, 97))).tolist() == [expected]


def test_every_position_of_a_document_affects_the_score(model, score):
    # Similar words alone are good: the one match makes the best window, wherever it stands.
    with torch.inference_mode():
        model.context.mixing.fill_(1.0)
        model.head.weight.zero_()
        model.head.weight[0, 0] = 1.0
    plain = [50] * 200
    [before] = score([10, 11], plain)
    for place in (0, 77, 150, 199):
        text = list(plain)
        text[place] = 10
        assert score([10, 11], text)[0] > before + 1e-3
