"""A server of others loads an exported classifier: infinity, by its address on this machine."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest

from rank_core.checkpoints.weights import WEIGHTS, save_weights
from rank_core.encoders.backbones import resolve_backbone
from rank_core.export.folder import write_model
from rank_core.export.reranker import Reranker
from rank_core.models.build import build_model
from rank_core.settings.config import TrialConfig

PROGRAM = "RANKSWEEP_TEST_INFINITY"
QUERY = "read a file line by line"
TEXTS = [
    "Return the next line of the file, or an empty string at its end.",
    "The largest of several numbers.",
    "Open a socket and wait for a connection. " * 4,
]
pytestmark = pytest.mark.skipif(
    not os.environ.get(PROGRAM), reason=f"{PROGRAM} names no program: `make test-extras` has it"
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the shipped backbone with a drawn classifier."""
    folder = tmp_path_factory.mktemp("exported")
    settings = {"model.name": "maxp", "model.head": "classifier", "model.dropout": 0.0}
    config = TrialConfig().override(settings | {"chunking.window": 96, "chunking.stride": 96})
    model = build_model(config, resolve_backbone(config.model.backbone), init_seed=1)
    save_weights(folder, {name: weight.clone() for name, weight in model.state_dict().items()})
    write_model(folder / "m", config, folder / WEIGHTS)
    return folder / "m"


@pytest.fixture(scope="module")
def ask(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """What the server answers to a request for a ranking."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["v2", "--model-id", str(exported / "encoder"), "--served-model-name", "ours"]
    words += [
        "--engine",
        "torch",
        "--device",
        "cpu",
        "--dtype",
        "float32",
        "--no-bettertransformer",
    ]
    words += ["--no-model-warmup", "--host", "127.0.0.1", "--port", str(port)]
    said = tmp_path_factory.mktemp("infinity") / "log"
    quiet = {"DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
    with said.open("w") as log:
        server = subprocess.Popen(
            [os.environ[PROGRAM], *words],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **quiet},
        )
    address = f"http://127.0.0.1:{port}"

    def asked(**more: Any) -> dict[int, float]:
        content = {"model": "ours", "query": QUERY, "documents": TEXTS} | more
        request = Request(
            f"{address}/rerank", json.dumps(content).encode(), {"Content-Type": "application/json"}
        )
        with urlopen(request, timeout=60) as answer:
            return {one["index"]: one["relevance_score"] for one in json.load(answer)["results"]}

    try:
        deadline = time.monotonic() + 180
        while True:
            assert server.poll() is None and time.monotonic() < deadline, said.read_text()
            try:
                urlopen(f"{address}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.5)
        yield asked
    finally:
        server.terminate()
        server.wait(30)


def test_the_server_gives_the_scores_of_the_model(exported, ask):
    ranked = dict(Reranker.load(exported, device="cpu", precision="fp32").rank(QUERY, TEXTS))
    ours = np.array([ranked[place] for place in range(len(TEXTS))])
    assert ours.std() > 1e-3
    raw = ask(raw_scores=True)
    np.testing.assert_allclose([raw[i] for i in range(len(TEXTS))], ours, atol=1e-4)
    plain = ask()  # by default it puts a sigmoid over the score
    np.testing.assert_allclose(
        [plain[i] for i in range(len(TEXTS))], 1 / (1 + np.exp(-ours)), atol=1e-4
    )
