"""Encoders of the Hugging Face Hub; the one that a trial has by default, pinned."""

from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from rank_core.data.made.python_docs import EMBEDDED
from rank_core.data.transforms.expression import base_of
from rank_core.encoders.checkpoint import CHECKPOINT_FILES, PICKLED
from rank_core.encoders.shipped import TRAINED
from rank_core.encoders.st_folder import stated_modules
from rank_core.errors import BadInput
from rank_core.files import file_sha256, kept_while_unchanged

DEFAULT = "sentence-transformers/all-MiniLM-L6-v2"
REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
WEIGHTS = "model.safetensors"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""The default encoder, by the commit of its repository and the hash of its weights."""
HUB_TIMEOUT = 5  # seconds
HEADS_PICKLED = "*/pytorch_model.bin"  # of modules


def default_encoder(collection: str) -> str:
    """The encoder over a collection where none is named: a published one, whose answer may be
    used; the shipped one over the embedded collections."""
    return TRAINED if base_of(collection) in EMBEDDED else DEFAULT


def hub_folder(name: str) -> Path:
    """The folder of the files of a Hugging Face id, downloaded if it is not in the cache. The
    default encoder has its own revision, or a cached one with the same weights. Raises `BadInput`
    if it cannot be had."""
    found = _cached(name)
    if found is None:
        return _downloaded(name)
    return _completed(name, found) if _lacks_modules(found) else found


def _lacks_modules(folder: Path) -> bool:
    """True where a module's folder is missing, as where transformers alone has cached a model; that
    of a Normalize had no file, which a repository does not keep."""
    modules = stated_modules(folder)
    return any(not (folder / m.path).is_dir() for m in modules if m.kind != "Normalize")


@lru_cache(maxsize=16)  # tried once in a process
def _completed(name: str, folder: Path) -> Path:
    """The folder of a cached commit with the files that it lacks, if they can be had."""
    with suppress(Exception):  # whoever reads the folder says what is missing
        _download(name, folder.name)
    return folder


def _cached(name: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    patterns = [*CHECKPOINT_FILES, PICKLED, HEADS_PICKLED]
    for revision in (REVISION, None) if name == DEFAULT else (None,):
        try:
            folder = snapshot_download(
                name, revision=revision, allow_patterns=patterns, local_files_only=True
            )
        except HFValidationError as error:
            raise BadInput(
                f"there is no folder {name}; a backbone is `tiny-docs`, a folder or a Hugging Face "
                f"id ({error})"
            ) from None
        except OSError:  # not in the cache
            continue
        if name != DEFAULT or _has_weights(Path(folder)):
            return Path(folder)
    return None


@kept_while_unchanged(maxsize=4)
def _has_weights(folder: Path) -> bool:
    with suppress(OSError):
        return file_sha256(folder / WEIGHTS) == SHA256
    return False


def _download(name: str, revision: str | None) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    # A hub that accepts connections without answering would block the download for minutes.
    info = HfApi().model_info(name, revision=revision, timeout=HUB_TIMEOUT)
    files = [file.rfilename for file in info.siblings or ()]
    # Old repositories have only pickled weights, which transformers loads as data.
    weights = () if any(f.endswith(".safetensors") for f in files) else (PICKLED, HEADS_PICKLED)
    patterns = [*CHECKPOINT_FILES, "README.md", *weights]
    return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))


def _downloaded(name: str) -> Path:
    from huggingface_hub.errors import OfflineModeIsEnabled

    try:
        folder = _download(name, REVISION if name == DEFAULT else None)
    except OfflineModeIsEnabled:
        reason = "HF_HUB_OFFLINE is set"
    except Exception as error:  # whatever it is, the remedy is the same
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    else:
        if name != DEFAULT or _has_weights(folder):
            return folder
        reason = f"its {WEIGHTS} has not the SHA-256 {SHA256[:12]}..."
    usual = ", the default over a collection of your own," if name == DEFAULT else ""
    raise BadInput(
        f"backbone {name!r}{usual} is no folder, not in the Hugging Face cache, and cannot be "
        f"downloaded ({reason}): name a copy with --backbone FOLDER, which `hf download {name} "
        "--local-dir FOLDER` makes where there is a network, or try the installation with "
        "--backbone tiny-docs"
    )
