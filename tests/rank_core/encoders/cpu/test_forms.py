"""Forms of computation: chosen by a clear margin, measured once per machine, recorded and used."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoConfig, AutoModel

from rank_core.encoders import attention
from rank_core.encoders.attention import use_own_attention
from rank_core.encoders.cls_only import only_cls
from rank_core.encoders.cpu import forms, packed_layers
from rank_core.encoders.cpu.forms import CHOICES, chosen, form, measure, unusual_forms
from rank_core.encoders.cpu.packed_layers import packed
from rank_core.training.optimizer import autocast_type

USUAL = {name: choice.usual for name, choice in CHOICES.items()}
OTHERS = {name: choice.other for name, choice in CHOICES.items()}
BF16 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="no bf16 kernels"
)


@pytest.fixture
def take(monkeypatch):
    """Makes this machine choose the given forms."""
    return lambda taken: monkeypatch.setattr(forms, "_forms", lambda _: USUAL | taken)


@pytest.fixture
def unmeasured(monkeypatch, tmp_path):
    """A machine without measurements."""
    monkeypatch.delenv("RANKSWEEP_FAST_PATHS")
    monkeypatch.setenv("RANKSWEEP_CACHE", str(tmp_path))
    forms._forms.cache_clear()
    yield tmp_path
    forms._forms.cache_clear()


def seconds(faster: float) -> dict[str, dict[str, float]]:
    """As measured where the other form is that many times as fast."""
    return {name: {choice.usual: faster, choice.other: 1.0} for name, choice in CHOICES.items()}


def test_only_a_clear_margin_moves_a_machine_from_the_usual_form():
    assert chosen({}) == chosen(seconds(1.0)) == chosen(seconds(1.15)) == USUAL
    assert chosen(seconds(1.3)) == OTHERS | {"precision auto": "fp32"}
    assert chosen(seconds(2.2))["precision auto"] == "fp32"  # AVX512-bf16
    assert chosen(seconds(5.0)) == OTHERS


def test_measurements_are_cached_for_all_processes(unmeasured, monkeypatch):
    monkeypatch.setattr(forms, "measure", lambda: seconds(5.0))
    assert form("packed gelu fp32") == "apart"
    forms._forms.cache_clear()  # as in another process
    monkeypatch.setattr(forms, "measure", lambda: pytest.fail("measured again"))
    assert form("packed gelu fp32") == "apart"
    [file] = unmeasured.glob("cpu-forms/*/forms.json")
    assert json.loads(file.read_text())["seconds"] == seconds(5.0)


def test_trials_that_start_together_choose_alike(unmeasured, monkeypatch):
    answers = iter([seconds(1.0), *[seconds(5.0)] * 9])
    monkeypatch.setattr(forms, "measure", lambda: next(answers))
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda _: forms._forms.__wrapped__(False), range(4))]
    assert found == [USUAL] * 4


def test_another_processor_is_measured_again(unmeasured, monkeypatch):
    monkeypatch.setattr(forms, "measure", lambda: seconds(5.0))
    form("precision auto")
    forms._forms.cache_clear()
    monkeypatch.setattr(forms, "cpu_facts", lambda: {"cpu": "another"})
    monkeypatch.setattr(forms, "measure", lambda: seconds(1.0))
    assert form("precision auto") == "fp32"


@pytest.mark.parametrize("value", ["usual", "off"])
def test_the_switch_avoids_the_measurement(unmeasured, monkeypatch, value):
    monkeypatch.setenv("RANKSWEEP_FAST_PATHS", value)
    monkeypatch.setattr(forms, "measure", lambda: pytest.fail("measured"))
    assert {name: form(name) for name in CHOICES} == USUAL


def test_a_measurement_has_no_side_effects():
    torch.manual_seed(5)
    torch.set_num_threads(2)
    try:
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            found = measure()
            assert torch.is_inference_mode_enabled() and torch.is_autocast_enabled("cpu")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    drawn = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(3))
    names = {name for name in CHOICES if name.endswith("fp32")}
    assert names <= set(found) <= set(CHOICES)
    for name, times in found.items():
        assert set(times) == set(CHOICES[name][:2])
        assert all(0 < second < 1 for second in times.values())


def test_a_trial_notes_forms_that_are_not_the_usual_ones(take, monkeypatch):
    assert unusual_forms() == {}
    take({"packed gelu bf16": "apart", "precision auto": "bf16"})
    noted = {"cpu_forms": "packed gelu bf16: apart, precision auto: bf16"}
    assert unusual_forms() == noted
    monkeypatch.setattr(forms, "trial_device", lambda: torch.device("cuda"))
    assert unusual_forms() == {}


def test_auto_means_bf16_where_a_cpu_has_matrix_units_for_it(take):
    assert autocast_type("auto", torch.device("cpu")) is None
    take({"precision auto": "bf16"})
    assert autocast_type("auto", torch.device("cpu")) is torch.bfloat16
    assert autocast_type("fp32", torch.device("cpu")) is None


def bert() -> torch.nn.Module:
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "bert",
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = AutoModel.from_config(config)
    use_own_attention(model, plain=True)
    return model


IDS = torch.arange(5, 41).view(3, 12)
MASK = (torch.arange(12) < torch.tensor([12, 7, 1])[:, None]).long()


@pytest.mark.parametrize("training", [False, True], ids=["scoring", "training"])
def test_attention_takes_the_form_of_its_machine(take, monkeypatch, training):
    model, products = bert(), []
    plain = attention.plain_attention
    monkeypatch.setattr(attention, "plain_attention", lambda *a: products.append(1) or plain(*a))
    outputs, gradients = {}, {}
    for taken in ("fused", "products"):
        take({f"{'training' if training else 'scoring'} attention fp32": taken})
        assert not products
        with torch.set_grad_enabled(training):
            output = model(input_ids=IDS, attention_mask=MASK).last_hidden_state[MASK.bool()]
        if training:
            weight = model.encoder.layer[0].attention.self.query.weight
            [gradients[taken]] = torch.autograd.grad(output.square().sum(), [weight])
        outputs[taken] = output.detach()
    assert len(products) == 3  # layers
    assert_close(outputs["fused"], outputs["products"], atol=1e-5, rtol=0)
    if training:
        assert_close(gradients["fused"], gradients["products"], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [None, pytest.param(torch.bfloat16, marks=BF16)])
@pytest.mark.parametrize(
    ("kernel", "attention", "gelu"),
    [("fused_context", "fused", "inside"), ("product_context", "products", "apart")],
)
def test_packed_layers_take_the_forms_of_their_machine(
    take, monkeypatch, dtype, kernel, attention, gelu
):
    number = "bf16" if dtype else "fp32"
    model = bert().eval()
    only_cls(model)
    with torch.inference_mode():
        expected = model(input_ids=IDS, attention_mask=MASK).last_hidden_state[:, 0]
    take({f"scoring attention {number}": attention, f"packed gelu {number}": gelu})
    calls, real = [], getattr(packed_layers, kernel)
    monkeypatch.setattr(packed_layers, kernel, lambda *a: calls.append(1) or real(*a))
    activation = model.encoder.layer[0].intermediate.intermediate_act_fn
    activation.register_forward_hook(lambda *_: calls.append("gelu"))
    on = dtype is not None
    with torch.inference_mode(), torch.autocast("cpu", dtype=dtype, enabled=on):
        with packed(model, dtype):
            cls_CH = model(input_ids=IDS, attention_mask=MASK).last_hidden_state[:, 0]
    assert_close(cls_CH, expected, atol=2e-2 if on else 1e-5, rtol=0)
    assert calls.count(1) == 2  # all layers but the last
    # With 16-bit products [CLS] goes through the module of transformers as well.
    assert calls.count("gelu") == (gelu == "apart") + on
