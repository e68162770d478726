"""Scores on small weights beside the same scores computed here from the equations: attention
written out, one document at a time, without masks. What is masked is left out of a sequence; what
is padded in place moves the places of what follows.

The forms with quirks are those of FlexNeuART, the code of Boytsov et al. 2022 (its branch pypi2021
and, late interaction among them, the later master).
"""

from math import ceil

import numpy as np
import pytest
import torch

from rank_core.models import model_class
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.settings.config import Chunking, Model, TrialConfig
from rank_core.testing.laws import tokens
from tests.contracts.small_backbones import write_backbone

WINDOW, STRIDE, LIMIT, MAX_QUERY = 20, 10, 60, 8
# One window, two and all five; the last document is cut at LIMIT.
DOCUMENTS = {f"d{size}": tokens(size, size) for size in (0, 13, 29, 70)}
QUERIES = (tokens(1, 5), tokens(3, MAX_QUERY))
IN_PLACE = {"unmasked-chunks", "padded-rows"}

FORMS = [
    ("firstp", ()),
    ("firstp", ("padded-rows",)),
    ("maxp", ()),
    ("maxp", ("unmasked-chunks",)),
    ("sump", ("unmasked-chunks",)),
    ("parade-avg", ("unmasked-chunks",)),
    ("parade-max", ("unmasked-chunks",)),
    ("parade-attn", ()),
    ("parade-attn", ("unmasked-chunks", "elementwise-attention")),
    ("parade-cnn", ()),
    ("parade-transformer", ()),
    ("parade-transformer", ("unmasked-chunks",)),
    ("parade-transformer-pretrained", ()),
    ("parade-transformer-pretrained", ("unmasked-chunks",)),
    ("parade-transformer-pretrained", ("sequence-2022",)),
    ("parade-transformer-pretrained", ("unmasked-chunks", "sequence-2022")),
    ("parade-transformer-query", ()),
    ("parade-transformer-query", ("unmasked-chunks",)),
    ("parade-transformer-query", ("sequence-2022",)),
    ("parade-transformer-query", ("unmasked-chunks", "sequence-2022")),
    ("parade-late-interaction", ()),
    ("parade-late-interaction", ("unmasked-chunks",)),
]


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    """An encoder of another width, for the second encoders."""
    folder = tmp_path_factory.mktemp("second")
    write_backbone("bert", folder)
    return str(folder)


@pytest.fixture
def system(backbone, second):
    """(model in fp64, reader) with weights of a size that lets every place look at all others."""

    def build(name, quirks, chunking):
        options = {key: second for key in ("aggregator", "interaction")}
        options = {k: v for k, v in options.items() if k in model_class(name).options}
        settings = Model(name, backbone=str(backbone.folder), quirks=quirks, **options)
        config = TrialConfig(model=settings, chunking=chunking)
        check_model(config, backbone)
        model = build_model(config, backbone, init_seed=1).eval().double()
        generator = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for part in ("aggregator", "interaction"):
                for p in getattr(model, part, torch.nn.Module()).parameters():
                    p.add_(torch.randn(p.shape, generator=generator).double() * 0.2)
        return model, model_class(name).reader(config, backbone, DOCUMENTS)

    return build


@pytest.mark.parametrize(("name", "quirks"), FORMS)
def test_a_score_is_what_the_equations_give(system, backbone, name, quirks):
    stride = WINDOW if name == "firstp" else STRIDE
    chunking = Chunking(WINDOW, stride, max_document_tokens=LIMIT, max_query_tokens=MAX_QUERY)
    assert_by_hand(*system(name, quirks, chunking), backbone, name, quirks)


@pytest.mark.parametrize("name", ["maxp", "parade-late-interaction"])
def test_padding_ends_with_the_document_where_the_window_is_longer(system, backbone, name):
    wide = Chunking(WINDOW, STRIDE, max_document_tokens=15, max_query_tokens=MAX_QUERY)
    quirks = ("unmasked-chunks",)
    assert_by_hand(*system(name, quirks, wide), backbone, name, quirks)


@torch.inference_mode()
def assert_by_hand(model, reader, backbone, name, quirks):
    documents = [(query, doc_id) for query in QUERIES for doc_id in DOCUMENTS]
    score_B = model(reader.collate([reader.chunks(*pair) for pair in documents]))
    by_hand = Hand(model, backbone, reader.chunking, quirks)
    expected_B = torch.stack([getattr(by_hand, name.replace("-", "_"))(*p) for p in documents])
    print(f"{name} {quirks}: largest difference {(score_B - expected_B).abs().max():.1e}")
    torch.testing.assert_close(score_B, expected_B, atol=1e-9, rtol=0)
    assert expected_B.std() > 0.01


class Hand:
    """The scores of a model of one (query, document) by the equations."""

    def __init__(self, model, backbone, chunking, quirks):
        self.model, self.backbone, self.chunking, self.quirks = model, backbone, chunking, quirks
        self.in_place = bool(IN_PLACE & set(quirks))

    def windows(self, doc_id):
        """The texts of the windows; where padding is text, some are short or empty."""
        cut = self.chunking
        text = DOCUMENTS[doc_id][: cut.max_document_tokens]
        length = cut.max_document_tokens if self.in_place else len(text)
        number = ceil(max(0, length - cut.window) / cut.stride) + 1
        return [text[i * cut.stride : i * cut.stride + cut.window] for i in range(number)]

    def row(self, query, text, query_places, text_places, segment=1):
        """[(word, place, segment)] of [CLS] query [SEP] text [SEP]."""
        begin = 2 + query_places
        row = [(self.backbone.cls_id, 0, 0)]
        row += [(word, 1 + i, 0) for i, word in enumerate(query)]
        row += [(self.backbone.sep_id, 1 + query_places, 0)]
        row += [(word, begin + i, segment) for i, word in enumerate(text)]
        return [*row, (self.backbone.sep_id, begin + text_places, segment)]

    def read(self, row):
        """(x_TH, places) after the backbone's last layer."""
        words, places, segments = zip(*row, strict=True)
        table = self.model.encoder.get_input_embeddings().weight
        x_TH = bert(self.model.encoder, table[list(map(int, words))], places, segments)
        return x_TH, places

    def pairs(self, query, doc_id):
        """The windows beside the query, each as (x_TH, places)."""
        cut, rows = self.chunking, []
        for text in self.windows(doc_id):
            sizes = len(query), len(text)
            if self.in_place:
                sizes = cut.max_query_tokens, min(cut.window, cut.max_document_tokens)
            rows.append(self.read(self.row(query, text, *sizes)))
        return rows

    def cls(self, query, doc_id):
        return torch.stack([x_TH[0] for x_TH, _ in self.pairs(query, doc_id)])

    def head(self, x):
        return x @ self.model.head.weight[0] + self.model.head.bias[0]

    def firstp(self, query, doc_id):
        return self.head(self.cls(query, doc_id)[0])

    def maxp(self, query, doc_id):
        return max(self.head(self.cls(query, doc_id)))

    def sump(self, query, doc_id):
        return sum(self.head(self.cls(query, doc_id)))

    def parade_avg(self, query, doc_id):
        return self.head(self.cls(query, doc_id).mean(0))

    def parade_max(self, query, doc_id):
        return self.head(self.cls(query, doc_id).max(0).values)

    def parade_attn(self, query, doc_id):
        cls_PH, attention = self.cls(query, doc_id), self.model.attention
        if "elementwise-attention" in self.quirks:
            weight_PH = torch.exp(cls_PH @ attention.weight.T + attention.bias)
        else:
            weight_PH = torch.exp(cls_PH @ attention)[:, None]
        return self.head((weight_PH / weight_PH.sum(0) * cls_PH).sum(0))

    def parade_cnn(self, query, doc_id):
        level, pair = list(self.cls(query, doc_id)), self.model.pair
        while len(level) > 1:  # pairs are merged, an odd one is passed up
            merged = [
                torch.relu(pair.weight @ torch.cat(both) + pair.bias)
                for both in zip(level[::2], level[1::2], strict=False)
            ]
            level = merged + level[2 * len(merged) :]
        return self.head(level[0])

    def parade_transformer(self, query, doc_id):
        return self.aggregate(self.cls(query, doc_id))

    def parade_transformer_pretrained(self, query, doc_id):
        x_PH = self.projected(self.cls(query, doc_id), self.model.projection)
        if "sequence-2022" not in self.quirks:
            return self.aggregate(x_PH)
        x_TH = torch.cat([x_PH, self.model.special_2H])
        places = range(len(x_TH))
        return self.head(bert(self.model.aggregator, x_TH, places, [0] * len(x_TH))[0])

    def parade_transformer_query(self, query, doc_id):
        rows = self.pairs(query, doc_id)
        query_QH = rows[0][0][1 : 1 + len(query)]
        x_QH, x_PH = (
            self.projected(x, self.model.projection)
            for x in (query_QH, torch.stack([x_TH[0] for x_TH, _ in rows]))
        )
        places = self.chunking.max_query_tokens if self.in_place else len(query)
        if "sequence-2022" in self.quirks:
            places_T = [0, *range(1, 1 + len(query))]
            places_T += range(1 + places, 1 + places + len(x_PH))
            x_TH = torch.cat([self.model.special_2H, x_QH, x_PH])
        else:
            c, sep = self.model.special_2H
            end = 3 + places + len(x_PH)
            places_T = [0, 1, *range(2, 2 + len(query)), *range(2 + places, end + 1)]
            x_TH = torch.stack([c, sep, *x_QH, sep, *x_PH, sep])
        segments = [0] * (len(x_TH) - len(x_PH)) + [1] * len(x_PH)
        if "sequence-2022" not in self.quirks:
            segments = [*segments[1:], 0]  # of the last SEP
        return self.head(bert(self.model.aggregator, x_TH, places_T, segments)[0])

    def parade_late_interaction(self, query, doc_id):
        cut, model = self.chunking, self.model
        window = min(cut.window, cut.max_document_tokens)
        size = cut.max_query_tokens if self.in_place else len(query)
        own = [self.read(self.row((), query, 0, size, segment=0))]
        for text in self.windows(doc_id):
            places = window if self.in_place else len(text)
            own.append(self.read(self.row((), text, 0, places)))
        vectors = []
        (query_TH, query_places), *chunks = own
        c, sep = model.interaction_special_2H
        for text_TH, text_places in chunks:
            begin = 3 + 3 + size  # after C, SEP, the query's row and SEP
            end = begin + text_places[-1] + 1
            places = [0, 1, *(2 + p for p in query_places), begin - 1]
            places += [*(begin + p for p in text_places), end]
            parts = (self.projected(x, model.token_projection) for x in (query_TH, text_TH))
            x_QH, x_TH = parts
            x_TH = torch.stack([c, sep, *x_QH, sep, *x_TH, sep])
            vectors.append(bert(model.interaction, x_TH, places, [0] * len(x_TH))[0])
        return self.aggregate(self.projected(torch.stack(vectors), model.chunk_projection))

    def projected(self, x, linear):
        return x if isinstance(linear, torch.nn.Identity) else x @ linear.weight.T + linear.bias

    def aggregate(self, x_PH):
        """The head over C's output of [C, SEP, x_1 .. x_n, SEP]."""
        c, sep = self.model.special_2H
        x_TH = torch.stack([c, sep, *x_PH, sep])
        segments = [0, 0, *[1] * len(x_PH), 0]
        return self.head(bert(self.model.aggregator, x_TH, range(len(x_TH)), segments)[0])


def bert(body, x_TH, places, segments):
    """x_TH of BERT's last layer over embedded vectors at some places (Devlin et al. 2019)."""
    weights, config = body.state_dict(), body.config

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x, name):
        x = x - x.mean(-1, keepdim=True)
        x = x / torch.sqrt(x.square().mean(-1, keepdim=True) + config.layer_norm_eps)
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    x_TH = x_TH + weights["embeddings.position_embeddings.weight"][list(places)]
    x_TH = x_TH + weights["embeddings.token_type_embeddings.weight"][list(segments)]
    x_TH = norm(x_TH, "embeddings.LayerNorm")
    heads, size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    for n in range(config.num_hidden_layers):
        layer, mixed = f"encoder.layer.{n}", []
        query, key, value = (
            linear(x_TH, f"{layer}.attention.self.{part}") for part in ("query", "key", "value")
        )
        for h in range(heads):
            own = slice(h * size, (h + 1) * size)
            weight_TT = torch.exp(query[:, own] @ key[:, own].T / np.sqrt(size))
            mixed.append(weight_TT / weight_TT.sum(1, keepdim=True) @ value[:, own])
        mixed_TH = linear(torch.cat(mixed, 1), f"{layer}.attention.output.dense")
        x_TH = norm(x_TH + mixed_TH, f"{layer}.attention.output.LayerNorm")
        inner_TI = linear(x_TH, f"{layer}.intermediate.dense")
        inner_TI = inner_TI * (1 + torch.erf(inner_TI / np.sqrt(2))) / 2
        x_TH = norm(x_TH + linear(inner_TI, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    return x_TH
