"""Long encoders: BigBird row by row, Longformer's global tokens."""

import shutil

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import AutoConfig, BigBirdModel, LongformerModel

from rank_core.chunking.batches import Chunk
from rank_core.encoders.backbones import load_encoder, resolve_backbone
from rank_core.settings.config import Chunking
from tests.contracts.small_backbones import make_backbone

CHUNKING = Chunking(window=80, stride=80, max_document_tokens=80, max_query_tokens=8)
DOCUMENTS = {}
QUERY = np.arange(10, 16, dtype=np.int32)


@pytest.fixture(scope="module")
def bird_folder(tmp_path_factory):
    """A BigBird that is sparse beyond (5 + 2) x 4 = 28 tokens."""
    return make_backbone("big_bird", tmp_path_factory.mktemp("bird")).folder


def of_transformers(kind, folder, **settings):
    """The model of transformers in training mode, without dropout."""
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    return kind.from_pretrained(folder, add_pooling_layer=False, **rates, **settings).train()


@pytest.fixture
def bird(bird_folder):
    return load_encoder(resolve_backbone(str(bird_folder)), 0.0).eval()


def rows(*lengths):
    """ids_CL and mask_CL of rows of random tokens, padded to the longest."""
    generator = torch.Generator().manual_seed(sum(lengths))
    ids = torch.randint(4, 50, (len(lengths), max(lengths)), generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": ids.where(mask == 1, 1), "attention_mask": mask}


def output(encoder, batch):
    with torch.inference_mode():
        return encoder(**batch).last_hidden_state


@pytest.mark.parametrize("lengths", [(28, 3, 11), (29,), (44,), (47,), (90,)])
def test_rows_of_big_bird_have_the_attention_of_transformers(lengths, bird, bird_folder):
    how = "original_full" if len(lengths) > 1 else "block_sparse"
    theirs = of_transformers(BigBirdModel, bird_folder, attention_type=how)
    batch = rows(*lengths)
    for trained in (False, True):  # the same random blocks; a short batch leaves it sparse
        found, real = output(bird.train(trained), batch), batch["attention_mask"].bool()
        assert_close(found[real], output(theirs, batch)[real], atol=1e-5, rtol=0)
        output(bird, rows(9, 5))


def test_a_big_bird_of_full_attention_is_read_as_its_configuration_says(bird_folder, tmp_path):
    full = AutoConfig.from_pretrained(bird_folder, attention_type="original_full")
    shutil.copytree(bird_folder, tmp_path / "full")
    full.save_pretrained(tmp_path / "full")
    encoder = load_encoder(resolve_backbone(str(tmp_path / "full")), 0.0)
    encoder.save_pretrained(tmp_path / "again")
    for name in tokenizer_files(bird_folder):
        shutil.copyfile(bird_folder / name, tmp_path / "again" / name)
    again = load_encoder(resolve_backbone(str(tmp_path / "again")), 0.0)
    for lengths in ((90, 3, 57), (44,)):
        batch = rows(*lengths)
        theirs = of_transformers(BigBirdModel, tmp_path / "full")
        real = batch["attention_mask"].bool()
        for ours in (encoder, again):
            found = output(ours.eval(), batch)[real]
            assert_close(found, output(theirs, batch)[real], atol=1e-5, rtol=0)


def tokenizer_files(folder):
    return [path.name for path in folder.glob("tokenizer*")]


def test_longformer_has_global_attention_on_cls_query_and_first_sep(tmp_path):
    folder = make_backbone("longformer", tmp_path).folder
    encoder = load_encoder(resolve_backbone(str(folder)), 0.0).eval()
    batch = rows(40, 23)
    for row, place in enumerate((7, 4)):  # the first [SEP], then the one at the end
        batch["input_ids"][row, [place, (39, 22)[row]]] = 2
    wanted = torch.zeros_like(batch["input_ids"])
    wanted[0, :8] = wanted[1, :5] = 1
    theirs = of_transformers(LongformerModel, folder).eval()
    real = batch["attention_mask"].bool()
    expected = output(theirs, batch | {"global_attention_mask": wanted})[real]
    assert_close(output(encoder, batch)[real], expected, atol=1e-5, rtol=0)
    assert (output(theirs, batch)[real] - expected).abs().max() > 1e-3


def test_a_row_is_pooled_as_asked(system):
    models = {pool: system("longp", pool=pool)[0] for pool in ("", "cls", "mean", "last")}
    _, pairs = system("longp")
    texts = (np.arange(20, 45, dtype=np.int32), np.arange(30, 33, dtype=np.int32))
    inputs = pairs.layout([Chunk(QUERY, text) for text in texts])
    with torch.inference_mode():
        x = {pool: model.encode(inputs) for pool, model in models.items()}
        hidden_CLH = models["mean"].hidden(inputs)
    # Row 1 has 6 + 3 tokens and 3 special ones, so its last one is at place 11.
    assert_close(x["cls"], hidden_CLH[:, 0], atol=1e-5, rtol=1e-5)
    assert torch.equal(x[""], x["cls"])
    assert_close(x["mean"][1], hidden_CLH[1, :12].sum(0) / 12)
    assert_close(x["last"], torch.stack([hidden_CLH[0, 33], hidden_CLH[1, 11]]))
