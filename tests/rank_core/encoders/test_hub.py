"""The encoder of trials that name none, in a cache as huggingface_hub lays it out."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rank_core.encoders import hub
from rank_core.encoders.backbones import checkpoint_folder, resolve_backbone
from rank_core.encoders.hub import DEFAULT, REVISION, WEIGHTS, default_encoder
from rank_core.errors import BadInput
from rank_core.files import file_sha256
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import portable_config
from sweeps.__main__ import main

OTHER = 40 * "a"


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Iterator[Path]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    for kept in (resolve_backbone, hub._completed):  # of a name of the Hub they ask once
        kept.cache_clear()
    yield tmp_path / "hub"
    resolve_backbone.cache_clear()


def cached(cache: Path, source: Path, revision: str, *, main: bool = True) -> Path:
    """A revision of the default encoder with the files of another folder."""
    top = cache / f"models--{DEFAULT.replace('/', '--')}"
    snapshot = top / "snapshots" / revision
    for folder in (snapshot, top / "blobs", top / "refs"):
        folder.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        blob = top / "blobs" / file_sha256(path)
        shutil.copy(path, blob)
        (snapshot / path.name).symlink_to(f"../../blobs/{blob.name}")
    if main:
        (top / "refs" / "main").write_text(revision)
    return snapshot


@pytest.mark.parametrize(
    ("collection", "name"),
    [
        ("python-docs", "tiny-docs"),
        ("python-docs-passages|far-relevant(max_queries=20)|debias", "tiny-docs"),
        ("mine|fields(uri=doc_id)", DEFAULT),
        ("robust04-title", DEFAULT),
        ("./python-docs", DEFAULT),
    ],
)
def test_only_the_embedded_collections_have_the_shipped_encoder(collection, name):
    config = TrialConfig(collection)
    assert default_encoder(collection) == name
    assert portable_config(config).model.backbone == name
    # BM25 reads no encoder: nothing is downloaded to count tokens.
    unread = portable_config(config.override({"model.name": "bm25"}))
    assert unread.model.backbone == "tiny-docs"
    named = config.override({"model.backbone": "tiny-docs-untrained"})
    assert portable_config(named).model.backbone == "tiny-docs-untrained"


def test_the_cached_copy_has_the_pinned_weights(cache, backbone_folder, monkeypatch):
    monkeypatch.setattr(hub, "SHA256", file_sha256(backbone_folder / WEIGHTS))
    other = cached(cache, backbone_folder, OTHER)
    assert checkpoint_folder(DEFAULT) == other  # the same weights, of another revision
    pinned = cached(cache, backbone_folder, REVISION, main=False)
    assert checkpoint_folder(DEFAULT) == pinned
    assert resolve_backbone(DEFAULT).content_hash == resolve_backbone(str(pinned)).content_hash
    monkeypatch.setattr(hub, "SHA256", 64 * "0")
    with pytest.raises(BadInput, match="HF_HUB_OFFLINE is set"):
        checkpoint_folder(DEFAULT)


def test_a_cached_copy_without_a_module_s_folder_is_completed_by_the_same_commit(
    cache, backbone_folder, tmp_path, monkeypatch
):
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [{"path": path, "type": f"a.{kind}"} for path, kind in kinds.items()]
    source = Path(shutil.copytree(backbone_folder, tmp_path / "source"))
    (source / "modules.json").write_text(json.dumps(modules))
    monkeypatch.setattr(hub, "SHA256", file_sha256(source / WEIGHTS))
    folder = cached(cache, source, OTHER)
    asked = []

    def answered(name, revision):
        asked.append(revision)
        (folder / "1_Pooling").mkdir()

    assert checkpoint_folder(DEFAULT) == folder  # no network: whoever reads it says what is missing
    monkeypatch.setattr(hub, "_download", answered)
    hub._completed.cache_clear()
    for _ in range(2):
        assert checkpoint_folder(DEFAULT) == folder
    assert asked == [OTHER] and (folder / "1_Pooling").is_dir()


def test_without_a_network_one_line_says_what_to_name(
    cache, collection_folder, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = ["run", "seeds", "--collection", str(collection_folder), "--engine", "local"]
    assert main(words) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    reason, remedies = "HF_HUB_OFFLINE", ("--backbone FOLDER", "--backbone tiny-docs")
    assert all(word in line for word in (DEFAULT, "your own", reason, *remedies))
    assert "unset" not in line
    assert not Path("results").exists()
    assert main([*words, "--backbone", "tiny-docs", "--dry-run", "--smoke-test"]) == 0
