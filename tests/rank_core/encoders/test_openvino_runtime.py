"""Encoders that OpenVINO computes (extra `openvino`): the vectors of torch, and what is refused."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from rank_core.chunking.inputs import load_inputs
from rank_core.encoders import openvino_runtime
from rank_core.encoders.backbones import resolve_backbone
from rank_core.errors import BadInput
from rank_core.export.folder import ExportedModel, read_model, write_model
from rank_core.export.reranker import Reranker
from rank_core.models.build import build_model
from rank_core.models.checks import check_model
from rank_core.models.embedding_model import EmbeddingModel
from rank_core.models.runtimes import calibration_rows, use_runtime
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import run_trial
from sweeps.__main__ import main

QUERY = "oak river"
AS_IS = {"training.num_epochs": 0, "training.precision": "fp32"}


@pytest.fixture
def installed():
    pytest.importorskip("openvino", reason="pip install '.[openvino]' brings it")


@pytest.fixture
def quantizes(installed):
    pytest.importorskip("nncf", reason="pip install '.[openvino]' brings it")


@pytest.fixture
def as_is(small_trial, reranker_folder):
    """A model as it is, of chunks of unequal lengths."""
    return small_trial.override({"model.backbone": str(reranker_folder), **AS_IS})


def _texts(config) -> dict[str, str]:
    documents = load_inputs(config.collection, config.model.backbone).collection.documents
    return {doc_id: documents[doc_id] for doc_id in documents}


def _scores(config, **how) -> dict[str, float]:
    backbone = resolve_backbone(config.model.backbone)
    model = build_model(config, backbone, init_seed=3).eval()
    reranker = Reranker(ExportedModel(model, config, backbone), "cpu", "fp32", **how)
    return dict(reranker.rank(QUERY, _texts(config)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["maxp", "parade-attn", "avgp"])
@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_the_scores_are_those_of_torch(installed, as_is, name, pool):
    config = as_is.override({"model.name": name, "model.pool": pool, "model.head": "new"})
    expected, found = _scores(config), _scores(config, runtime="openvino")
    assert found == pytest.approx(expected, abs=1e-4)
    assert np.std(list(expected.values())) > 1e-2


@pytest.mark.slow
def test_threads_share_an_encoder(installed, as_is):
    backbone = resolve_backbone(as_is.model.backbone)
    model = build_model(as_is, backbone, init_seed=3).eval()
    reranker = Reranker(ExportedModel(model, as_is, backbone), "cpu", "fp32", "openvino")
    texts, found = _texts(as_is), []
    expected = reranker.rank(QUERY, texts)
    threads = [
        threading.Thread(target=lambda: found.append(reranker.rank(QUERY, texts))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


@pytest.mark.slow
def test_an_exported_model_gives_the_scores_of_its_trial_in_int8(
    quantizes, as_is, tmp_path, monkeypatch
):
    config = as_is.override({"training.precision": "int8"})
    *_, _ = run_trial(config, tmp_path / "trial")
    trial = (tmp_path / "trial" / "test.run.gz").read_bytes()
    *_, _ = run_trial(config, tmp_path / "again")
    assert trial == (tmp_path / "again" / "test.run.gz").read_bytes()
    write_model(tmp_path / "m", config, None)
    monkeypatch.setattr("rank_core.models.runtimes.converted", None)  # the graphs are there
    inputs = load_inputs(config.collection, config.model.backbone)
    split = inputs.collection.splits["test"]
    reranker = Reranker.load(tmp_path / "m")
    own = reranker.rerank(split.candidates, split.queries, inputs.collection.documents)
    from rank_core.data.trec import read_run

    expected = read_run(tmp_path / "trial" / "test.run.gz")
    fp32 = Reranker.load(tmp_path / "m", precision="fp32", runtime="torch")
    wide = fp32.rerank(split.candidates, split.queries, inputs.collection.documents)
    for query_id, scores in expected.items():
        assert own[query_id] == pytest.approx(scores, abs=1e-6)
        assert own[query_id] != pytest.approx(wide[query_id], abs=1e-6)
    graph = Reranker.load(tmp_path / "m", precision="fp32", runtime="openvino")
    again = graph.rerank(split.candidates, split.queries, inputs.collection.documents)
    for query_id, scores in wide.items():
        assert again[query_id] == pytest.approx(scores, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("lora", [0, 2])
def test_a_trained_model_may_be_served_in_int8(lora, quantizes, small_trial, tmp_path):
    """Adapters are merged before the graph is made."""
    if lora:
        pytest.importorskip("peft", reason="pip install '.[lora]' brings it")
    steps = {"training.max_steps": 2, "training.backbone_learning_rate": 1e-2 if lora else 1e-4}
    trial = small_trial.override({**steps, "training.keep_weights": "all"})
    trial = trial.override({"training.lora_rank": lora})
    *_, _ = run_trial(trial, tmp_path / "trial")
    weights = tmp_path / "trial" / "weights.safetensors"
    write_model(tmp_path / "m", trial, weights, runtime="openvino", precision="int8")
    settings = read_model(tmp_path / "m").config
    assert (settings.evaluation.runtime, settings.training.precision) == ("openvino", "int8")
    texts = _texts(trial)
    served = dict(Reranker.load(tmp_path / "m").rank(QUERY, texts))
    assert {*served} == {*texts}
    write_model(tmp_path / "plain", trial, weights)
    expected = dict(Reranker.load(tmp_path / "plain", precision="fp32").rank(QUERY, texts))
    graph = Reranker.load(tmp_path / "m", precision="fp32", runtime="openvino")
    assert dict(graph.rank(QUERY, texts)) == pytest.approx(expected, abs=1e-4)
    spread = np.std([*expected.values()])
    far = [abs(served[doc_id] - score) for doc_id, score in expected.items()]
    assert 0 < np.mean(far) < spread


@pytest.mark.slow
def test_calibration_reads_dev_alone(as_is):
    inputs = load_inputs(as_is.collection, as_is.model.backbone)
    rows = calibration_rows(as_is, inputs)
    assert sum(len(row["input_ids"]) for row in rows) <= 64
    dev = inputs.query_tokens("dev")
    known = [dev[query_id].tolist() for query_id in inputs.collection.splits["dev"].queries]
    for row in rows:
        for ids in row["input_ids"].tolist():
            assert any(ids[1 : 1 + len(query)] == query for query in known)


@pytest.mark.slow
def test_embeddings_are_those_of_torch(installed):
    folder = "tiny-docs"
    texts = ["oak river", "a stone by the river " * 9]
    torch_ND, own_ND = (
        EmbeddingModel.load(folder, device="cpu", runtime=name).encode_documents(texts)
        for name in ("torch", "openvino")
    )
    assert own_ND == pytest.approx(torch_ND, abs=1e-4)
    hashes = {
        EmbeddingModel.load(folder, device="cpu", runtime=name).content_hash
        for name in ("torch", "openvino")
    }
    assert len(hashes) == 2


def test_int8_embeddings_are_near_those_of_torch_and_have_a_name_of_their_own(quantizes):
    texts = [f"oak {'river ' * n}stone number {n}" for n in range(24)]
    torch_one = EmbeddingModel.load("tiny-docs", device="cpu")
    int8 = EmbeddingModel.load("tiny-docs", device="cpu", precision="int8", documents=texts)
    expected, found = (model.encode_documents(texts) for model in (torch_one, int8))
    cosine_N = torch.nn.functional.cosine_similarity(*map(torch.from_numpy, (expected, found)))
    assert 0.97 < float(cosine_N.min()) and np.abs(expected - found).max() > 1e-6
    others = EmbeddingModel.load("tiny-docs", device="cpu", precision="int8", documents=texts[:9])
    assert len({torch_one.content_hash, int8.content_hash, others.content_hash}) == 3
    assert int8.encode_queries(texts[:2]).shape == (2, expected.shape[1])


CONVERTS = """
from rank_core.encoders.backbones import load_encoder, resolve_backbone
from rank_core.encoders.openvino_runtime import converted
converted(load_encoder(resolve_backbone("tiny-docs"), 0.0), "tiny-docs", segments=True)
"""


@pytest.mark.slow
def test_a_conversion_says_nothing(installed):
    # In a process of its own: transformers says each thing once.
    ran = subprocess.run([sys.executable, "-c", CONVERTS], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


class _Fixed(nn.Module):
    """An encoder whose graph would fix the number of traced tokens."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.config = encoder, encoder.config

    def forward(self, input_ids, **rest):
        output = self.encoder(input_ids=input_ids, **rest)
        output.last_hidden_state = output.last_hidden_state * float(input_ids.shape[1])
        return output


class _Raises(_Fixed):
    def forward(self, input_ids, **rest):
        raise ValueError("no graph\nof this")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "reason"), [(_Fixed, "other vectors"), (_Raises, "Error: .*")])
def test_an_encoder_that_cannot_be_converted_is_refused(installed, as_is, kind, reason):
    model = build_model(as_is, resolve_backbone(as_is.model.backbone), init_seed=1).eval()
    with pytest.raises(BadInput, match=rf"backbone oak cannot be converted .*{reason}"):
        openvino_runtime.converted(kind(model.encoder), "oak", segments=True)


@pytest.mark.slow
def test_nothing_is_sent_to_its_vendor(installed):
    program = "from rank_core.encoders import openvino_runtime as o; import sys; o._openvino(); "
    program += "print('openvino_telemetry' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "False"


def test_without_openvino_the_message_says_what_to_install(as_is, monkeypatch):
    monkeypatch.setattr(openvino_runtime, "find_spec", lambda name: None)
    backbone = resolve_backbone(as_is.model.backbone)
    for settings in ({"evaluation.runtime": "openvino"}, {"training.precision": "int8"}):
        with pytest.raises(BadInput, match=r"is not installed.*pip install '\.\[openvino\]'"):
            check_model(as_is.override(settings), backbone)


REFUSED = [
    ({"training.precision": "int8", "evaluation.runtime": "torch"}, "is computed by OpenVINO"),
    ({"training.precision": "int8", "training.num_epochs": 1}, "training.num_epochs=0"),
    ({"evaluation.runtime": "openvino", "training.num_epochs": 1}, "training.num_epochs=0"),
    ({"evaluation.runtime": "openvino", "model.name": "bi-encoder"}, "model bi-encoder reads"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_what_does_not_go_together_is_refused(as_is, settings, message):
    config = as_is.override(settings)
    with pytest.raises(BadInput, match=message):
        check_model(config, resolve_backbone(config.model.backbone))


def test_a_command_ends_with_2(capsys):
    words = ["run", "serving", "evaluation.runtime=onnx", "--engine", "local"]
    assert main(words) == 2
    assert "evaluation.runtime" in (text := capsys.readouterr().err)
    assert "openvino" in text and "Traceback" not in text


def test_int8_without_rows_says_where_they_come_from(monkeypatch):
    monkeypatch.setattr(openvino_runtime, "find_spec", lambda name: object())
    with pytest.raises(BadInput, match="--runtime openvino --precision int8"):
        openvino_runtime.quantized(None, [])


def test_another_device_is_refused(as_is):
    backbone = resolve_backbone(as_is.model.backbone)
    model = build_model(as_is, backbone, init_seed=1).to("meta")
    with pytest.raises(BadInput, match="on a CPU here, but the device is meta"):
        use_runtime(model, as_is.override({"evaluation.runtime": "openvino"}), backbone, None)


def test_a_runtime_is_torch_unless_it_is_asked_for(as_is, tmp_path):
    model = build_model(as_is, resolve_backbone(as_is.model.backbone), init_seed=1)
    use_runtime(model, as_is, resolve_backbone(as_is.model.backbone), torch.bfloat16)
    assert model.compiled is None
    assert not Path(tmp_path, openvino_runtime.FOLDER).exists()
    assert TrialConfig().evaluation.runtime == "auto"


def test_torch_does_not_pass_for_int8(as_is):
    backbone = resolve_backbone(as_is.model.backbone)
    exported = ExportedModel(build_model(as_is, backbone, init_seed=1), as_is, backbone)
    with pytest.raises(BadInput, match="int8 is computed by OpenVINO"):
        Reranker(exported, "cpu", "int8", "torch")
    with pytest.raises(BadInput, match="int8 is computed by OpenVINO"):
        EmbeddingModel.load("tiny-docs", precision="int8", runtime="torch")
