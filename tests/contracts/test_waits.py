"""No model synchronises with the GPU within a pass, which would stop the host from preparing the
next batch. Counted on a CPU, over the code for GPUs."""

import traceback
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from rank_core.encoders import cls_only, flat_rows, packed
from rank_core.models import model_class
from tests.gpu.work import MODELS, parts

ASKS = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "repeat_interleave",
    "equal",
}
"""Operations whose result the host must know to go on."""
PACKAGES = {"rank_core", "transformers"}


KNOWN = [(name, settings) for name in MODELS for settings in model_class(name).waits]


class Waits(TorchDispatchMode):
    """Counts operations that a host waits for, by the lines that ask."""

    def __init__(self):
        super().__init__()
        self.lines = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        places = args[1] if name.startswith("index") and len(args) > 1 else ()
        by_mask = isinstance(places, (list, tuple)) and any(
            place is not None and place.dtype == torch.bool for place in places
        )
        if name in ASKS or by_mask:
            self.lines[f"{name}: {asking()}"] += 1
        return function(*args, **(kwargs or {}))


class Reads(TorchFunctionMode):
    """Counts the calls that bring values to the host, which on a CPU are no operations."""

    def __init__(self, lines):
        super().__init__()
        self.lines = lines

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") in ("tolist", "cpu", "numpy"):
            self.lines[f"{function.__name__}: {asking()}"] += 1
        return function(*args, **(kwargs or {}))


def asking():
    """The last lines of ours and of transformers that lead here."""
    frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_stack()]
    ours = [f"{path.name}:{line}" for path, line in frames if PACKAGES & {*path.parts}]
    return " < ".join(ours[:-4:-1])


def counted(name, backbone, settings=None, *, train, flat=None):
    """The waits of one pass over documents of one to five chunks, in batches with padding."""
    some = parts(name, backbone, torch.device("cpu"), {"model.dropout": 0.1} | (settings or {}))
    some.model.train(train).encoder.reads_flat_rows = flat

    def compute():
        with torch.set_grad_enabled(train):
            score_B = some.scores(torch.bfloat16)
            if train:
                score_B.sum().backward()

    return waits_of(compute)


def waits_of(compute):
    """{line that asks: times} of a computation on a CPU."""
    waits = Waits()
    with waits, Reads(waits.lines):
        compute()
    return waits.lines


@pytest.fixture(autouse=True)
def code_of_a_gpu(monkeypatch):
    """Weights are packed on CPUs only."""
    monkeypatch.setattr(cls_only, "can_pack", lambda *_: False)


@pytest.mark.parametrize(
    ("name", "train", "flat"),
    [
        *((name, True, None) for name in sorted(set(MODELS) - {"deeprank"})),
        *((name, False, None) for name in ("idcm", "keyb", "parade-transformer", "qds", "tk")),
        *(
            (n, t, True)
            for n in ("maxp", "mores", "bi-encoder", "cedr-knrm")
            for t in (False, True)
        ),
    ],
)
def test_no_model_waits(name, train, flat, backbone, monkeypatch):
    # A GPU's kernel is given no lengths of the host; what computes rows one by one has to ask.
    for module in (flat_rows, packed):
        monkeypatch.setattr(
            module, "attention_row_by_row", lambda q, k, v, *_: q + k.mean() + v.mean()
        )
    assert counted(name, backbone, train=train, flat=flat) == {}


@pytest.mark.parametrize(("name", "settings"), KNOWN)
def test_models_known_to_wait_do(name, settings, backbone):
    assert counted(name, backbone, settings, train=True)


def test_a_planted_question_is_found(backbone, monkeypatch):
    kind = model_class("maxp")
    score = kind.score

    def asks(self, cls_H):
        return score(self, cls_H) * (1.0 if cls_H.sum().item() else 2.0)

    monkeypatch.setattr(kind, "score", asks)
    [line] = counted("maxp", backbone, train=False)
    assert line.startswith("_local_scalar_dense")
