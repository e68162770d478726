"""A link out of a model's folder, in each of its places: refused, and never in an export."""

import json
import os
import shutil
from pathlib import Path

import pytest

from rank_core.encoders.backbones import resolve_backbone
from rank_core.encoders.embedder import read_embedder
from rank_core.encoders.links import check_links, leaves
from rank_core.errors import BadInput
from rank_core.export.folder import write_model
from rank_core.models.embedding_model import EmbeddingModel
from rank_core.settings.config import TrialConfig
from tests.rank_core.encoders.test_module_chain import write_chain
from tests.rank_core.encoders.test_published_heads import config_of, publish

CHAIN = "0_Transformer/"
EXTRA = ("notes.txt", "chat_template.jinja", "spm.model", "0_Transformer/more.json")
LINK = "is a link to a file outside of"
WORD = "aws_secret_access_key"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A reranker with its encoder in a folder, five modules and files that nobody reads."""
    folder = tmp_path_factory.mktemp("whole") / "reranker"
    write_chain("bert", folder, transformer="0_Transformer")
    for name in EXTRA:
        (folder / name).write_text("{}")
    return folder


def files_of(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def places(folder: Path) -> list[str]:
    """Its files and its folders."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def moved_out(whole: Path, tmp_path: Path, place: str, *, relative: bool) -> Path:
    """A copy of the folder in which a place is a link to what it was, now elsewhere."""
    folder, elsewhere = tmp_path / "theirs", tmp_path / "victim" / "private"
    shutil.copytree(whole, folder)
    elsewhere.parent.mkdir()
    (folder / place).rename(elsewhere)
    target = os.path.relpath(elsewhere, (folder / place).parent) if relative else elsewhere
    (folder / place).symlink_to(target)
    return folder


@pytest.mark.parametrize("relative", [True, False])
def test_every_place_is_refused_or_never_exported(whole, tmp_path, relative):
    found = {}
    for number, place in enumerate(places(whole)):
        folder = moved_out(whole, tmp_path / str(number), place, relative=relative)
        is_weight = place.endswith(".safetensors")
        config = config_of(str(folder), "firstp", **{"training.num_epochs": 0})
        with pytest.raises(BadInput, match=LINK):
            if is_weight:  # it may lie on another disk, and is read
                resolve_backbone(str(folder))
                write_model(tmp_path / "exported", config, None)
            else:
                resolve_backbone(str(folder))
        assert not (tmp_path / "exported").exists()
        found[place] = is_weight
    assert {True, False} == {*found.values()}
    assert {"1_Pooling", "1_Pooling/config.json", "0_Transformer", "modules.json"} <= found.keys()


def test_an_embedding_model_and_an_encoder_s_own_folder_refuse_them_too(whole, tmp_path):
    folder = moved_out(whole, tmp_path, "1_Pooling/config.json", relative=True)
    with pytest.raises(BadInput, match=LINK):
        EmbeddingModel.load(str(folder))


def test_links_within_the_folder_and_of_a_snapshot_are_read(whole, tmp_path):
    repository = tmp_path / "models--o--n"
    snapshot, blobs = repository / "snapshots" / "0123", repository / "blobs"
    blobs.mkdir(parents=True)
    for number, name in enumerate(files_of(whole)):
        shutil.copy(whole / name, blobs / str(number))
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).symlink_to(os.path.relpath(blobs / str(number), (snapshot / name).parent))
    check_links("o/n", snapshot, weights=True)
    assert resolve_backbone(str(snapshot)).content_hash == resolve_backbone(str(whole)).content_hash
    assert leaves(snapshot, repository / "refs" / "main")  # of the cache, no blob
    inside = tmp_path / "inside"
    shutil.copytree(whole, inside)
    (inside / "copy.json").symlink_to("0_Transformer/config.json")
    check_links("inside", inside, weights=True)
    (tmp_path / "named").symlink_to(inside)  # the folder itself may be one
    check_links("named", tmp_path / "named", weights=True)


def test_a_further_encoder_s_folder_gives_only_what_it_is_read_from(small_trial, tmp_path):
    encoder = Path(publish("electra", tmp_path / "electra"))
    for name in ("notes.txt", "credentials.json", "more.model"):
        (encoder / name).write_text(f'{{"{WORD}": 1}}')
    settings = {
        "model.name": "parade-transformer-pretrained",
        "model.aggregator": str(encoder),
        "training.num_epochs": 0,
    }
    config: TrialConfig = small_trial.override(settings)
    write_model(tmp_path / "exported", config, weights_of(config, tmp_path))
    names = files_of(tmp_path / "exported" / "aggregator")
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {*names}
    assert not {"notes.txt", "credentials.json", "more.model"} & {*names}
    for path in (tmp_path / "exported").rglob("*"):
        assert not path.is_file() or WORD.encode() not in path.read_bytes()
    (encoder / "config.json").rename(tmp_path / "private.json")
    (encoder / "config.json").symlink_to("../private.json")
    with pytest.raises(BadInput, match=LINK):
        write_model(tmp_path / "again", config, None)


def weights_of(config: TrialConfig, folder: Path) -> Path:
    from rank_core.checkpoints.weights import WEIGHTS, save_weights
    from rank_core.models.build import build_model

    backbone = resolve_backbone(config.model.backbone)
    save_weights(folder, build_model(config, backbone, init_seed=1).state_dict())
    return folder / WEIGHTS


def test_the_modules_within_a_router_refuse_them_too(tmp_path):
    folder = tmp_path / "theirs"
    (folder / "query_0_Transformer").mkdir(parents=True)
    kind = "sentence_transformers.base.modules.router.Router"
    (folder / "modules.json").write_text(json.dumps([{"type": kind, "path": ""}]))
    (tmp_path / "private").write_text("{}")
    (folder / "query_0_Transformer" / "config.json").symlink_to(tmp_path / "private")
    with pytest.raises(BadInput, match=LINK):
        read_embedder(str(folder))
