"""The folder of an exported model.

    encoder/                                     the encoder and tokenizer of Hugging Face
    encoder/openvino/                            its graphs for OpenVINO, where they were asked for
    ranker.safetensors                           head, aggregator and all other trained weights
    ranker.json                                  every setting, the model's origin, and the SHA-256
                                                 of itself and of every file but the card
    aggregator/, interaction/, selector_backbone/   further encoders, if any
    frequencies.safetensors                      document frequencies of words, if blocks need them
    code/                                        the source of a model from outside the package
    serving.json                                 how documents are cut and chunk scores put together
    README.md                                    the model card

`read_model` needs no file but these.
"""

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import transformers
from safetensors import SafetensorError
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rank_core.checkpoints.weights import ENCODER, require_base
from rank_core.chunking.inputs import FURTHER_ENCODERS, load_inputs
from rank_core.data.transforms.expression import with_folder
from rank_core.encoders.alibi import AlibiEncoder
from rank_core.encoders.any_kind import is_whole
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import (
    ENCODER_FOLDER,
    checkpoint_folder,
    load_encoder,
    load_tokenizer,
    resolve_backbone,
    saved_with,
)
from rank_core.encoders.backbones import EXPORT_FILE as FILE
from rank_core.encoders.checkpoint import (
    CONFIG,
    FORMS,
    INDEX,
    LAYOUT_FILE,
    VOCABULARY_FILES,
    WEIGHTS_FILE,
    read_json,
    save_tokenizer,
    weight_files,
)
from rank_core.encoders.lora import merge_adapters
from rank_core.encoders.module_chain import ChainHead, save_modules
from rank_core.encoders.published_heads import PublishedHead, save_classifier
from rank_core.encoders.shipped import RANKING_HEAD
from rank_core.encoders.st_folder import TRANSFORMER_FILES
from rank_core.errors import BadInput, shown, unknown
from rank_core.export.embedding_folder import of_old_exports, write_embedder
from rank_core.export.multi_vector_folder import write_multi_vector
from rank_core.export.serving import FILE as SERVING
from rank_core.export.serving import (
    identity,
    is_cross_encoder,
    row_tokenizer,
    serving_setting,
    write_cross_encoder,
)
from rank_core.files import file_sha256, finite, new_folder, write_json
from rank_core.models import MODELS, model_class, trains
from rank_core.models.bi_encoder import BiEncoder
from rank_core.models.build import build_model, require_weights
from rank_core.models.checks import check_model
from rank_core.models.key_blocks import BLOCK_SCORES, BlockReader, DocumentFrequencies
from rank_core.models.late_interaction import ColBert
from rank_core.models.ranker import Ranker, draws_classifier
from rank_core.models.runtimes import require_runtime, write_graphs
from rank_core.own_code import is_ours, is_reference, load_written, source_hash, write_source
from rank_core.parsing import Unparsed, parsed_json
from rank_core.ranking.final_runs import Interpolation
from rank_core.ranking.interpolation import FirstStageMix
from rank_core.settings.config import TrialConfig, runtime_of

T = TypeVar("T")
REST, FREQUENCIES, CARD = "ranker.safetensors", "frequencies.safetensors", "README.md"
CODE = "code"
MERGED = {name: value for name, value in TrialConfig().settings().items() if ".lora_" in name}
"""An exported encoder has no adapters any more."""
FORMAT = 3
LATER = frozenset(
    "chunking.overlap chunking.snap chunking.title evaluation.evidence evaluation.folds_file "
    "evaluation.keep_selected_blocks evaluation.runtime evaluation.test_alpha evaluation.test_on "
    "model.document_prompt model.maxsim model.query_prompt model.stored model.truncate_dim".split()
)
"""Settings that the first folders of this format lack; their defaults do what was done then."""
_PLACE = re.compile(
    r"(?<=')/[^']+|(?:(?<=file://)|(?<=sqlite:///)|(?<![\w.:/<]))/[^\s'\"`|,;()]*[^\s'\"`|,;().]"
)
"""An absolute path of this machine in a text; one with spaces is quoted."""


@dataclass(frozen=True)
class ExportedModel:
    """The content of a folder: a ranker in evaluation mode on the CPU, and its other inputs."""

    model: Ranker
    config: TrialConfig
    backbone: Backbone
    frequencies: DocumentFrequencies | None = None
    interpolation: Interpolation | None = None  # of Birch
    first_stage: FirstStageMix | None = None  # of a system "+BM25"
    about: Mapping[str, Any] = field(default_factory=dict)  # its origin


def write_model(
    folder: Path,
    config: TrialConfig,
    weights: Path | None,
    *,
    interpolation: Mapping[str, float] | None = None,
    first_stage: FirstStageMix | None = None,
    about: Mapping[str, Any] | None = None,
    measured: Mapping[str, Any] | None = None,
    card: str = "",
    runtime: str = "",
    precision: str = "",
) -> None:
    """Write the model of a finished trial, whole or not at all: its settings, its
    `weights.safetensors` (None: the checkpoint as it is), the `interpolation` of Birch, the weight
    of the `first_stage` of an interpolated system, and what was `measured`, for `serving.json`
    (None: nothing of what the folder computes). With another `runtime` or `precision` than its
    trial's, the model is computed so where it is loaded. Raises `BadInput` if the folder is not
    empty or the weights are of another model.
    """
    require_new(folder)
    backbone = _copied_backbone(config)
    given = {"evaluation.runtime": runtime, "training.precision": precision}
    computed = {name: word for name, word in given.items() if word}
    served = config.override(computed | {"training.num_epochs": 0, "training.init_from": ""})
    if runtime_of(served) != "torch":
        require_runtime(served, backbone)
    if weights:
        model = trained_model(config, backbone, weights)
    else:
        require_weights(config, backbone)
        model = build_model(config, backbone, init_seed=0)
    with new_folder(folder) as unfinished:
        (unfinished / ENCODER_FOLDER).mkdir()
        _write_encoder(model, backbone, unfinished / ENCODER_FOLDER)
        if runtime_of(served) != "torch":
            write_graphs(model, served, backbone, unfinished / ENCODER_FOLDER)
        settings = config.settings() | computed | _write_further_encoders(config, unfinished)
        settings |= type(model).stated_settings(config.model, backbone)
        rest = {k: v for k, v in model.state_dict().items() if not k.startswith(ENCODER)}
        save_file({k: v.contiguous() for k, v in rest.items()}, unfinished / REST)
        if (frequencies := _frequencies(config, backbone)) is not None:
            arrays = {k: np.ascontiguousarray(v) for k, v in frequencies._asdict().items()}
            save_arrays(arrays, unfinished / FREQUENCIES)
        _write_head_and_tokenizer(model, config, backbone, unfinished)
        if model_class(config.model.name).chunk_pooling:
            named = identity(backbone, unfinished / ENCODER_FOLDER if weights else None)
            setting = serving_setting(config.override(computed), named, first_stage)
            _write_serving(unfinished, setting, measured)
        if own := config.model.name if is_reference(config.model.name) else "":
            write_source(own, unfinished / CODE)
        files = sorted(path for path in unfinished.rglob("*") if path.is_file())
        content = {
            "format": FORMAT,
            "settings": portable(settings)
            | {"collection": _collection_name(config.collection), "model.backbone": ENCODER_FOLDER}
            | MERGED,
            "interpolation": dict(interpolation) if interpolation else None,
            **({"first_stage": asdict(first_stage)} if first_stage else {}),
            "about": finite(portable(dict(about or {}))),
            **({"code": source_hash(own)} if own else {}),
            "files": {str(path.relative_to(unfinished)): file_sha256(path) for path in files},
        }
        write_json(unfinished / FILE, content | {"sha256": _digest(content)})
        (unfinished / CARD).write_text(portable(card), encoding="utf-8")
        for path in unfinished.rglob("*.safetensors"):  # the library hides them from other users
            path.chmod((unfinished / CARD).stat().st_mode)


def read_model(folder: Path | str, *, trust_code: bool = False) -> ExportedModel:
    """The model in a folder. Raises `BadInput` if there is none, if a file of it has changed, if
    another version wrote it, or if its class is from outside the package: that one must have been
    imported by the caller, or is imported from the folder with `trust_code`."""
    folder = Path(folder).absolute()
    config, content = _read_settings(folder)
    _require_class(config.model.name, content.get("code"), folder / CODE, trust_code=trust_code)
    backbone = resolve_backbone(config.model.backbone)
    if not config.training.init_from:  # its plan has checked weights that are elsewhere
        require_weights(config, backbone)
    model = build_model(config, backbone, init_seed=0)
    backbone = type(model).backbone_of(config.model, backbone)
    rest = {name for name in model.state_dict() if not name.startswith(ENCODER)}
    try:
        weights = load_file(folder / REST)
    except (SafetensorError, OSError) as error:
        raise _changed(folder / REST, str(error)) from None
    _load(model, weights, folder / REST, expected=rest)
    frequencies = None
    if (folder / FREQUENCIES).exists():
        arrays = load_arrays(folder / FREQUENCIES)
        number = int(arrays["num_documents"].item())
        frequencies = DocumentFrequencies(number, arrays["words"], arrays["counts"])
    return ExportedModel(
        model.eval(),
        config,
        backbone,
        frequencies=frequencies,
        interpolation=_stated(Interpolation, content, "interpolation", folder),
        first_stage=_stated(FirstStageMix, content, "first_stage", folder),
        about=content.get("about", {}),
    )


def _stated(kind: Callable[..., T], content: Mapping[str, Any], key: str, folder: Path) -> T | None:
    """A table of `ranker.json` as an object; None where it has none."""
    if not content.get(key):
        return None
    try:
        return kind(**content[key])
    except TypeError as error:
        raise _changed(folder / FILE, f"{key}: {error}") from None


def read_settings(folder: Path | str, *, trust_code: bool = False) -> TrialConfig:
    """The settings of the model in a folder, with its encoders as paths there. Raises `BadInput`
    as `read_model` does."""
    folder = Path(folder).absolute()
    config, content = _read_settings(folder)
    _require_class(config.model.name, content.get("code"), folder / CODE, trust_code=trust_code)
    return config


def _read_settings(folder: Path) -> tuple[TrialConfig, dict[str, Any]]:
    content = _read_unchanged(folder)
    settings = dict(content["settings"])
    if missing := sorted(TrialConfig().settings().keys() - settings.keys() - LATER):
        raise _changed(folder / FILE, f"no setting {missing[0]}")
    places = {f"model.{name}": str(folder / name) for name in FURTHER_ENCODERS}
    settings |= {name: place for name, place in places.items() if settings.get(name)}
    settings |= of_old_exports(settings)
    backbone = str(folder / ENCODER_FOLDER)
    return TrialConfig().override(settings | {"model.backbone": backbone}), content


def _read_unchanged(folder: Path) -> dict[str, Any]:
    """The content of `ranker.json`, after a comparison of itself and all files with their
    hashes."""
    require_model(folder)
    try:
        content = dict(parsed_json((folder / FILE).read_text(encoding="utf-8")))
        written, digest = content["format"], content.pop("sha256", "")
    except (ValueError, KeyError, TypeError, OSError) as error:
        why = error.reason if isinstance(error, Unparsed) else type(error).__name__
        raise _changed(folder / FILE, why) from None
    if written != FORMAT:
        raise BadInput(
            f"{folder / FILE} must have format {FORMAT}, got {shown(written)}: it was written by "
            "another version of ranksweep; load it with that one, or export the model again"
        )
    if digest != _digest(content):
        raise _changed(folder / FILE, "another SHA-256")
    shapes = {"settings": dict, "files": dict, "about": dict}
    for name, shape in shapes.items():
        if not isinstance(content.get(name), shape):
            raise _changed(folder / FILE, f"no table {name}")
    for name, stated in content["files"].items():
        if not (folder / name).is_file() or file_sha256(folder / name) != stated:
            raise _changed(folder / name, "it is missing, or has another SHA-256")
    return content


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _changed(path: Path, found: str) -> BadInput:
    return BadInput(
        f"{path} must be as `ranksweep export` wrote it ({found}): the folder is damaged or was "
        "edited; export the model again, or copy it again from where it is whole"
    )


def portable(value: Any) -> Any:
    """A value for other machines: in its texts an absolute path is its last part."""
    if isinstance(value, str):
        return _PLACE.sub(lambda path: Path(path[0]).name, value)
    if isinstance(value, Mapping):
        return {name: portable(item) for name, item in value.items()}
    return [portable(item) for item in value] if isinstance(value, list | tuple) else value


def _collection_name(collection: str) -> str:
    """The collection as a name for other machines: the last part of an absolute path."""
    base = Path(collection.partition("|")[0].strip())
    return with_folder(collection, base.name) if base.is_absolute() else collection


def is_packaged(name: str) -> bool:
    """True for a model of this package, by its name or its class."""
    return name in MODELS or is_ours(name)


def _require_class(name: str, code: Any, folder: Path, *, trust_code: bool) -> None:
    """Raises `BadInput` unless the class of a model may be used. A name in a folder imports nothing
    from outside the package: the caller has imported the module, or trusts the source in the
    folder. Either must be the source that the model was trained with, by its hash `code`."""
    if is_packaged(name):
        return
    if not is_reference(name):
        raise unknown(f"model of {folder.parent}", name, MODELS)
    if not isinstance(code, str):
        raise BadInput(
            f"{folder.parent / FILE} names the model {name}, which is not in this package, without "
            "the hash of its source (code): export the model again"
        )
    module = name.partition(":")[0]
    if module in sys.modules and source_hash(name) == code:
        return
    if module not in sys.modules and trust_code:
        load_written(name, folder, code)
        return
    found = "another source of it is loaded here" if module in sys.modules else "nothing is run"
    raise BadInput(
        f"{folder.parent} names the model {name}, which is not in this package ({found}): import "
        f"{module} before the folder is loaded if it is your own, of the source that the model was "
        f"trained with; or read that source in {folder}, then load with trust_code=True "
        "(--trust-code)"
    )


def require_model(folder: Path) -> None:
    """Raises `BadInput` for a folder without an exported model."""
    if not (folder / FILE).is_file():
        serving = "; a published reranker becomes one by `ranksweep run serving` and `export`"
        raise BadInput(
            f"an exported model is a folder with {FILE}, as `ranksweep export` writes it; "
            f"{folder} has none{serving * (folder / 'config.json').is_file()}"
        )


def require_new(folder: Path) -> None:
    """Raises `BadInput` for a folder that is not empty."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise BadInput(f"--to must be a new or an empty folder; {folder} is not empty")


def published_model(config: TrialConfig) -> ExportedModel:
    """A published reranker as it is, read as the settings say. Raises `BadInput` for settings that
    it cannot be read with, and for a checkpoint without a trained head, which would rank at
    random."""
    backbone = resolve_backbone(config.model.backbone)
    check_model(config, backbone)
    model = build_model(config, backbone, init_seed=0).eval()
    return ExportedModel(model, config, backbone, frequencies=_frequencies(config, backbone))


def trained_model(config: TrialConfig, backbone: Backbone, weights: Path) -> Ranker:
    """The ranker of a trial with its kept weights, which must be complete; adapters are merged."""
    model = build_model(config, backbone, init_seed=0)
    require_base(weights, backbone.content_hash)
    _load(model, load_file(weights), weights, expected=set(model.learned_state()))
    merge_adapters(model.encoder)
    return model


def _load(model: Ranker, weights: Mapping[str, Tensor], path: Path, *, expected: set[str]) -> None:
    own = model.state_dict()
    different = expected ^ weights.keys()
    different |= {n for n in expected & weights.keys() if weights[n].shape != own[n].shape}
    if different:
        raise BadInput(
            f"{path}: must hold the weights of this model; {len(different)} are missing, unknown "
            f"or of another shape, such as {min(different)}"
        )
    with torch.no_grad():
        model.load_state_dict(dict(weights), strict=False)


def _write_encoder(model: Ranker, backbone: Backbone, folder: Path) -> None:
    encoder = model.encoder
    if isinstance(model.head, PublishedHead):
        save_classifier(backbone, encoder, model.head, folder)
        return
    if isinstance(model.head, ChainHead):
        encoder.save_pretrained(folder)  # type: ignore[operator]
        save_modules(model.head.chain, folder, model.head)
        return
    if isinstance(encoder, nn.Embedding):  # of a model that reads the word table alone
        whole = load_encoder(backbone, 0.0)
        with torch.no_grad():
            whole.get_input_embeddings().weight.copy_(encoder.weight)  # type: ignore[operator]
        encoder = whole
    if isinstance(encoder, AlibiEncoder):
        save_file(encoder.state_dict(), folder / "model.safetensors")
        write_json(folder / CONFIG, read_json(backbone.folder / CONFIG, dict))
        return
    assert isinstance(encoder, transformers.PreTrainedModel)
    encoder.save_pretrained(folder)
    if is_whole(encoder):
        save_modules(saved_with(backbone.folder), folder)
    if (layout := model.rows_over(backbone).own_layout) is not None:
        write_json(folder / LAYOUT_FILE, layout._asdict())


def _write_serving(
    folder: Path, setting: Mapping[str, Any], measured: Mapping[str, Any] | None
) -> None:
    """Writes `serving.json`, without a test of the model where it was not `measured`."""
    tested = {} if measured is None else {"measured": dict(measured)}
    write_json(folder / SERVING, finite({**setting, **tested}))


def _write_head_and_tokenizer(
    model: Ranker, config: TrialConfig, backbone: Backbone, folder: Path
) -> None:
    """Writes the tokenizer, for sentence-transformers, which ranks by the model alone, and the head
    with which a sweep may start, with the pooling that it reads."""
    if isinstance(model, BiEncoder):
        write_embedder(folder, model)
    elif isinstance(model, ColBert):
        write_multi_vector(folder, model)
    elif is_cross_encoder(config, backbone):
        write_cross_encoder(folder, config, backbone, model)
    elif draws_classifier(backbone, config.model.head):
        save_tokenizer(row_tokenizer(config, backbone), folder / ENCODER_FOLDER)
    else:
        save_tokenizer(load_tokenizer(backbone.folder), folder / ENCODER_FOLDER)
    if model.scores_chunks and isinstance(model.head, nn.Linear):
        head = folder / ENCODER_FOLDER / RANKING_HEAD
        save_file(model.head.state_dict(), head, metadata={"pooling": model.pooling})


def _write_further_encoders(config: TrialConfig, folder: Path) -> dict[str, str]:
    """Copies the files that further encoders are read from; returns {setting: its folder here}.
    Their trained weights are in `ranker.safetensors`."""
    places = {}
    for name in FURTHER_ENCODERS:
        if not (encoder := getattr(config.model, name)):
            continue
        source, places[f"model.{name}"] = resolve_backbone(encoder).folder, name
        (folder / name).mkdir()
        _copy_checkpoint(encoder, source, folder / name)
    return places


def _copied_backbone(config: TrialConfig) -> Backbone:
    """The backbone. Raises `BadInput` for an encoder with a link out of its folder, whose target
    would become a part of the export."""
    for name in (config.model.backbone, *(getattr(config.model, one) for one in FURTHER_ENCODERS)):
        if name:
            checkpoint_folder(name, copied=True)
    return resolve_backbone(config.model.backbone)


def _copy_checkpoint(name: str, source: Path, target: Path) -> None:
    """Copies the files that an encoder is read from, with its modules, which may select blocks;
    those of JSON are written anew, so that no byte is copied that is not a part of their values."""
    for file in (CONFIG, INDEX, LAYOUT_FILE, *FORMS, *TRANSFORMER_FILES):
        if (source / file).exists():
            write_json(target / file, read_json(source / file, dict))
    weights = [path.name for path in weight_files(name, source)]
    further = (RANKING_HEAD, "merges.txt", "chat_template.jinja")
    for file in (*weights, *further, *set(VOCABULARY_FILES) - set(FORMS)):
        if (source / file).exists():
            shutil.copyfile(source / file, target / file)
    saved = saved_with(source)
    save_modules(saved, target)
    for step in saved.steps:
        for file in (WEIGHTS_FILE, "pytorch_model.bin"):
            if (saved.folder / step.path / file).exists():
                shutil.copyfile(saved.folder / step.path / file, target / step.path / file)


def _frequencies(config: TrialConfig, backbone: Backbone) -> DocumentFrequencies | None:
    """The collection's document frequencies, for a model that chooses blocks by them."""
    kind = model_class(config.model.name)
    assert trains(kind)
    reader = kind.reader(config, backbone, {})  # type: ignore[arg-type]
    if not isinstance(reader, BlockReader):
        return None
    if not any(reader.selector.startswith(name) for name in BLOCK_SCORES):
        return None
    tokens = load_inputs(config.collection, config.model.backbone).tokens
    reader = kind.reader(config, backbone, tokens)
    assert isinstance(reader, BlockReader)
    return reader.blocks.frequencies
