"""T5 rerankers: scores are those of pygaggle's code for the whole text."""

import json
import math

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, T5Tokenizer

from rank_core.encoders import checkpoint
from rank_core.encoders.any_kind import PADDED, is_whole
from rank_core.encoders.backbones import resolve_backbone
from rank_core.encoders.embedder import read_embedder, read_trained
from rank_core.encoders.published_heads import generated_score, unread_head
from rank_core.encoders.t5_rerankers import KINDS
from rank_core.errors import BadInput
from rank_core.export.folder import ExportedModel, read_model, write_model
from rank_core.export.reranker import Reranker
from rank_core.models.build import build_model, is_deterministic
from rank_core.models.checks import check_model
from rank_core.settings.config import TrialConfig
from tests.contracts.small_backbones import random_weights
from tests.rank_core.encoders.test_published_heads import forget

MARKS = ["<pad>", "</s>", "<unk>"]
WORDS = "Query Document Relevant true false yes no sim não".split()
WORDS += "what is amber birch and cedar elm".split()
LETTERS = "abcdefghijklmnopqrstuvwxyzQDR:?.,0123456789"
PIECES = [*MARKS, "▁", *(f"▁{word}" for word in WORDS), *LETTERS]
SIZES = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "local_radius": 7}
SIZES |= {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
QUERY = "what is amber?"
LONG = "elm zebra. is amber 42 and birch? amber is cedar: not elm"
DOCUMENTS = ["birch, and cedar", "amber", LONG]
WINDOW, STRIDE = 6, 4


def write_tokenizer(folder):
    """One of T5, whose pieces begin with the mark of a space."""
    pieces = [(piece, 0.0 if len(piece) > 1 else -10.0) for piece in PIECES]
    tokenizer = T5Tokenizer(vocab=pieces, extra_ids=12)
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def publish(folder, kind="t5", **more):
    folder.mkdir(parents=True)
    size = write_tokenizer(folder)
    config = AutoConfig.for_model(kind, vocab_size=size + 6, **SIZES | more)
    model = AutoModelForSeq2SeqLM.from_config(config)
    random_weights(model)
    model.save_pretrained(folder)
    forget()
    return folder


def their_logits(folder, texts):
    """The last logits of pygaggle's greedy_decode with length 1, text by text."""
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = []
    for text in texts:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        start = torch.full((1, 1), model.config.decoder_start_token_id)
        with torch.inference_mode():
            encoded = model.get_encoder()(ids, attention_mask=torch.ones_like(ids))
            output = model(encoder_outputs=encoded, decoder_input_ids=start)
        rows.append(output.logits[:, -1])
    return torch.cat(rows), tokenizer.get_vocab()


def mono_t5(folder, texts, true="▁true", false="▁false"):
    """MonoT5.rescore."""
    logits, ids = their_logits(folder, [f"Query: {QUERY} Document: {t} Relevant:" for t in texts])
    return torch.log_softmax(logits[:, [ids[false], ids[true]]], dim=1)[:, 1]


def rank_t5(folder, texts):
    logits, ids = their_logits(folder, [f"Query: {QUERY} Document: {t}" for t in texts])
    return logits[:, ids["<extra_id_10>"]]


def config_of(folder, name="maxp", **settings):
    usual = {"model.name": name, "model.backbone": str(folder), "model.dropout": 0.0}
    usual |= {"chunking.window": WINDOW, "chunking.stride": WINDOW if name == "firstp" else STRIDE}
    usual |= {"chunking.max_query_tokens": 8, "training.num_epochs": 0}
    return TrialConfig().override(usual | settings)


def built(config):
    backbone = resolve_backbone(config.model.backbone)
    check_model(config, backbone)
    return build_model(config, backbone, init_seed=1).eval(), backbone


def scores(config, texts=DOCUMENTS):
    model, backbone = built(config)
    return ranked(ExportedModel(model, config, backbone), texts)


def ranked(exported, texts=DOCUMENTS):
    reranker = Reranker(exported, "cpu", "fp32")
    by_text = {one.doc_id: one.score for one in reranker.rank(QUERY, list(texts))}
    return torch.tensor([by_text[i] for i in sorted(by_text)])


def windows(folder, text):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    starts = range(0, max(1, len(ids) - WINDOW + STRIDE), STRIDE)
    return [ids[start : start + WINDOW] for start in starts]


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_pygaggle_for_the_whole_text(kind, tmp_path):
    whole = {"chunking.window": 40, "chunking.stride": 40}
    folder = publish(tmp_path / "monot5-base-msmarco-10k", kind)
    found = scores(config_of(folder, "firstp", **whole))
    expected = mono_t5(folder, DOCUMENTS)
    torch.testing.assert_close(found.sigmoid().log(), expected, atol=1e-5, rtol=0)
    folder = folder.rename(tmp_path / "RankT5-base")
    forget()
    found = scores(config_of(folder, "firstp", **whole))
    torch.testing.assert_close(found, rank_t5(folder, DOCUMENTS), atol=1e-5, rtol=0)


def test_a_document_s_score_is_that_of_its_best_window(tmp_path):
    """Of windows that end within a word, too; batches are padded."""
    folder = publish(tmp_path / "monot5")
    config = config_of(folder)
    model, backbone = built(config)
    assert model.encoder.packing == PADDED and is_whole(model.encoder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text, score in zip(DOCUMENTS, scores(config).tolist(), strict=True):
        before, between, behind = backbone.layout.tokens
        query = tokenizer(QUERY)["input_ids"][:-1]
        cuts = windows(folder, text)
        rows = [[*before, *query, *between, *window, *behind] for window in cuts]
        theirs = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        ids = tokenizer.get_vocab()
        with torch.inference_mode():
            alone = [
                theirs(torch.tensor([row]), decoder_input_ids=torch.zeros(1, 1, dtype=int)).logits
                for row in rows
            ]
        best = max(float(x[0, 0, ids["▁true"]] - x[0, 0, ids["▁false"]]) for x in alone)
        assert score == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize("lora", [0, 2])
@pytest.mark.parametrize(("name", "reference"), [("monot5", mono_t5), ("rankt5", rank_t5)])
def test_a_trained_model_is_a_checkpoint_of_the_same_form(name, reference, lora, tmp_path):
    if lora:
        pytest.importorskip("peft")
    folder = publish(tmp_path / name)
    whole = {"chunking.window": 40, "chunking.stride": 40}
    config = config_of(folder, **{"training.lora_rank": lora, "training.num_epochs": 1}, **whole)
    model, backbone = built(config)
    before = ranked(ExportedModel(model.eval(), config, backbone))
    optimizer = torch.optim.Adam([p for _, p in model.trainable()], lr=3e-3)
    model.train()
    rows = [torch.arange(3, 15)[None], torch.arange(9, 30)[None]]
    losses = []
    for _ in range(6):
        x = torch.cat([model.score(model.encoder(ids).last_hidden_state[:, 0]) for ids in rows])
        loss = (x - torch.tensor([2.0, -2.0])).square().mean()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < losses[0]
    weights = tmp_path / "weights.safetensors"
    learned = {n: w.contiguous().clone() for n, w in model.learned_state().items()}
    save_file(learned, weights, {"backbone": backbone.content_hash})
    write_model(tmp_path / "exported", config, weights)
    found = ranked(ExportedModel(model.eval(), config, backbone))
    assert (found - before).abs().max() > 1e-3
    exported = read_model(tmp_path / "exported")
    torch.testing.assert_close(ranked(exported), found, atol=1e-5, rtol=0)
    theirs = reference(tmp_path / "exported" / "encoder", DOCUMENTS)
    expected = found.sigmoid().log() if reference is mono_t5 else found
    torch.testing.assert_close(theirs, expected, atol=1e-5, rtol=0)
    # as a backbone: by its config.json, not by its name
    again = config_of(tmp_path / "exported", **whole)
    torch.testing.assert_close(scores(again), found, atol=1e-5, rtol=0)
    assert "config.json has true_token_id" in resolve_backbone(again.model.backbone).trained_head


@pytest.mark.parametrize(
    ("name", "true", "false"),
    [
        ("castorini/monot5-3b-msmarco-10k", "▁true", "▁false"),
        ("unicamp-dl/InRanker-base", "▁true", "▁false"),
        ("unicamp-dl/mt5-base-en-pt-msmarco-v2", "▁yes", "▁no"),
        ("unicamp-dl/mt5-base-mmarco-v1", "▁yes", "▁no"),
        ("unicamp-dl/mt5-13b-mmarco-100k", "▁true", "▁"),
        ("unicamp-dl/ptt5-base-pt-msmarco-10k-v1", "▁sim", "▁não"),
    ],
)
def test_the_tokens_are_those_of_the_published_name(name, true, false, tmp_path):
    folder = publish(tmp_path / name)
    found = scores(config_of(folder, "firstp", **{"chunking.window": 40, "chunking.stride": 40}))
    expected = mono_t5(folder, DOCUMENTS, true, false)
    torch.testing.assert_close(found.sigmoid().log(), expected, atol=1e-5, rtol=0)
    backbone = resolve_backbone(str(folder))
    said = generated_score(backbone)
    assert f"'{true}' minus '{false}'" in said
    assert said.endswith('for the text "Query: QUERY Document: CHUNK Relevant:".')
    head = f"read as monoT5, by its name: logit of '{true}' minus '{false}' at the decoder"
    assert head in backbone.trained_head


def test_any_other_t5_is_an_encoder(tmp_path):
    folder = publish(tmp_path / "monot5-lab" / "t5-base")
    backbone = resolve_backbone(str(folder))
    assert (backbone.trained_head, backbone.own_layout) == ("", None)
    assert "is read so where its name says it, or its config.json has" in unread_head(backbone)
    with pytest.raises(BadInput, match=r"would rank at random.*trained as monoT5"):
        scores(config_of(folder))


def test_two_names_of_one_folder_are_two_models(tmp_path):
    folder = publish(tmp_path / "monot5-base")
    hashes = set()
    for name in ("monot5-base", "rankt5-base", "t5-base"):
        folder = folder.rename(tmp_path / name)
        forget()
        hashes.add(resolve_backbone(str(folder)).content_hash)
    assert len(hashes) == 3


def test_tokens_that_are_not_there_are_refused(tmp_path):
    folder = publish(tmp_path / "monot5")
    stated = json.loads((folder / "config.json").read_text())
    for token in (-1, 10**6, "true", True):
        changed = json.dumps(stated | {"true_token_id": token})
        (folder / "config.json").write_text(changed)
        forget()
        with pytest.raises(BadInput, match="must have a token of the vocabulary as true_token_id"):
            resolve_backbone(str(folder))


def test_a_model_of_vectors_reads_the_encoder_alone(tmp_path):
    folder = publish(tmp_path / "monot5")
    config = config_of(folder, "parade-max", **{"training.num_epochs": 1})
    model, _ = built(config)
    assert not is_whole(model.encoder) and "T5EncoderModel" in type(model.encoder).__name__
    assert is_deterministic(config_of(folder), resolve_backbone(str(folder)))


def test_a_reranker_is_no_embedding_model_and_any_other_t5_is(tmp_path):
    reranker = publish(tmp_path / "monot5")
    with pytest.raises(BadInput, match=r"T5ForConditionalGeneration .*which scores or classifies"):
        read_embedder(str(reranker))
    trained = read_trained(str(reranker), "find: ", None)
    plain = read_embedder(str(publish(tmp_path / "t5-base")), query_prompt="find: ")
    facts = ("pooling", "query_prompt", "document_prompt", "similarity", "is_stated")
    assert [getattr(trained, name) for name in facts] == [getattr(plain, name) for name in facts]


def test_the_package_that_a_tokenizer_needs_is_named(tmp_path, monkeypatch):
    folder = publish(tmp_path / "monot5")
    (folder / "tokenizer.json").unlink()
    (folder / "spiece.model").write_bytes(b"\n")
    monkeypatch.setattr(checkpoint, "find_spec", lambda name: None)
    forget()
    with pytest.raises(BadInput, match=r"spiece.model is read by .*: pip install sentencepiece"):
        resolve_backbone(str(folder))


def test_weights_of_several_names_count_once(tmp_path):
    """Large embeddings under a small encoder, as mT5's."""
    folder = publish(tmp_path / "monot5", **dict.fromkeys(("d_ff", "d_kv", "num_heads"), 1))
    counted = checkpoint.shapes("monot5", folder)
    assert sum(map(math.prod, counted.values())) * 2 < 4 * math.prod(counted["shared.weight"])
    resolve_backbone(str(folder))
