"""An exported model on the Hugging Face Hub: `ranksweep export DIR --to hf://ORG/NAME`.

huggingface_hub signs in by itself (`hf auth login`, or HF_TOKEN): no flag, file or message of ours
has the token.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from rank_core.errors import BadInput, shown
from rank_core.secrets import REDACTED, redact_text

PREFIX = "hf://"
FORM = f"{PREFIX}ORG/NAME"


def repository_of(to: str | None) -> str:
    """`ORG/NAME` of `hf://ORG/NAME`; empty for a folder. Raises `BadInput` for another form."""
    if to is None or not to.startswith(PREFIX):
        return ""
    name = to.removeprefix(PREFIX)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise BadInput(f"a model on the Hugging Face Hub is {FORM}, got {shown(to)}")
    return name


def require_login() -> None:
    """Raises `BadInput` where nobody is signed in, before any work."""
    from huggingface_hub import get_token

    if not get_token():
        raise BadInput(f"--to {FORM} needs a login that may write: `hf auth login`, or HF_TOKEN")


def listing(folder: Path) -> Iterator[str]:
    """`  1,234  README.md` of each file of a folder, then their sum."""
    sizes = {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    total = f"{sum(sizes.values()):,}"
    for name, size in sizes.items():
        yield f"  {size:>{len(total)},}  {name}"
    yield f"  {total}  bytes in {len(sizes)} files"


def send(folder: Path, repository: str, *, public: bool) -> str:
    """Sends a folder as one commit of a model repository, which is made if there is none, private
    unless `public`; returns the commit's address. Raises `BadInput` for what the Hub refuses, and
    for a public repository that is not said to be meant."""
    from huggingface_hub import HfApi, get_token

    api, token = HfApi(), get_token() or ""
    try:
        api.create_repo(repository, private=not public, exist_ok=True)
        if not public and not api.model_info(repository).private:
            raise BadInput(
                f"{PREFIX}{repository} is public: --public says that it is meant; or name another"
            )
        commit = api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message="A model of ranksweep"
        )
    except BadInput:
        raise
    except Exception as error:  # of the network, the hub, or a refusal
        reason = " ".join(str(error).split())
        reason = reason.replace(token, REDACTED) if token else reason
        raise BadInput(
            f"{PREFIX}{repository} was not written: {type(error).__name__} "
            f"{redact_text(reason)[:300]}"
        ) from None
    return str(commit.commit_url)
