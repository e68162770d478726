"""sentence-transformers opens an exported model by OpenVINO, as `CrossEncoder(backend="openvino")`:
in an environment of its own, because optimum-intel needs an older transformers than ours."""

import json
import os
import subprocess

import numpy as np
import pytest

from rank_core.export.folder import write_model
from rank_core.export.reranker import Reranker
from rank_core.settings.config import TrialConfig

PYTHON = "RANKSWEEP_TEST_OPTIMUM"
pytestmark = pytest.mark.skipif(
    not os.environ.get(PYTHON),
    reason=f"{PYTHON} names no Python: `make build/optimum/bin/python` makes it",
)
QUERY = "read a file line by line"
TEXTS = ["Return the next line of the file.", "The largest of several numbers. " * 4]
PROGRAM = """
import json, sys
from sentence_transformers import CrossEncoder
folder, query, *texts = sys.argv[1:]
how = {"file_name": "openvino/openvino_model.xml", "ov_config": {"INFERENCE_PRECISION_HINT": "f32"}}
model = CrossEncoder(folder, backend="openvino", model_kwargs=how)
print(json.dumps(model.predict([(query, text) for text in texts]).tolist()))
"""


def test_the_scores_are_ours(tmp_path):
    pytest.importorskip("openvino", reason="pip install '.[openvino]' brings it")
    settings = {"model.name": "firstp", "training.num_epochs": 0, "training.precision": "fp32"}
    config = TrialConfig().override(settings | dict.fromkeys(CUT, 60))
    write_model(tmp_path / "m", config, None, runtime="openvino")
    words = [os.environ[PYTHON], "-c", PROGRAM, str(tmp_path / "m"), QUERY, *TEXTS]
    output = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout
    found = json.loads(output.strip().splitlines()[-1])
    own = dict(Reranker.load(tmp_path / "m").rank(QUERY, TEXTS))
    assert np.ptp(found) > 0.1
    assert found == pytest.approx([own[place] for place in range(len(TEXTS))], abs=1e-4)


CUT = ("chunking.window", "chunking.stride")
