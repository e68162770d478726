"""PARADE's transformers: sequences and positions, second encoders, and late interaction."""

import copy
import shutil
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from transformers import BertConfig, BertModel, ElectraConfig, ElectraModel, LlamaConfig, LlamaModel

from rank_core.chunking.batches import Chunk
from rank_core.encoders import backbones
from rank_core.errors import BadInput
from rank_core.models import check_model, model_class
from rank_core.models.build import build_model
from rank_core.models.vector_encoders import Part, pack, random_body, read_first
from rank_core.ranking.encode import Work, score_documents
from rank_core.settings.config import Chunking, Model, Training, TrialConfig
from rank_core.testing.laws import QUERY, tokens
from rank_core.testing.laws import scores as scores_of
from rank_core.training.optimizer import build_optimizer

CHUNKING = Chunking(window=20, stride=10, max_document_tokens=60, max_query_tokens=8)
OVER_VECTORS = ("parade-transformer-pretrained", "parade-transformer-query")
SECOND = (*OVER_VECTORS, "parade-late-interaction")
TRANSFORMERS = ("parade-transformer", "parade-transformer-l3", *SECOND)


DOCUMENTS = {f"d{n}": tokens(n, n) for n in (0, 1, 13, 34, 55)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory, backbone_folder):
    """Second encoders: BERT of another width, ELECTRA with narrow embeddings, a decoder."""
    root, sizes = tmp_path_factory.mktemp("second"), {"vocab_size": 150}
    wide = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    places = {"max_position_embeddings": 40}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        made = {
            "bert": BertModel(BertConfig(hidden_size=16, **wide, **sizes, **places)),
            "electra": ElectraModel(
                ElectraConfig(hidden_size=24, embedding_size=12, **wide, **sizes, **places)
            ),
            "llama": LlamaModel(LlamaConfig(hidden_size=16, **wide, **sizes, **places)),
        }
        for name, model in made.items():
            shutil.copytree(backbone_folder, root / name)
            model.save_pretrained(root / name)
    return {name: str(root / name) for name in made}


@pytest.fixture
def config(backbone):
    """A trial of a model with some settings changed."""

    def build(name, chunking=CHUNKING, **model):
        return TrialConfig(
            model=Model(name, backbone=str(backbone.folder), **model), chunking=chunking
        )

    return build


@pytest.fixture
def pair(config, backbone):
    """(model, reader) with weights of a size that lets every place look at all others."""

    def build(name, **settings):
        trial = config(name, **settings)
        model = build_model(trial, backbone, init_seed=1).eval()
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for part in ("aggregator", "interaction"):
                for parameter in getattr(model, part, torch.nn.Module()).parameters():
                    parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
        return model, model_class(name).reader(trial, backbone, DOCUMENTS)

    return build


def scores(model, reader, *doc_ids, query=QUERY):
    return scores_of(model, reader, doc_ids, query)


def test_a_sequence_has_no_gaps_and_closes_every_part():
    c, sep = torch.full((3,), 1.0), torch.full((3,), 2.0)
    x_BQH, x_BPH = torch.arange(12.0).view(2, 2, 3) + 10, torch.arange(18.0).view(2, 3, 3) + 50
    mask_BQ = torch.tensor([[True, False], [True, True]])
    mask_BP = torch.tensor([[True, True, False], [True, True, True]])
    parts = [Part(x_BQH, mask_BQ, 0), Part(x_BPH, mask_BP, 1)]
    x_BTH, mask_BT, segment_BT = pack(torch.stack([c, sep]), parts)
    first = torch.stack([c, sep, x_BQH[0, 0], sep, x_BPH[0, 0], x_BPH[0, 1], sep])
    second = torch.stack([c, sep, *x_BQH[1], sep, *x_BPH[1], sep])
    assert torch.equal(x_BTH[0, :7], first)
    assert torch.equal(x_BTH[1], second)
    assert mask_BT.sum(1).tolist() == [7, 9]
    assert segment_BT.tolist() == [[0, 0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1, 1, 0]]


def test_padding_is_not_read():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        body = random_body(16, 2, 4, 0.0).eval()
        special_2H, x_BPH = torch.randn(2, 16), torch.randn(2, 4, 16)
    mask_BP = torch.tensor([[True] * 4, [True, True, False, False]])
    changed = x_BPH.masked_fill(~mask_BP[:, :, None], 9.0)
    before, after = (read_first(body, special_2H, [Part(x, mask_BP, 1)]) for x in (x_BPH, changed))
    assert torch.equal(before, after)
    alone = read_first(body, special_2H, [Part(x_BPH[1:, :2], mask_BP[1:, :2], 1)])
    assert_close(after[1:], alone, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_the_score_is_read_at_cs_position(pair, name):
    model, reader = pair(name)
    before = scores(model, reader, *DOCUMENTS)
    noise = torch.randn(32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        model.special_2H[0] += noise  # at random: LayerNorm hides a constant shift
    assert (scores(model, reader, *DOCUMENTS) - before).abs().min() > 1e-3


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_every_chunk_and_its_position_matter(pair, backbone, name):
    model, reader = pair(name)
    texts = [tokens(50 + i, 20) for i in range(4)]
    documents = [texts, texts[::-1]]
    documents += [[*texts[:j], tokens(99, 20), *texts[j + 1 :]] for j in range(4)]
    with torch.inference_mode():
        score_B = model(reader.collate([rows(name, QUERY, chunks) for chunks in documents]))
    assert (score_B[1:] - score_B[0]).abs().min() > 1e-4


def rows(name, query, texts):
    """The rows of a document given as chunks."""
    if name == "parade-late-interaction":
        return [Chunk(query[:0], text) for text in (query, *texts)]
    return [Chunk(query, text) for text in texts]


@pytest.mark.parametrize("encoder", ["bert", "electra"])
@pytest.mark.parametrize("name", SECOND)
def test_a_second_encoder_of_any_size_takes_part(pair, folders, name, encoder):
    model, reader = pair(name, aggregator=folders[encoder])
    width, inside = {"bert": (16, 16), "electra": (24, 12)}[encoder]
    assert model.head.in_features == width
    assert model.special_2H.shape == (2, inside)
    together = scores(model, reader, *DOCUMENTS)
    alone = torch.cat([scores(model, reader, doc_id) for doc_id in DOCUMENTS])
    assert_close(together, alone, atol=1e-5, rtol=0)
    assert alone.std() > 1e-3
    blank = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in blank.aggregator.parameters():
            parameter.zero_()
    assert not torch.allclose(scores(blank, reader, *DOCUMENTS), together, atol=1e-3)


@pytest.mark.parametrize("name", SECOND)
def test_every_parameter_of_a_second_encoder_learns_at_the_aggregators_rate(pair, folders, name):
    extra = {"interaction": folders["electra"]} if name == "parade-late-interaction" else {}
    model, reader = pair(name, aggregator=folders["bert"], dropout=0.0, **extra)
    documents = [reader.chunks(QUERY, doc_id) for doc_id in ("d34", "d55", "d13")]
    score_B = score_documents(
        model.train(), reader, documents, batch_tokens=100, autocast=None, work=Work()
    )
    (score_B * torch.tensor([1.0, -0.3, 0.7])).sum().backward()
    still = [
        part
        for part, parameter in model.trainable()
        if parameter.grad is None or not parameter.grad.abs().sum() > 0
    ]
    # Of keys, a constant added to all changes no attention.
    assert [part for part in still if not part.endswith("self.key.bias")] == []
    ours = {id(p) for p in model.learning_rate_groups()["aggregator"]}
    assert {id(p) for p in model.aggregator.parameters()} <= ours
    assert id(model.special_2H) in ours
    assert not any("word_embeddings" in part for part, _ in model.aggregator.named_parameters())


def test_an_interaction_encoder_learns_at_the_aggregators_rate_or_at_its_own(pair):
    model, _ = pair("parade-late-interaction")
    interaction = {id(p) for p in model.interaction.parameters()}
    for own, expected in ((0.0, 3e-3), (4e-2, 4e-2)):
        training = Training(aggregator_learning_rate=3e-3, interaction_learning_rate=own)
        for group in build_optimizer(model, training).param_groups:
            ids = {id(p) for p in group["params"]}
            if ids & interaction:
                assert ids == interaction and group["lr"] == expected


def test_an_interaction_rate_is_refused_without_an_interaction_encoder(config, backbone):
    trial = config("parade-attn").override({"training.interaction_learning_rate": 1e-4})
    with pytest.raises(BadInput, match="interaction_learning_rate has no effect with model parade"):
        check_model(trial, backbone)


def test_dropout_of_a_trial_reaches_its_second_encoder_and_no_other_trial(folders, pair):
    shared = backbones._config(folders["bert"], backbones.resolve_backbone(folders["bert"]).folder)
    before = copy.deepcopy(shared.to_dict())
    first, _ = pair("parade-transformer-pretrained", aggregator=folders["bert"], dropout=0.3)
    second, _ = pair("parade-transformer-pretrained", aggregator=folders["bert"], dropout=0.0)
    assert first.aggregator.config.hidden_dropout_prob == 0.3
    assert second.aggregator.config.hidden_dropout_prob == 0.0
    assert shared.to_dict() == before


def test_c_and_sep_are_new_with_the_papers_initial_size(pair):
    model, _ = pair("parade-transformer-pretrained")
    # 64 draws of N(0, 1) / sqrt(32): their mean square is 1/32, give or take .18 of it.
    assert model.special_2H.square().mean().item() == pytest.approx(1 / 32, rel=0.6)
    words = model.encoder.get_input_embeddings().weight
    assert not torch.isclose(model.special_2H[0], words).all(1).any()


@pytest.mark.parametrize("name", SECOND)
def test_a_decoder_is_refused_as_a_second_encoder(config, backbone, folders, name):
    with pytest.raises(BadInput, match=r"model\.aggregator must be an encoder .* is a llama"):
        check_model(config(name, aggregator=folders["llama"]), backbone)


def test_sequences_must_fit_the_second_encoder(config, backbone, folders):
    # 40 places: [C, SEP, 37 chunks, SEP]; with 8 query tokens and a third SEP, 28 chunks
    for name, most in (("parade-transformer-pretrained", 37), ("parade-transformer-query", 28)):
        for num_chunks in (most, most + 1):
            chunking = Chunking(2, 1, max_document_tokens=num_chunks + 1, max_query_tokens=8)
            trial = config(name, chunking, aggregator=folders["bert"])
            if num_chunks == most:
                check_model(trial, backbone)
                continue
            with pytest.raises(BadInput, match=r"has 40 positions, but .* need 41"):
                check_model(trial, backbone)
    for window in (22, 23):  # [C, SEP, 8 + 3, SEP, 22 + 3, SEP]
        chunking = Chunking(window, window, max_document_tokens=60, max_query_tokens=8)
        trial = config("parade-late-interaction", chunking, interaction=folders["bert"])
        if window == 22:
            check_model(trial, backbone)
            continue
        with pytest.raises(
            BadInput, match=r"model\.interaction=.* has 40 positions, but query and"
        ):
            check_model(trial, backbone)


def test_the_query_variant_reads_the_queries_own_vectors(pair):
    model, reader = pair("parade-transformer-query")
    batch = reader.collate([reader.chunks(QUERY, doc_id) for doc_id in ("d34", "d13")])
    other = reader.collate([reader.chunks(QUERY[:2], "d13")])
    with torch.inference_mode():
        expected = []
        for some, row, length in ((batch, 0, 6), (batch, 3, 6), (other, 0, 2)):
            hidden_CLH = model.hidden(some.inputs)
            count = {0: some.counts[0], 3: some.counts[-1]}[row]
            query_1QH = hidden_CLH[None, row, 1 : 1 + length]
            cls_1PH = hidden_CLH[None, row : row + count, 0]
            sep_11H, c_11H = model.special_2H[1][None, None], model.special_2H[0][None, None]
            x_1TH = torch.cat([c_11H, sep_11H, query_1QH, sep_11H, cls_1PH, sep_11H], 1)
            segment_1T = torch.tensor([[0] * (3 + length) + [1] * count + [0]])
            output = model.aggregator(inputs_embeds=x_1TH, token_type_ids=segment_1T)
            expected.append(model.score(output.last_hidden_state[0, 0]))
        # A shorter query beside a longer one leaves no gap either.
        mixed = reader.collate(
            [
                reader.chunks(QUERY, "d34"),
                reader.chunks(QUERY, "d13"),
                reader.chunks(QUERY[:2], "d13"),
            ]
        )
        assert_close(model(mixed), torch.stack(expected), atol=1e-5, rtol=0)


def test_late_interaction_encodes_query_and_chunks_apart(pair, backbone):
    _, reader = pair("parade-late-interaction")
    query_row, *chunk_rows = reader.chunks(QUERY, "d34")
    assert query_row.text.tolist() == QUERY.tolist()
    assert [row.text.tolist() for row in reader.chunks(tokens(1, 3), "d34")[1:]] == [
        row.text.tolist() for row in chunk_rows
    ]
    ids_CL = reader.collate([[query_row, *chunk_rows]]).inputs.input_ids_CL
    for row, text in zip(ids_CL.tolist(), (QUERY, *(c.text for c in chunk_rows)), strict=True):
        cls, sep = backbone.cls_id, backbone.sep_id
        assert row[: len(text) + 3] == [cls, sep, *text.tolist(), sep]


def test_a_query_alone_has_segment_0_and_a_chunk_alone_1(pair):
    for name in ("parade-late-interaction", "mores"):
        _, reader = pair(name)
        both = [reader.chunks(QUERY, doc_id) for doc_id in ("d34", "d13")]
        segments_CL = reader.collate(both).inputs.token_type_ids_CL.tolist()
        queries = [0, len(both[0])]
        assert [row for row in range(len(segments_CL)) if not any(segments_CL[row])] == queries
        assert segments_CL[1] == [0, 0, *[1] * 21]  # 20 tokens and the last [SEP]


def test_late_interaction_depends_on_the_query(pair):
    model, reader = pair("parade-late-interaction")
    changed = QUERY.copy()
    changed[2] += 1
    gap_B = scores(model, reader, "d13", "d55") - scores(model, reader, "d13", "d55", query=changed)
    assert gap_B.abs().min() > 1e-4


def test_own_special_vectors_are_the_interactions_cls_and_sep(pair, config, folders, backbone):
    quirk = {"quirks": ("own-special",)}
    model, _ = pair("parade-late-interaction", interaction=folders["electra"], **quirk)
    words = ElectraModel.from_pretrained(folders["electra"]).get_input_embeddings().weight
    tokenizer = backbones.load_tokenizer(Path(folders["electra"]))
    expected = words[[tokenizer.cls_token_id, tokenizer.sep_token_id]]
    assert_close(model.interaction_special_2H.detach(), expected.detach())
    with pytest.raises(BadInput, match=r"own-special needs .* model\.interaction"):
        check_model(config("parade-late-interaction", **quirk), backbone)
