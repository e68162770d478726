"""The source of a sweep: its file, and the commits of the checkouts."""

import subprocess
from pathlib import Path

from sweeps.plan.description import git_state, source_tags


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_source_has_the_commit_of_its_checkout_and_an_ignored_file_none(tmp_path):
    file, ignored = tmp_path / "sweep.py", tmp_path / "env" / "sweep.py"
    (tmp_path / ".gitignore").write_text("env\n")
    ignored.parent.mkdir()
    for path in (file, ignored):
        path.write_text("x")
    _git(tmp_path, "init", "-q")
    git_state.cache_clear()
    named = {"mlflow.source.name": str(file), "mlflow.source.type": "LOCAL"}
    own = source_tags("")
    assert source_tags(str(file)) == own | named, "no commit yet"
    git_state.cache_clear()
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "x")
    sha = _git(tmp_path, "rev-parse", "HEAD")
    expected = {"mlflow.source.git.commit": sha, "source.git.dirty": "False"}
    assert source_tags(str(file)) == own | named | expected
    git_state.cache_clear()
    file.write_text("y")
    assert source_tags(str(file))["source.git.dirty"] == "True"
    assert "mlflow.source.git.commit" not in source_tags(str(ignored))
