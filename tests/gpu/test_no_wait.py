"""The host lays out what comes next while the device computes."""

import pytest
import torch

from tests.contracts.test_waits import KNOWN
from tests.gpu.work import MODELS, parts

pytestmark = pytest.mark.gpu

WAITING = {name for name, settings in KNOWN if not settings}


@pytest.mark.parametrize("train", [False, True], ids=["scoring", "training"])
def test_no_wait(train, device, fake, standard, figures):
    """no model asks the device for a value within a pass

    Report the models and the line: the GPU idles while the host waits. Numbers are right.
    """
    if device.type == "cpu":
        pytest.skip("only a GPU has it")  # tests/contracts/test_waits.py counts on a CPU
    wait = waits_of_fake if fake else waits_of_gpu
    found = {}
    for name in sorted(set(MODELS) - WAITING):
        if waits := wait(name, standard, device, train):
            found[name] = waits
    figures |= {"models": len(MODELS) - len(WAITING), "known to wait": ", ".join(sorted(WAITING))}
    assert not found, found


def waits_of_gpu(name, backbone, device, train):
    """The first line that asks, in CUDA's own words; with the dropout that trials have by default:
    without, some models read their scores to train on the best chunks alone."""
    some = parts(name, backbone, device, {"model.dropout": 0.1})
    some.model.train(train)
    number = torch.bfloat16 if torch.cuda.is_bf16_supported(False) else torch.float16

    def compute():
        with torch.set_grad_enabled(train):
            score_B = some.scores(number)
            if train:
                score_B.sum().backward()

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


def waits_of_fake(name, backbone, device, train):
    """Values of the fake device that were asked for."""
    from tests.contracts.fake_cuda.steps import step

    return step(name, str(backbone.folder), train=train).asked
