"""The source of a sweep as MLflow's pages show it: its file and the commits of the checkouts."""

import os
import subprocess
from contextlib import suppress
from functools import cache


def source_tags(file: str) -> dict[str, str]:
    """Commit and cleanliness of this package, and a sweep's file under MLflow's own names, with the
    commit of its checkout; the first alone for ""."""
    own, tags = git_state(__file__), dict[str, str]()
    if own:
        tags |= {"git.sha": own[0], "git.dirty": own[1]}
    if file:
        tags |= {"mlflow.source.name": file, "mlflow.source.type": "LOCAL"}
        if state := git_state(file):
            tags |= {"mlflow.source.git.commit": state[0], "source.git.dirty": state[1]}
    return tags


@cache
def git_state(file: str) -> tuple[str, str] | None:
    """Commit of the checkout that a file belongs to, and "True" where that has changes; None
    outside of one, as in an environment that the checkout ignores."""
    folder, name = os.path.split(os.path.abspath(file))
    with suppress(OSError, subprocess.SubprocessError):
        if _git(folder, "check-ignore", name):
            return None
    try:
        sha = _git(folder, "rev-parse", "HEAD")
        return sha, str(bool(_git(folder, "status", "--porcelain")))
    except (OSError, subprocess.SubprocessError):
        return None


def _git(here: str, *words: str) -> str:
    command = ["git", "-C", here, *words]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    return result.stdout.strip()
