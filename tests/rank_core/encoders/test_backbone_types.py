"""The table of kinds: special tokens, names."""

from types import SimpleNamespace

import pytest

from rank_core.encoders.backbone_types import ANY, TYPES, backbone_type, marks_of
from rank_core.errors import BadInput


def tokenizer(**ids):
    names = ("cls", "sep", "pad", "bos", "eos")
    return SimpleNamespace(**{f"{name}_token_id": ids.get(name) for name in names})


def test_a_kind_without_a_line_is_read_as_transformers_reads_it():
    assert backbone_type(SimpleNamespace(model_type="bart")) is ANY
    assert backbone_type(SimpleNamespace(model_type="roberta")) is TYPES["roberta"]


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
