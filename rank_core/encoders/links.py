"""Links in the folder of a checkpoint. git keeps them, and one that leads out of the folder would
bring a file of this machine, such as a login, into what is read, shown and exported."""

from collections.abc import Iterator
from pathlib import Path

from rank_core.encoders.checkpoint import CHECKPOINT_FILES, MODULES, PICKLED
from rank_core.encoders.saved_model import folders_of
from rank_core.encoders.st_folder import encoder_folder, stated_modules
from rank_core.errors import BadInput

WEIGHTS = ("*.safetensors", PICKLED)
"""Files of tensors, which may lie on another disk: nothing of them is text."""
SETTINGS = tuple(pattern for pattern in CHECKPOINT_FILES if pattern not in WEIGHTS)


def check_links(name: str, top: Path, *, weights: bool = False) -> None:
    """Raises `BadInput` for a file of settings, and of `weights` where these are copied, that is a
    link out of the folder `top`. The links of a snapshot of the Hub into its own blobs are none."""
    patterns = (*SETTINGS, *WEIGHTS) if weights else SETTINGS
    for path in _files(top, patterns):
        if leaves(top, path):
            raise BadInput(
                f"{path} of {name} is a link to a file outside of {top}, which is not "
                f"{'copied into an export' if weights else 'read'}: put the file itself there"
            )


def _files(top: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    if (top / MODULES).is_symlink():
        yield top / MODULES  # before it is read
    modules = folders_of(top, stated_modules(top))
    for folder in dict.fromkeys((top, top / "encoder", encoder_folder(top), *modules)):
        yield folder
        for pattern in patterns:
            yield from sorted(folder.glob(pattern))


def leaves(top: Path, path: Path) -> bool:
    """Whether a path in a folder leads out of it."""
    home, real = top.resolve(), path.resolve()
    if real.is_relative_to(home):
        return False
    repositories = [above.parent for above in home.parents if above.name == "snapshots"]
    return not any(real.is_relative_to((one / "blobs").resolve()) for one in repositories)
