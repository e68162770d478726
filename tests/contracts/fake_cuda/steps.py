"""One scoring and one training step of models on a GPU that computes nothing.

LD_PRELOAD=LIBRARY python -m tests.contracts.fake_cuda.steps BACKBONE NAME ... prints a line of JSON
for each model, or for MODEL@KIND, which is a model over a small backbone of that kind: its
launches, copies that block, and what went wrong. LIBRARY is fake_cuda.cpp, compiled.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import numpy as np
import torch
import torch.cuda.amp.common
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rank_core.encoders.backbones import resolve_backbone
from rank_core.models import model_class
from rank_core.models.build import build_model
from rank_core.ranking.encode import Work, score_documents
from rank_core.settings.config import TrialConfig
from rank_core.training.optimizer import build_optimizer
from rank_core.trial.fold_model import _Best, _validate
from tests.contracts.small_backbones import make_backbone
from tests.contracts.test_waits import asking

# What autocast and flash attention ask the CUDA runtime.
torch.cuda.amp.common.amp_definitely_not_available = lambda: False
torch.cuda.is_bf16_supported = lambda *_, **__: True
torch.cuda.get_device_capability = lambda *_: (8, 0)
# What there is to pin needs a driver; a mark stays on the tensor.
torch.Tensor.pin_memory = lambda x, *_: setattr(x, "is_marked", True) or x
EMPTY = torch.empty


def empty(*size, pin_memory=False, **how):
    """A tensor; marked, if it should be pinned."""
    made = EMPTY(*size, **how)
    return made.pin_memory() if pin_memory else made


torch.empty = empty
DEVICE = torch.device("cuda", 0)
SETTINGS = {"chunking.window": 20, "chunking.stride": 10, "chunking.max_document_tokens": 60}
NO_KERNEL = {
    *("view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "detach"),
    *("unsqueeze", "squeeze", "alias", "split", "split_with_sizes", "unbind", "as_strided"),
    *("_reshape_alias", "reshape", "unflatten", "chunk", "diagonal", "lift_fresh", "empty"),
    *("empty_like", "empty_strided", "new_empty", "new_empty_strided", "is_same_size", "view_as"),
}


class Launches(TorchDispatchMode):
    """Counts operations that a GPU would run as a kernel, flash attention among them, those whose
    result the host asks for, and copies to the device that the host waits for, by their lines."""

    number = flash = 0
    best: Sequence[str] = ()  # devices of the best weights

    def __init__(self):
        super().__init__()
        self.asked, self.copies = Counter(), Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        # There are no values; any one lets the code continue.
        if name == "_local_scalar_dense" and args[0].device == DEVICE:
            self.asked[f"{name}: {asking()}"] += 1
            return False if args[0].dtype == torch.bool else 1
        if name == "nonzero":
            self.asked[f"{name}: {asking()}"] += 1
            return args[0].new_zeros((len(args[0]), args[0].dim()), dtype=torch.long)
        result = function(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, result)) if isinstance(x, torch.Tensor)]
        on_gpu = any(x.device == DEVICE for x in tensors)
        self.number += on_gpu and name not in NO_KERNEL
        if _blocking(name, args, kwargs or {}, result):
            self.copies[f"{name}: {asking()}"] += 1
        self.flash += name == "_flash_attention_forward"
        return result


def _blocking(name, args, kwargs, result):
    """True for a copy from the host to the device without `non_blocking` or of pageable memory."""
    if name == "_to_copy":
        source, target, flag = args[0], result, kwargs.get("non_blocking")
    elif name == "copy_":
        target, source, flag = args[0], args[1], (*args[2:], kwargs.get("non_blocking"))[0]
    else:
        return False
    waits = not (flag and getattr(source, "is_marked", False))
    return source.device.type == "cpu" and target.device == DEVICE and waits


def step(name: str, backbone_folder: str, *, train: bool) -> Launches:
    """The launches of a step over documents of one to five chunks."""
    backbone = resolve_backbone(backbone_folder)
    config = TrialConfig().override(
        {"model.name": name, "model.backbone": backbone_folder} | SETTINGS
    )
    model = build_model(config, backbone, init_seed=1)
    rng = np.random.default_rng(0)
    texts = {f"d{n}": rng.integers(5, 100, n).astype(np.int32) for n in (1, 20, 55)}
    pairs = model_class(name).reader(config, backbone, texts)
    query = rng.integers(5, 100, 6).astype(np.int32)
    documents = [pairs.chunks(query, doc_id) for doc_id in texts]
    launches = Launches()
    has_gru = any(isinstance(module, torch.nn.GRU) for module in model.modules())
    with (
        FakeTensorMode(allow_non_fake_inputs=True),
        # A GRU in operations whose shapes are known; all others are twice as slow with it.
        enable_python_dispatcher() if has_gru else nullcontext(),
        torch.set_grad_enabled(train),
    ):
        model = model.to(DEVICE).train(train)
        optimizer = build_optimizer(model, config.training) if train else None
        with launches:
            score_B = score_documents(
                model, pairs, documents, batch_tokens=200, autocast=torch.bfloat16, work=Work()
            )
            if optimizer:
                score_B.sum().backward()
                optimizer.step()
        launches.best = kept_on(model)
    assert score_B.device == DEVICE
    return launches


def kept_on(model: torch.nn.Module) -> list[str]:
    """The devices of the weights that a validation keeps as the best so far."""
    config = TrialConfig()
    means = {config.evaluation.measures[0]: 1.0}
    told = {"share": lambda _: None, "whole": lambda *_: {}, "means": lambda *_: means}
    best = _Best()
    _validate(SimpleNamespace(config=config, kept={}, model=model, **told), best, step=1)
    return sorted({weight.device.type for weight in best.weights.values()})


def planted(name: str) -> None:
    """Makes a model put its weights on one device and use them on another."""
    kind = model_class(name)
    score = kind.score
    kind.score = lambda self, cls_H: score(self, cls_H) + torch.ones(len(cls_H))


def both_steps(name: str, backbone_folder: str) -> dict[str, object]:
    """Launches of the step of scoring and of the one of training, or the error of the last."""
    told: dict[str, object] = {}
    for train in (False, True):
        try:
            launches = step(name, backbone_folder, train=train)
            told["training" if train else "scoring"] = launches.number
            told["flash"] = launches.flash
            told["copies"] = told.get("copies", {}) | dict(launches.copies)
            told["best"] = launches.best
            told["asked"] = told.get("asked", {}) | dict(launches.asked)
        except Exception as error:
            told["error"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return told


def main() -> None:
    """Prints one line for each model; a planted mistake in those that are called NAME!."""
    _, folder, *names = sys.argv
    for word in names:
        name, _, kind = word.rstrip("!").partition("@")
        if word.endswith("!"):
            planted(name)
        with TemporaryDirectory() as made:
            backbone = str(make_backbone(kind, Path(made)).folder) if kind else folder
            print(json.dumps({"model": word} | both_steps(name, backbone)), flush=True)


if __name__ == "__main__":
    main()
