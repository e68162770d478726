"""serving.json: whoever follows it gets the scores of the exported model."""

import copy
import json
import math
import re
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.chunking.batches import Chunk
from rank_core.data.load import load_collection
from rank_core.encoders.backbones import ENCODER_FOLDER, resolve_backbone
from rank_core.encoders.shipped import RANKING_HEAD
from rank_core.errors import BadInput
from rank_core.export.folder import write_model
from rank_core.export.reranker import Reranker
from rank_core.export.serving import FILE, identity, serving_setting
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.ranking.interpolation import FirstStageMix
from rank_core.settings.config import TrialConfig
from tests.contracts.small_backbones import make_backbone
from tests.rank_core.encoders.test_decoder_rerankers import forget
from tests.rank_core.encoders.test_published_heads import publish
from tests.rank_core.export.test_cross_encoder import by_the_documented_files

QUERY = "w1 w5 w9"
TEXTS = {f"d{i}": " ".join(f"w{(i * j) % 46}" for j in range(1, 4 + 9 * i)) for i in range(1, 6)}
TEXTS["empty"] = ""
SYSTEMS = {
    "firstp": {"chunking.stride": 8},
    "maxp": {},
    "sump": {"model.chunk_scores": "probability"},
    "avgp": {"chunking.max_chunks": 3},
    "kmax-avgp": {"model.k": 2},
    "longp": {"chunking.stride": 8, "chunking.max_document_tokens": 8},
}
COUNTED = {"firstp": 1, "longp": 1, "maxp": 1, "sump": 0, "avgp": 0, "kmax-avgp": 2}
"""The number of best chunk scores that count; 0: all."""


def config_of(folder, name):
    windows = {"chunking.window": 8, "chunking.stride": 5, "chunking.max_query_tokens": 4}
    own = {"model.name": name, "model.backbone": str(folder), "training.num_epochs": 0}
    config = TrialConfig().override(windows | own | SYSTEMS[name])
    check_model(config, resolve_backbone(str(folder)))
    return config


@pytest.fixture(scope="module")
def documented():
    """The functions of docs/export.md: `cut` and `put_together`."""
    page = (Path(__file__).parents[3] / "docs" / "export.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```python\n(from math.*?)^```", page, re.M | re.S)
    names: dict[str, Any] = {}
    exec(compile(block, "docs/export.md", "exec"), names)
    return SimpleNamespace(cut=names["cut"], put_together=names["put_together"])


@pytest.mark.slow
def test_a_chunk_of_real_text_has_the_tokens_of_its_window(documented):
    """All but those that begin or end within a word, which seldom move the largest score far: the
    figures of docs/export.md."""
    sizes = {"window": 64, "stride": 32, "max_query_tokens": 16, "max_document_tokens": 1431}
    settings = {f"chunking.{name}": size for name, size in sizes.items()}
    config = TrialConfig().override(
        {"model.name": "maxp", "model.backbone": "tiny-docs"} | settings
    )
    backbone, collection = resolve_backbone("tiny-docs"), load_collection("python-docs")
    model = build_model(config, backbone, init_seed=1).eval()
    reader = type(model).reader(config, backbone, {})
    tokenizer = AutoTokenizer.from_pretrained(backbone.folder)
    tokens = partial(tokenizer, add_special_tokens=False)
    queries = [
        tokens(q)["input_ids"] for q in islice(collection.splits["test"].queries.values(), 5)
    ]
    equal, moved = [], []

    @torch.inference_mode()
    def largest(query, chunks):
        rows = reader.layout([Chunk(np.array(query[:16]), np.array(chunk)) for chunk in chunks])
        return float(model.head(model.encode(rows)).max())

    for number, text in enumerate(islice(collection.documents.values(), 200)):
        ids = tokens(text)["input_ids"][:1431]
        found = [
            tokens(chunk)["input_ids"]
            for chunk in documented.cut(tokenizer, sizes | {"max_chunks": 0}, text)
        ]
        windows = [ids[32 * i : 32 * i + 64] for i in range(len(found))]
        equal += [own == window for own, window in zip(found, windows, strict=True)]
        query = queries[number % 5]
        moved.append(largest(query, found) - largest(query, windows))
    assert len(equal) > 2000 and 0.03 < 1 - np.mean(equal) < 0.05
    changed_scores = np.abs(moved)[np.abs(moved) > 1e-4]
    assert 0.04 < len(changed_scores) / len(moved) < 0.07 and changed_scores.max() < 0.3


@pytest.mark.parametrize(
    ("name", "published"), [*((name, True) for name in SYSTEMS), ("firstp", False), ("sump", False)]
)
def test_who_follows_the_file_gets_the_scores_of_the_exported_model(
    name, published, tmp_path, documented
):
    """Of a published reranker, and of a head of our own, which is a CrossEncoder of chunks."""
    folder, made = str(tmp_path / "b"), tmp_path / "m"
    (tmp_path / "b").mkdir()
    publish("bert", tmp_path / "b") if published else make_backbone("bert", tmp_path / "b")
    if not published:
        weight = torch.linspace(-1, 1, 16)[None]
        save_file({"weight": weight, "bias": torch.zeros(1)}, tmp_path / "b" / RANKING_HEAD)
        forget()
    write_model(made, config_of(folder, name), None)
    ours = dict(Reranker.load(made).rank(QUERY, TEXTS))
    setting = json.loads((made / FILE).read_text())
    tokenizer = AutoTokenizer.from_pretrained(folder)

    if published:
        model = AutoModelForSequenceClassification.from_pretrained(made / ENCODER_FOLDER).eval()

    def scores(chunks):
        if not published:
            return by_the_documented_files(made, QUERY, chunks)
        options = {"return_tensors": "pt", "return_token_type_ids": True}
        with torch.inference_mode():
            rows = (tokenizer([QUERY], [chunk], **options) for chunk in chunks)
            return [float(model(**row).logits) for row in rows]

    assert setting["aggregation"]["k"] == COUNTED[name]
    cuts = {doc: documented.cut(tokenizer, setting, text) for doc, text in TEXTS.items()}
    theirs = {doc: documented.put_together(setting, scores(chunks)) for doc, chunks in cuts.items()}
    assert ours == pytest.approx(theirs, abs=1e-5)
    forget()
    served = Reranker.serve(folder if published else str(made), made / FILE)
    assert dict(served.rank(QUERY, TEXTS)) == pytest.approx(ours, abs=1e-6)


MIX = FirstStageMix(0.25, "min-max", "BM25")
WRONG = (
    *(None, "word", "", [], {}, [1], True, 1.5, -1, 0, math.nan, 10**9),
    *("maxp", "sump", "max", "probability", "logit", "z-score"),
)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    forget()
    return publish("bert", tmp_path_factory.mktemp("published"))


def written(folder, name, mix=None):
    """The content of the file of a system."""
    config, model = config_of(folder, name), identity(resolve_backbone(str(folder)))
    measured = {"measured": {"mean": 0.5}}
    return json.loads(json.dumps(serving_setting(config, model, mix) | measured))


def leaves(setting, above=()):
    """The places of all keys."""
    for key, value in setting.items():
        yield (*above, key)
        if isinstance(value, dict) and key != "measured":
            yield from leaves(value, (*above, key))


def changed(setting, place, change):
    """The file with one key changed by `change(its object, key)`."""
    copied = copy.deepcopy(setting)
    inner = copied
    for key in place[:-1]:
        inner = inner[key]
    change(inner, place[-1])
    return json.dumps(copied)


def changes(setting, place):
    """(what was done, the file) of one key."""
    value = setting
    for key in place:
        value = value[key]
    yield "deleted", changed(setting, place, lambda inner, key: inner.pop(key))
    if value and not isinstance(value, dict):
        yield "doubled", changed(setting, place, lambda inner, key: inner.update({key: 2 * value}))
    for wrong in WRONG:
        if json.dumps(wrong) != json.dumps(value):
            yield (
                f"now {wrong!r}",
                changed(setting, place, lambda inner, key, to=wrong: inner.update({key: to})),
            )
    twice = changed(setting, place, lambda inner, key: inner.update({key: "TWICE"}))
    both = f'{json.dumps(value)}, "{place[-1]}": {json.dumps(value)}'
    yield "twice", twice.replace('"TWICE"', both)
    yield "beside", changed(setting, place, lambda inner, key: inner.update({f"{key}s": value}))


def meaning(reranker):
    return str((reranker.config, reranker._exported.first_stage, reranker.about))


@pytest.mark.parametrize(
    ("name", "mix"),
    [("maxp", MIX)] + [pytest.param(name, None, marks=pytest.mark.slow) for name in SYSTEMS],
)
def test_each_key_is_read_or_refused_by_its_name(name, mix, published, tmp_path):
    setting, path = written(published, name, mix), tmp_path / FILE
    path.write_text(json.dumps(setting))
    before = meaning(Reranker.serve(published, path))
    wrong = []
    for place in leaves(setting):
        for what, text in changes(setting, place):
            path.write_text(text)
            try:
                if meaning(Reranker.serve(published, path)) == before:
                    wrong.append(f"{place} {what}: without effect")
                elif what in ("deleted", "twice", "beside") and place != ("measured",):
                    wrong.append(f"{place} {what}: taken")
            except BadInput as error:
                # Of two keys that contradict each other one is named.
                named = place[-1] in str(error) or "beside the other keys" in str(error)
                if not named or "\n" in str(error):
                    wrong.append(f"{place} {what}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "content", ["", "{", "null", "[]", "1", '"text"', "[" * 100_000, "\x00", "{}", "NaN"]
)
def test_what_is_no_such_file_is_refused(content, published, tmp_path):
    path = tmp_path / FILE
    path.write_text(content)
    with pytest.raises(BadInput, match=re.escape(str(path))):
        Reranker.serve(published, path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=re.escape(str(path))):
        Reranker.serve(published, path)


def test_as_many_candidates_are_read_as_were_measured(published, tmp_path):
    """Min-max is over the candidates that are read: with others it is another system."""
    setting, path = written(published, "maxp", MIX) | {"depth": 2}, tmp_path / FILE
    path.write_text(json.dumps(setting))
    served = Reranker.serve(published, path)
    run = {"q": {doc_id: float(-i) for i, doc_id in enumerate(TEXTS)}}
    found = served.rerank(run, {"q": QUERY}, TEXTS, depth_only=True)
    assert found == served.rerank(run, {"q": QUERY}, TEXTS, depth=2, depth_only=True)
    assert set(found["q"]) == set([*TEXTS][:2])


def test_a_plain_encoder_is_not_served(backbone, reranker_folder, tmp_path):
    setting = written(reranker_folder, "maxp") | {"model": identity(backbone)}
    (tmp_path / FILE).write_text(json.dumps(setting))
    with pytest.raises(BadInput, match="would rank at random: nothing is trained"):
        Reranker.serve(str(backbone.folder), tmp_path / FILE)


def test_the_file_of_an_exported_model_is_that_of_its_weights(published, tmp_path):
    """Not of the checkpoint that the trial started from."""
    config = config_of(published, "maxp")
    model = build_model(config, resolve_backbone(published), init_seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    save_weights(tmp_path, {name: w.clone() for name, w in model.state_dict().items()})
    write_model(tmp_path / "m", config, tmp_path / WEIGHTS)
    ours = Reranker.load(tmp_path / "m").rank(QUERY, TEXTS)
    path = tmp_path / "m" / FILE
    assert Reranker.serve(str(tmp_path / "m"), path).rank(QUERY, TEXTS) == ours
    with pytest.raises(BadInput, match="content_hash"):
        Reranker.serve(published, path)
    write_model(tmp_path / "other", config, None)
    with pytest.raises(BadInput, match="content_hash"):
        Reranker.serve(str(tmp_path / "other"), path)


@pytest.mark.parametrize(
    ("fault", "named"),
    [("another tokenizer", "tokenizer"), ("another format", "format"), ("no file", FILE)],
)
def test_a_file_that_does_not_fit_is_refused(fault, named, tmp_path):
    folder = publish("bert", tmp_path / "published")
    write_model(tmp_path / "m", config_of(folder, "maxp"), None)
    path = tmp_path / "m" / FILE
    if fault == "another tokenizer":
        tokenizer = json.loads((tmp_path / "published" / "tokenizer.json").read_text())
        tokenizer["model"]["vocab"]["w900"] = tokenizer["model"]["vocab"].pop("w9")
        (tmp_path / "published" / "tokenizer.json").write_text(json.dumps(tokenizer))
        forget()
    elif fault == "another format":
        path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    else:
        path = tmp_path / "absent.json"
    with pytest.raises(BadInput, match=named):
        Reranker.serve(folder, path)


def test_the_precision_of_the_measurement_is_that_of_the_server(published, tmp_path):
    path, config = tmp_path / FILE, config_of(published, "maxp")
    for precision, said in (("bf16", "bf16"), ("auto", None)):
        own = config.override({"training.precision": precision})
        setting = serving_setting(own, identity(resolve_backbone(str(published))))
        assert setting.get("precision") == said
        path.write_text(json.dumps(setting))
        assert Reranker.serve(published, path).config.training.precision == precision
    path.write_text(json.dumps(setting | {"precision": "fp8"}))
    with pytest.raises(BadInput, match=r"training\.precision"):
        Reranker.serve(published, path)
    path.write_text(json.dumps(setting | {"precision": "int8", "runtime": "torch"}))
    with pytest.raises(BadInput, match="int8"):
        Reranker.serve(published, path)
