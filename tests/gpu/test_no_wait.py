"""The host lays out what comes next while the device computes."""

from unittest.mock import patch

import pytest
import torch

from rank_core.encoders import cls_only
from tests.contracts.test_waits import KNOWN, waits_of
from tests.gpu.work import MODELS, parts

pytestmark = pytest.mark.gpu

WAITING = {name for name, settings in KNOWN if not settings}


@pytest.mark.parametrize("train", [False, True], ids=["scoring", "training"])
def test_no_wait(train, device, fake, standard, figures):
    """no model asks the device for a value within a pass

    Report the models and the line: the GPU idles while the host waits. Numbers are right.
    """
    wait = waits_of_fake if fake else waits_of_gpu if device.type == "cuda" else waits_of_cpu
    found = {}
    for name in sorted(set(MODELS) - WAITING):
        if waits := wait(name, standard, device, train):
            found[name] = waits
    figures |= {"models": len(MODELS) - len(WAITING), "known to wait": ", ".join(sorted(WAITING))}
    assert not found, found


def a_pass(name, backbone, device, train):
    """A function that scores or trains, with the dropout that trials have by default: without, some
    models read their scores to train on the best chunks alone."""
    some = parts(name, backbone, device, {"model.dropout": 0.1})
    some.model.train(train)
    real = device.type != "cuda" or torch.cuda.is_bf16_supported(False)

    def compute():
        with torch.set_grad_enabled(train):
            score_B = some.scores(torch.bfloat16 if real else torch.float16)
            if train:
                score_B.sum().backward()

    return compute


def waits_of_gpu(name, backbone, device, train):
    """The first line that asks, in CUDA's own words."""
    compute = a_pass(name, backbone, device, train)
    compute()  # libraries and kernels are loaded
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        compute()
    except RuntimeError as error:
        frames = []
        step = error.__traceback__
        while step:
            frames.append(f"{step.tb_frame.f_code.co_filename}:{step.tb_lineno}")
            step = step.tb_next
        ours = [frame.rpartition("/")[2] for frame in frames if "rank_core" in frame]
        return " < ".join([str(error).splitlines()[0], *ours[:-3:-1]])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return ""


def waits_of_cpu(name, backbone, device, train):
    """Lines that would ask a GPU, counted over the operations of a CPU."""
    with patch.object(cls_only, "can_pack", lambda *_: False):  # the code of a GPU
        return dict(waits_of(a_pass(name, backbone, device, train)))


def waits_of_fake(name, backbone, device, train):
    """Values of the fake device that were asked for."""
    from tests.contracts.fake_cuda.steps import step

    return step(name, str(backbone.folder), train=train).asked
