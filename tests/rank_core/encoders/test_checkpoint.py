"""Checkpoints as strangers make them: each file damaged in each way, code that they bring along,
facts in them that contradict each other. Either the scores are equal, or one sentence names the
file."""

import builtins
import io
import json
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast

from rank_core.children import OverLimit
from rank_core.encoders import decoder_rerankers
from rank_core.encoders.backbones import load_tokenizer, resolve_backbone
from rank_core.errors import BadInput
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.models.ranker import Ranker
from tests.contracts.small_backbones import write_backbone
from tests.rank_core.encoders import (
    test_decoder_rerankers,
    test_module_chain,
    test_published_heads,
)
from tests.rank_core.encoders.test_published_heads import config_of, forget

ROOT = Path(__file__).parents[3]
TEXTS = {
    "one": "w7 w9 w11 w30",
    "two": "w20 w21 w22 w23 w24 w25 w26 w27 w28 w29 w30",
    "three": "w8",
}
QUERY = "w7 w9 w11"


def scored(folder, **settings):
    """Scores of texts, from the folder to the number, as a trial computes them."""
    forget()
    config = config_of(str(folder), "maxp", **settings)
    backbone = resolve_backbone(str(folder))
    check_model(config, backbone)
    model = build_model(config, backbone, init_seed=1).eval()
    assert isinstance(model, Ranker)
    read = load_tokenizer(backbone.folder)
    ids = {
        name: np.array(read(text, add_special_tokens=False)["input_ids"], dtype=np.int32)
        for name, text in {**TEXTS, "": QUERY}.items()
    }
    query = ids.pop("")
    reader = type(model).reader(config, backbone, ids)
    with torch.inference_mode():
        return model(reader.collate([reader.chunks(query, name) for name in ids])).tolist()


def plain(folder):
    """An encoder without a head, with the vocabulary of old checkpoints as well."""
    write_backbone("bert", folder)


def reranker(folder):
    test_published_heads.publish("bert", folder)


def decoder(folder):
    test_decoder_rerankers.publish("qwen3", folder)


def modules(folder):
    test_module_chain.write_chain("bert", folder)


def exported(folder):
    """As an export writes it: with a layout of its own and a head."""
    write_backbone("bert", folder)
    (folder / "row_layout.json").write_text('{"prefix": [0], "middle": [2, 2], "suffix": [2]}')
    head = {"weight": torch.ones(1, 16), "bias": torch.zeros(1)}
    save_file(head, folder / "ranking_head.safetensors")


def old(folder):
    """With its weights in a pickle and in parts, and words in a text file."""
    write_backbone("bert", folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")


def sharded(folder):
    write_backbone("bert", folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    halves = {"a.safetensors": [*weights][::2], "b.safetensors": [*weights][1::2]}
    for file, names in halves.items():
        save_file({name: weights[name] for name in names}, folder / file, {"format": "pt"})
    places = {name: file for file, names in halves.items() for name in names}
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def in_words(folder):
    """With its vocabulary in vocab.txt alone."""
    write_backbone("bert", folder)
    words = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(295))]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    weights = load_file(folder / "model.safetensors")
    rows = torch.randn(300, 16, generator=torch.Generator().manual_seed(1))
    save_file(
        weights | {"embeddings.word_embeddings.weight": rows},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 300}))


MAKERS = (plain, reranker, decoder, modules, exported, old, sharded, in_words)
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
DAMAGES = {
    "missing": lambda data: None,
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "null": lambda data: b"null",
    "list": lambda data: b"[]",
    "table": lambda data: b"{}",
    "number": lambda data: b"3",
    "list of null": lambda data: b"[null]",
    "table of null": lambda data: b'{"a": null}',
    "bytes": lambda data: b"\xff\xfe\x00\x01",
    "nested": lambda data: b"[" * 100_000,
    "pointer": lambda data: POINTER,
}


OPTIONAL = ("modules.json", "row_layout.json", "ranking_head.safetensors")
"""Without these a folder is another checkpoint, and as good; an export has the hashes of all."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """{maker: a folder that it has made, and its scores}."""
    made = {}
    for maker in MAKERS:
        folder = tmp_path_factory.mktemp(maker.__name__)
        maker(folder)
        made[maker] = folder, scored(folder)
    return made


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("maker", MAKERS)
def test_a_damaged_file_is_named_or_changes_nothing(maker, whole, tmp_path):
    folder, expected = whole[maker]
    wrong = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        for damage, change in DAMAGES.items():
            place = shutil.copytree(folder, tmp_path / f"{path.name}-{damage}")
            file = place / path.relative_to(folder)
            content = change(path.read_bytes())
            file.unlink() if content is None else file.write_bytes(content)
            if damage == "missing" and file.name in OPTIONAL:
                continue
            case = f"{path.relative_to(folder)} {damage}"
            try:
                if (found := scored(place)) != expected:
                    wrong.append(f"{case}: other scores {found}")
            except BadInput as error:
                if file.name not in str(error) and not explained(file.name, str(error)):
                    wrong.append(f"{case}: does not name it: {error}")
                if damage == "pointer" and "git lfs pull" not in str(error):
                    wrong.append(f"{case}: {error}")
            except Exception as error:
                wrong.append(f"{case}: {type(error).__name__}: {error}")
            shutil.rmtree(place)
    assert not wrong, "\n".join(wrong)


def explained(file, error):
    """True where a message says by what else it knows that a file is missing or useless."""
    said = {
        "special tokens for rows": ("tokenizer_config.json", "special_tokens_map.json"),
        "chat template": ("chat_template.jinja", "tokenizer_config.json"),
        "has no tokenizer": ("tokenizer.json", "vocab.txt"),
        "has no weights": ("pytorch_model.bin",),
        "trained head": ("modules.json",),
    }
    return any(words in error and file in files for words, files in said.items())


VALUES = (None, [], {}, "x", -1, 0, 10**7, 1.5, True, [None], ["x"], {"x": None})


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("maker", [reranker, decoder])
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_no_value_of_a_field_ends_in_a_traceback(maker, file, whole, tmp_path):
    folder, _ = whole[maker]
    place = shutil.copytree(folder, tmp_path / "changed")
    content = json.loads((folder / file).read_text())
    more = ("quantization_config", "auto_map", "attn_implementation", "id2label", "tokenizer_class")
    wrong = []
    for key in {*content, *more}:
        for value in VALUES:
            (place / file).write_text(json.dumps(content | {key: value}))
            try:
                scored(place)
            except BadInput:
                pass
            except Exception as error:
                wrong.append(f"{key}={value!r}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


EVIL = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\nclass X: pass\n"


def asks_nothing(monkeypatch):
    """Standard input that answers y to every question, and counts them."""
    asked = []

    def answer(*words):
        asked.append(words)
        return "y"

    monkeypatch.setattr(builtins, "input", answer)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 1000))
    return asked


MAPS = {
    kind: f"visiting_code.{kind}" for kind in ("AutoConfig", "AutoModel", "AutoModelForCausalLM")
} | {"AutoModelForSequenceClassification": "visiting_code.X"}


FURTHER = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("mosaic-bert", "llama")]


@pytest.mark.parametrize("model_type", ["bert", "visiting", *FURTHER])
@pytest.mark.parametrize(
    "tokenizer", [None, ["visiting_code.X", "visiting_code.X"], "visiting_code.X"]
)
def test_no_code_of_a_checkpoint_runs_and_nothing_is_asked(
    model_type, tokenizer, tmp_path, monkeypatch
):
    folder = tmp_path / "b"
    folder.mkdir()
    write_backbone("bert", folder)
    (folder / "visiting_code.py").write_text(EVIL)
    files = {"config.json": {"model_type": model_type, "auto_map": MAPS}}
    if tokenizer:
        named = {"tokenizer_class": "VisitingTokenizer", "auto_map": {"AutoTokenizer": tokenizer}}
        files["tokenizer_config.json"] = named
    for file, more in files.items():
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(content | more))
    asked = asks_nothing(monkeypatch)
    for name in ("parade-transformer-pretrained", "firstp", "keyb"):
        forget()
        with suppress(BadInput):
            config = config_of(str(folder), name)
            more = {"parade-transformer-pretrained": "aggregator", "keyb": "selector_backbone"}
            if setting := more.get(name):
                config = config.override({f"model.{setting}": str(folder)})
            backbone = resolve_backbone(str(folder))
            check_model(config, backbone)
            build_model(config, backbone, init_seed=1)
    assert not asked and not [*tmp_path.rglob("ran")]
    assert not [name for name in sys.modules if "visiting" in name]
    if model_type in ("visiting", "mosaic-bert"):
        with pytest.raises(BadInput, match=r"never run.*config\.json"):
            resolve_backbone(str(folder))


def test_checkpoints_come_in_by_one_door():
    door = ROOT / "rank_core" / "encoders" / "checkpoint.py"
    calls = re.compile(r"\bAuto(Config|Tokenizer)\b|(?<!Embedding)\.from_pretrained\(")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for top in ("rank_core", "sweeps", "ranksweep")
        for path in (ROOT / top).rglob("*.py")
        if path != door
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if calls.search(line)
    ]
    assert not found
    source = door.read_text()
    calls_there = len(re.findall(r"\.from_pretrained\(|\.from_config\b", source))
    assert source.count("trust_remote_code") >= calls_there > 2
    assert "trust_remote_code=True" not in source


def changed_config(**facts):
    def change(folder):
        content = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(content | facts))

    return change


def changed_weights(change):
    def changed(folder):
        weights = load_file(folder / "model.safetensors")
        save_file(change(weights), folder / "model.safetensors", {"format": "pt"})

    return changed


def with_a_token_more(folder):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens(["w999"])
    tokenizer.save_pretrained(folder)


def not_a_number(weights):
    weights["encoder.layer.1.output.dense.weight"][3, 3] = float("nan")
    return weights


def infinite(weights):
    weights["encoder.layer.1.output.dense.weight"][3, 3] = float("inf")
    return weights


def in_integers(weights):
    name = "encoder.layer.1.output.dense.weight"
    return weights | {name: (weights[name] * 10).to(torch.int8)}


class Code:
    """An object whose pickle would run code where it is read without care."""

    def __reduce__(self):
        return print, ("run",)


def with_code(folder):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights | {"code": Code()}, folder / "pytorch_model.bin")


CONTRADICTIONS = {
    "a token more": (with_a_token_more, r"tokens up to 50 \('w999'\).* 50 rows: resize"),
    "quantised": (changed_config(quantization_config={"bits": 4}), "quantised.*made from"),
    "in integers": (changed_weights(in_integers), "as I8: quantised"),
    "NaN": (changed_weights(not_a_number), r"layer\.1\.output\.dense\.weight that are not finite"),
    "infinite": (changed_weights(infinite), "not finite"),
    "other width": (
        changed_config(hidden_size=32),
        r"disagree about sizes.*\(50, 16\).*\(50, 32\)",
    ),
    "other vocabulary": (changed_config(vocab_size=60), r"stored as \(50, 16\)"),
    "more layers": (changed_config(num_hidden_layers=3), r"lacks \d+ weights|weights, and"),
    "fewer layers": (changed_config(num_hidden_layers=1), r"fewer layers .*layer\.1\."),
    "no layers": (changed_config(num_hidden_layers=0), r"has no layer \(num_hidden_layers\)"),
    "a million layers": (changed_config(num_hidden_layers=10**6), "more than 1000 layers"),
    "wide": (changed_config(hidden_size=10**7), "disagree about sizes"),
    "positions": (
        changed_config(position_embedding_type="relative_key"),
        "relative_key positions are not computed",
    ),
    "code in a pickle": (with_code, "cannot be read .it holds more than tensors, which is never"),
    "adapters": (lambda f: (f / "adapter_config.json").write_text("{}"), "merge_and_unload"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_facts_that_contradict_each_other_are_refused_from_headers(name, whole, tmp_path):
    change, message = CONTRADICTIONS[name]
    folder = shutil.copytree(whole[plain][0], tmp_path / "b")
    change(folder)
    forget()
    with pytest.raises(BadInput, match=message):
        resolve_backbone(str(folder))


def without_the_head(weights):
    return {name: weight for name, weight in weights.items() if name != "classifier.weight"}


def of_two_scores(weights):
    name = "classifier.weight"
    return weights | {name: weights[name].repeat(2, 1)}


HEADS = {
    "absent": (changed_weights(without_the_head), "lacks 1 weights.*classifier.weight"),
    "other size": (changed_weights(of_two_scores), r"classifier\.weight is stored as \(2, 16\)"),
    "labels": (changed_config(id2label=["a", "b"]), "id2label.*no table"),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_does_not_fit_is_refused_before_it_is_read(name, whole, tmp_path):
    change, message = HEADS[name]
    folder = shutil.copytree(whole[reranker][0], tmp_path / "b")
    change(folder)
    forget()
    with pytest.raises(BadInput, match=message):
        check_model(config_of(str(folder), "firstp"), resolve_backbone(str(folder)))


WRAPPERS = ("_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module.")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("maker", [plain, reranker, decoder])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrapped_weights_are_those_of_the_model(maker, wrapper, whole, tmp_path):
    folder, expected = whole[maker]
    place = shutil.copytree(folder, tmp_path / "b")
    changed_weights(lambda own: {wrapper + key: value for key, value in own.items()})(place)
    assert scored(place) == expected


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("setting", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize("named", ["flash_attention_2", "flex_attention", "someone/kernels:run", 3])
def test_the_attention_that_config_json_names_is_not_used(setting, named, whole, tmp_path):
    for maker in (plain, reranker, decoder):
        folder, expected = whole[maker]
        place = shutil.copytree(folder, tmp_path / maker.__name__)
        changed_config(**{setting: named})(place)
        assert scored(place) == expected


LOOPS = (
    "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{{ 'x' * 10000000000 }}",
    "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_a_chat_template_has_little_time_and_memory(loop, tmp_path, monkeypatch):
    monkeypatch.setattr("rank_core.encoders.decoder_rerankers.TEMPLATE_SECONDS", 2)
    chat = loop + test_decoder_rerankers.CHAT
    with pytest.raises(BadInput, match=r"more than 2 seconds, 1\.0 GiB"):
        resolve_backbone(test_decoder_rerankers.publish("qwen3", tmp_path / "b", chat=chat))


def test_a_failure_of_the_template_s_process_is_not_kept(tmp_path, monkeypatch):
    """A busy machine kills it once; the same folder is read the next time."""
    place = test_decoder_rerankers.publish("qwen3", tmp_path / "b")

    def killed(*given, **bounds):
        raise OverLimit("timed out")

    decoder_rerankers._run_template.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(decoder_rerankers, "bounded", killed)
        with pytest.raises(BadInput, match="its chat template needs more than"):
            resolve_backbone(place)
    resolve_backbone(place)


def test_a_chat_template_writes_before_the_query(tmp_path):
    chat = test_decoder_rerankers.CHAT.removeprefix("w0 w1 ")
    with pytest.raises(BadInput, match="write text before the query"):
        resolve_backbone(test_decoder_rerankers.publish("qwen3", tmp_path / "b", chat=chat))
