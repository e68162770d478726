"""Nothing of a sweep on Ray shows a secret: Ray's own files, the trials' and a failing trial's."""

import base64
import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.e2e.conftest import ROOT
from tests.e2e.test_secrets import SECRETS, texts

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.long]

MORE = {
    "AWS_SESSION_TOKEN": "planted-session-'\"token",
    "AWS_SECURITY_TOKEN": "planted-security-token",
    "SERVICE_PASSWD": "planted\\passwd\"'é&",
    "GITHUB_PAT": "planted_pat_0123456789",
    "BOT_TOKENS": "planted-a,planted-b",
    "SESSION_COOKIE": "planted=cookie; of=a",
    "SLACK_WEBHOOK_URL": "https://hooks.slack.com/services/T0/B0/planted",
}
FORMS = (
    str,
    lambda text: repr(text)[1:-1],
    lambda text: json.dumps(text)[1:-1],
    lambda text: quote(text, safe=""),
    lambda text: base64.b64encode(text.encode()).decode(),
)
OWN = '''
"""A model whose training shows every secret that its process has, in all forms."""

import base64, json, os
from urllib.parse import quote

from rank_core.models.passage_scores import MaxP


class Leaky(MaxP):
    label, paper = "Leaky", "none"

    def aggregate(self, *given, **more):
        if not os.environ.get("RAY_JOB_ID"):
            return super().aggregate(*given, **more)
        values = [os.environ[name] for name in {names!r}]
        forms = [f(v) for v in values for f in (str, repr, json.dumps, quote)]
        forms += [base64.b64encode(v.encode()).decode() for v in values]
        raise ValueError("refused with " + " ".join(forms))
'''
SWEEP = """
name = "leaks"
question = "Does anything leak?"
seeds = 1
[base]
training.num_epochs = 1
chunking.window = 48
chunking.stride = 48
[grid]
model.name = ["maxp", "leaky:Leaky"]
[baseline]
model.name = "maxp"
"""
START = """
import os, stat, sys
from pathlib import Path
from sweeps.ray_engine import cluster

with cluster.connected(1) as files:
    [folder] = Path(os.environ["TMPDIR"]).glob("ray-*")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.glob("r/session_*/logs"))
assert not folder.exists(), "removed after a good end"
"""


@pytest.fixture
def short():
    """A folder whose name is short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def environment(short):
    kept = {name: text for name, text in os.environ.items() if name != "RAY_ADDRESS"}
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | SECRETS | MORE | {"TMPDIR": str(short), "PYTHONPATH": os.pathsep.join(paths)}


def run(environment, folder, *words):
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=420,
    )


def test_no_file_of_a_sweep_on_ray_has_a_secret(
    environment, short, tmp_path, backbone_folder, collection_folder
):
    (tmp_path / "leaky.py").write_text(OWN.replace("{names!r}", repr(sorted(SECRETS | MORE))))
    (tmp_path / "leaks.toml").write_text(SWEEP)
    inputs = ["--backbone", str(backbone_folder), "--collection", str(collection_folder)]
    words = [
        "run",
        "leaks.toml",
        *inputs,
        "--storage",
        str(tmp_path / "results"),
        "--smoke-test",
        "--num-seeds",
        "1",
    ]
    done = run(environment, tmp_path, "-m", "sweeps", *words)
    said = done.stdout + done.stderr
    assert done.returncode == 3, said
    # The process of the trial has inherited all of them, and Ray's files are kept and private.
    [sweep] = (tmp_path / "results").glob("leaks/*")
    reasons = [path.read_text() for path in tmp_path.glob("results/trials/*/attempt-*.json")]
    assert any("refused with [redacted]" in text for text in reasons), reasons
    [folder] = short.glob("ray-*")
    assert f"Ray's files are kept in {folder}" in said
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.glob("r/session_*/logs/runtime_env_agent.log"))
    packed = run(environment, tmp_path, "-m", "sweeps", "bundle", str(sweep), "--to", "b.zip")
    (tmp_path / "said.txt").write_text(said + packed.stdout + packed.stderr)
    if packed.returncode == 0:
        subprocess.run([sys.executable, "-m", "zipfile", "-e", "b.zip", "b"], cwd=tmp_path)
    forms = {form(value).encode() for value in (SECRETS | MORE).values() for form in FORMS}
    found = {path: text for place in (short, tmp_path) for path, text in texts(place)}
    assert len(found) > 50
    leaks = [(path, form) for path, text in found.items() for form in forms if form in text]
    assert leaks == []


def test_the_folder_of_ray_is_private_and_goes_after_a_good_end(environment, short):
    good = run(environment, short, "-c", START)
    assert good.returncode == 0, good.stderr
    bad = run(environment, short, "-c", f"{START.replace('assert list', 'raise OSError;')}")
    [folder] = short.glob("ray-*")
    assert f"Ray's files are kept in {folder}" in bad.stdout
