"""What leaves is what was trained: a trial's model, exported and read again in every way, gives the
trial's scores, for every kind of backbone and of head."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.encoders.backbone_types import TYPES
from rank_core.encoders.backbones import resolve_backbone
from rank_core.encoders.published_heads import KINDS as CLASSIFIERS
from rank_core.encoders.shipped import RANKING_HEAD
from rank_core.errors import BadInput
from rank_core.export.folder import ExportedModel, read_model, write_model
from rank_core.export.reranker import Reranker
from rank_core.files import file_sha256
from rank_core.models.build import build_model, require_weights
from rank_core.models.checks import check_model
from rank_core.settings.config import TrialConfig
from tests.contracts.small_backbones import write_backbone
from tests.rank_core.encoders import test_decoder_rerankers as decoders
from tests.rank_core.encoders import test_t5_rerankers as generators
from tests.rank_core.encoders.test_module_chain import KINDS as CHAINS
from tests.rank_core.encoders.test_module_chain import TYPES as MODULE_TYPES
from tests.rank_core.encoders.test_module_chain import write_chain
from tests.rank_core.encoders.test_published_heads import forget, publish

QUERY = "w1 w5 w9"
TEXTS = [" ".join(f"w{(i * j) % 46}" for j in range(1, 3 + 6 * i)) for i in range(1, 5)]
PROMPT = {"prompts": {"ask": "w5 w6 "}, "default_prompt_name": "ask"}
APART = ("yes or no", "classifier of a decoder", "new over yes or no", "answer of a T5")
"""Heads that leave beside the encoder alone: sentence-transformers knows no such layout of rows."""
ATTENTION = ("big_bird", "longformer", "longt5", "jina-bert", "mosaic-bert")
"""Kinds that sentence-transformers does not compute as here."""


def ranking_head(kind, folder):
    """A backbone with a ranking head beside it, as an exported model has."""
    folder.mkdir()
    write_backbone(kind, folder)
    head = {"weight": torch.linspace(-1, 1, 16)[None], "bias": torch.ones(1)}
    save_file(head, folder / RANKING_HEAD, metadata={"pooling": "mean"})


def classifier_with_prompt(kind, folder):
    """As sentence-transformers saves one: its only module is the Transformer."""
    publish(kind, folder)
    module = {"idx": 0, "name": "0", "path": "", "type": MODULE_TYPES["Transformer"]}
    text = {"method": "forward", "method_output_name": "logits"}
    task = {"transformer_task": "sequence-classification", "modality_config": {"text": text}}
    files = {
        "modules.json": [module],
        "config_sentence_transformers.json": {"model_type": "CrossEncoder"} | PROMPT,
        "sentence_bert_config.json": task | {"module_output_name": "scores"},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


def chatting(kind, folder):
    """Modules over a decoder, whose chat template writes the rows."""
    write_chain(kind, folder)
    (folder / "chat_template.jinja").write_text(decoders.CHAT)
    method = {"method": "forward", "method_output_name": "last_hidden_state"}
    message = {"message": method | {"format": "flat"}, "text": method}
    settings = {"transformer_task": "feature-extraction", "modality_config": message}
    settings |= {"module_output_name": "token_embeddings"}
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))


def answering(kind, folder):
    """A reranker that generates its answer, known by its config.json."""
    generators.publish(folder, kind, true_token_id=7, false_token_id=8)


def headless(kind, folder):
    folder.mkdir()
    write_backbone(kind, folder)


HEADS = {
    "new": headless,
    "new over the mean": headless,
    "new over the last": headless,
    "new classifier": headless,
    "ranking head": ranking_head,
    "classifier": publish,
    "two labels": lambda kind, folder: publish(kind, folder, num_labels=2),
    "classifier with a prompt": classifier_with_prompt,
    "modules": write_chain,
    "modules with a prompt": lambda kind, folder: write_chain(kind, folder, more=PROMPT),
    "modules behind a template": chatting,
    "yes or no": decoders.publish,
    "classifier of a decoder": publish,
    "new over yes or no": decoders.publish,
    "answer of a T5": answering,
}
SETTINGS = {
    "new over the mean": {"model.pool": "mean"},
    "new over the last": {"model.pool": "last"},
    "new classifier": {"model.head": "classifier"},
    "new over yes or no": {"model.head": "new", "model.pool": "mean"},
}
OF_KIND = {
    "new classifier": CLASSIFIERS,
    "classifier": CLASSIFIERS,
    "two labels": ("bert", "roberta"),
    "classifier with a prompt": ("bert", "roberta"),
    "modules": (*CHAINS, "qwen3"),
    "modules with a prompt": ("roberta",),
    "modules behind a template": ("qwen3",),
    "yes or no": decoders.KINDS,
    "classifier of a decoder": ("llama", "qwen3"),
    "new over yes or no": ("llama",),
    "answer of a T5": ("longt5", "t5"),
}
"""{head: the kinds that have it}; the others are of all kinds."""
QUICK = ("bert", "llama", "modernbert", "roberta", "t5")
CASES = [
    pytest.param(kind, head, marks=[] if kind in QUICK else [pytest.mark.slow, pytest.mark.long])
    for head in HEADS
    for kind in OF_KIND.get(head, sorted(TYPES))
]


def config_of(folder, **settings):
    own = {"model.name": "maxp", "model.backbone": str(folder), "model.dropout": 0.0}
    windows = {"chunking.window": 8, "chunking.stride": 5, "chunking.max_query_tokens": 9}
    return TrialConfig().override(own | windows | settings)


def scores_of(model, config):
    """The score of each text by a model and its settings."""
    exported = ExportedModel(model.eval(), config, resolve_backbone(config.model.backbone))
    return scores(Reranker(exported, "cpu", "fp32"))


def scores(reranker):
    ranked = dict(reranker.rank(QUERY, TEXTS))
    return np.array([ranked[place] for place in range(len(TEXTS))])


def as_it_is(folder):
    """The scores of a folder as the backbone of a trial that trains nothing."""
    forget()
    config = config_of(folder, **{"training.num_epochs": 0})
    backbone = resolve_backbone(str(folder))
    check_model(config, backbone)
    return scores_of(build_model(config, backbone, init_seed=9), config)


def trained(kind, head, folder):
    """(scores, folder): a model whose every weight has moved, and its export."""
    HEADS[head](kind, folder / "b")
    forget()
    config = config_of(folder / "b", **SETTINGS.get(head, {}))
    backbone = resolve_backbone(str(folder / "b"))
    check_model(config, backbone)
    model = build_model(config, backbone, init_seed=1)
    with torch.no_grad():
        for number, (_, weight) in enumerate(model.trainable()):
            weight.mul_(1 + 0.01 * (number % 7)).add_(0.01)
    save_weights(folder, {name: w.clone() for name, w in model.state_dict().items()})
    write_model(folder / "m", config, folder / WEIGHTS)
    return scores_of(model, config), folder / "m"


def saved_again(exported, place, library):
    """The folder that sentence-transformers saves of an export; None where it needs a padding
    token that the tokenizer lacks."""
    source = exported if (exported / "modules.json").exists() else exported / "encoder"
    if AutoTokenizer.from_pretrained(exported / "encoder").pad_token is None:
        return None
    model = library.CrossEncoder(str(source), device="cpu", local_files_only=True)
    model.save_pretrained(str(place))
    return place


READ_BY_THE_LIBRARY = [
    c.values for c in CASES if c.values[0] not in ATTENTION and c.values[1] not in APART
]


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_every_way_out_gives_the_scores_of_the_trial(kind, head, tmp_path):
    expected, exported = trained(kind, head, tmp_path)
    assert expected.std() > 1e-4
    found = scores(Reranker.load(exported, device="cpu", precision="fp32"))
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    np.testing.assert_allclose(as_it_is(exported), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_the_export_of_an_export_is_the_same_model(kind, head, tmp_path):
    """Every weight, and every token around query and text."""
    _, exported = trained(kind, head, tmp_path)
    forget()
    config = config_of(exported, **{"training.num_epochs": 0})
    write_model(tmp_path / "again", config, None)
    first, second = read_model(exported), read_model(tmp_path / "again")
    weights, own = second.model.state_dict(), first.model.state_dict()
    assert weights.keys() == own.keys()
    assert all(torch.equal(weight, own[name]) for name, weight in weights.items())
    assert (second.backbone.layout, second.model.pooling) == (
        first.backbone.layout,
        first.model.pooling,
    )
    files = [
        {str(path.relative_to(place)): file_sha256(path) for path in place.rglob("*.safetensors")}
        for place in (exported, tmp_path / "again")
    ]
    assert files[0].items() <= files[1].items()


@pytest.mark.parametrize("kind", ["bert", "llama", "qwen3", "roberta"])
@pytest.mark.parametrize("head", ["classifier", "classifier with a prompt"])
def test_modules_are_written_where_the_tokenizer_writes_the_rows_that_were_scored(
    kind, head, tmp_path
):
    """Of a new head over a reranker, and of an export of one that is a decoder's classifier."""
    HEADS[head](kind, tmp_path / "b")
    forget()
    config = config_of(tmp_path / "b", **{"model.head": "new", "training.num_epochs": 1})
    model = build_model(config, resolve_backbone(str(tmp_path / "b")), init_seed=1)
    save_weights(tmp_path, {name: w.clone() for name, w in model.state_dict().items()})
    write_model(tmp_path / "m", config, tmp_path / WEIGHTS)
    plain = config_of(tmp_path / "b", **{"training.num_epochs": 0})
    write_model(tmp_path / "plain", plain, None)
    forget()
    again = config_of(tmp_path / "plain", **{"training.num_epochs": 0})
    write_model(tmp_path / "again", again, None)
    for place in (tmp_path / "m", tmp_path / "again"):
        if not (place / "2_Dense").exists():
            continue
        tokenizer = AutoTokenizer.from_pretrained(place / "encoder")
        asked, text = ([tokenizer.convert_tokens_to_ids(word)] for word in ("w1", "w2"))
        layout = read_model(place).backbone.layout
        expected = [*layout.prefix, *asked, *layout.middle, *text, *layout.suffix]
        assert tokenizer("w1", "w2")["input_ids"] == expected


@pytest.mark.long  # the import alone takes seconds
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "head"), READ_BY_THE_LIBRARY)
def test_saved_again_by_sentence_transformers_it_gives_the_scores_of_the_trial(
    kind, head, tmp_path
):
    reason = "pip install -e '.[serve]' brings it"
    library = pytest.importorskip("sentence_transformers", minversion="6.2", reason=reason)
    expected, exported = trained(kind, head, tmp_path)
    again = saved_again(exported, tmp_path / "again", library)
    if again is None:
        pytest.skip("sentence-transformers needs a padding token")
    np.testing.assert_allclose(as_it_is(again), expected, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_a_drawn_classifier_leaves_as_one_that_other_libraries_load(kind, tmp_path):
    """Rows of one chunk: what a server is sent."""
    headless(kind, tmp_path / "b")
    forget()
    config = config_of(tmp_path / "b", **{"model.head": "classifier", "chunking.window": 48})
    backbone = resolve_backbone(str(tmp_path / "b"))
    model = build_model(config, backbone, init_seed=1)
    expected = scores_of(model, config)
    assert expected.std() > 1e-4
    save_weights(tmp_path, {name: w.clone() for name, w in model.state_dict().items()})
    write_model(tmp_path / "m", config, tmp_path / WEIGHTS)
    place = tmp_path / "m" / "encoder"
    tokenizer = AutoTokenizer.from_pretrained(place)
    loaded = AutoModelForSequenceClassification.from_pretrained(place).eval()
    rows = tokenizer([QUERY] * len(TEXTS), TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        found = loaded(**rows).logits[:, 0].numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    reason = "pip install -e '.[serve]' brings it"
    library = pytest.importorskip("sentence_transformers", minversion="6.2", reason=reason)
    theirs = library.CrossEncoder(str(place), device="cpu", local_files_only=True)
    found = theirs.predict([(QUERY, text) for text in TEXTS])
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


def test_two_seeds_draw_two_classifiers_over_one_pooler(tmp_path):
    headless("bert", tmp_path / "b")
    forget()
    config = config_of(tmp_path / "b", **{"model.head": "classifier"})
    backbone = resolve_backbone(str(tmp_path / "b"))
    first, again, second = (
        build_model(config, backbone, init_seed=seed).state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    weight = max(name for name in first if name.startswith("head.") and name.endswith("weight"))
    assert not torch.equal(first[weight], second[weight])
    with pytest.raises(BadInput, match="its head would be drawn"):
        require_weights(config.override({"training.num_epochs": 0}), backbone)


@pytest.mark.parametrize(
    ("kind", "settings", "problem"),
    [
        ("bert", {"model.name": "parade-attn"}, "combines their vectors"),
        ("bert", {"model.pool": "mean"}, "model.pool must be cls"),
        ("longformer", {}, "has no classification head that is drawn here"),
        ("llama", {}, "has no classification head that is drawn here"),
    ],
)
def test_a_classifier_is_refused_where_there_is_none(kind, settings, problem, tmp_path):
    headless(kind, tmp_path / "b")
    forget()
    config = config_of(tmp_path / "b", **{"model.head": "classifier"} | settings)
    with pytest.raises(BadInput, match=problem):
        check_model(config, resolve_backbone(str(tmp_path / "b")))
