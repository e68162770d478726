"""The table of kinds: position limits, special tokens, names."""

from types import SimpleNamespace

import pytest

from rank_core.encoders.backbone_types import (
    NO_TABLE,
    TYPES,
    backbone_type,
    kind_of,
    marks_of,
    max_input_tokens,
)
from rank_core.errors import BadInput


def tokenizer(**ids):
    names = ("cls", "sep", "pad", "bos", "eos")
    return SimpleNamespace(**{f"{name}_token_id": ids.get(name) for name in names})


# Published configurations: (kind, settings, tokens of a row).
LIMITS = [
    ("bert", {"max_position_embeddings": 512}, 512),
    ("roberta", {"max_position_embeddings": 514, "pad_token_id": 1}, 512),
    ("xlm-roberta", {"max_position_embeddings": 514, "pad_token_id": 1}, 512),
    ("mpnet", {"max_position_embeddings": 514, "pad_token_id": 1}, 512),
    ("longformer", {"max_position_embeddings": 4098, "pad_token_id": 1}, 4096),
    ("big_bird", {"max_position_embeddings": 4096, "block_size": 64}, 4096),
    ("big_bird", {"max_position_embeddings": 1000, "block_size": 64}, 960),
    ("modernbert", {"max_position_embeddings": 8192}, 8192),
    ("llama", {"max_position_embeddings": 2048}, 2048),
    ("jina-bert", {"max_position_embeddings": 8192}, NO_TABLE),
    ("mosaic-bert", {"max_position_embeddings": 512}, NO_TABLE),
    ("longt5", {}, NO_TABLE),
]


@pytest.mark.parametrize(("kind", "settings", "limit"), LIMITS)
def test_a_row_is_as_long_as_the_positions_allow(kind, settings, limit):
    assert max_input_tokens(TYPES[kind], SimpleNamespace(**settings)) == limit


def test_alibi_encoders_are_distinguished_from_bert():
    def kind(**settings):
        return kind_of(SimpleNamespace(model_type="bert", **settings))

    assert kind() == "bert"
    assert kind(position_embedding_type="absolute") == "bert"
    assert kind(position_embedding_type="alibi") == "jina-bert"
    assert kind(alibi_starting_size=512) == "mosaic-bert"


def test_an_unknown_kind_is_refused_with_the_known_ones():
    with pytest.raises(
        BadInput,
        match=r"unknown model_type of backbone some/id 'bart'; did you mean bert\?.*roberta",
    ):
        backbone_type("some/id", SimpleNamespace(model_type="bart"))


def marks(kind, **ids):
    return marks_of("some/id", TYPES[kind], tokenizer(**ids))


def test_decoders_begin_with_bos_or_eos_end_with_eos_and_pad_with_eos_where_nothing_else_is():
    assert marks("llama", bos=1, eos=2) == (1, 2, 2)
    assert marks("qwen3", eos=7, pad=5) == (7, 7, 5)
    assert marks("llama", bos=1, eos=2, cls=8, sep=9, pad=0) == (8, 9, 0)


def test_a_tokenizer_without_marks_is_refused():
    for kind, ids in (("bert", {"bos": 1, "eos": 2}), ("llama", {"pad": 0})):
        with pytest.raises(BadInput, match="some/id"):
            marks(kind, **ids)
