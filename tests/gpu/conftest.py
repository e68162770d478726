"""The device that is checked, and what the checks tell `python -m sweeps doctor --gpu`.

A check is a test. Its docstring says what holds, and after an empty line what to do where it does
not. `RANKSWEEP_GPU_CHECKS_ON` is for tests of the checks alone: with `cpu` they run on a CPU, with
`fake` on tests/contracts/fake_cuda, a device without values.
"""

import inspect
import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ON = os.environ.get("RANKSWEEP_GPU_CHECKS_ON", "cuda")
RESULTS = os.environ.get("RANKSWEEP_GPU_CHECKS_FILE")
WORDS = {"passed": "ok", "failed": "failed", "skipped": "not run"}


def told(line: dict[str, Any]) -> None:
    """Appends a line for whoever waits for the results."""
    if RESULTS:
        with Path(RESULTS).open("a") as file:
            file.write(json.dumps(line) + "\n")


def described(item: pytest.Item) -> dict[str, str]:
    """Where a check belongs, what it says, and what to do where it fails."""
    holds, _, remedy = (inspect.getdoc(getattr(item, "function", None)) or "").partition("\n\n")
    block, case = item.path.stem.removeprefix("test_"), getattr(item, "callspec", None)
    check = " ".join(holds.split()) + (f" [{case.id}]" if case else "")
    return {"block": block, "check": check, "do": " ".join(remedy.split())}


def pytest_collection_finish(session: pytest.Session) -> None:
    told({"planned": [described(item) for item in session.items if HERE in item.path.parents]})


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed and "tests/gpu" in report.nodeid:
        block = Path(report.nodeid).stem.removeprefix("test_")
        reason = report.longreprtext.strip().splitlines()[-1].removeprefix("E").strip()
        check = {"block": block, "check": "the checks can be imported", "do": ""}
        told(check | {"result": "failed", "seconds": 0.0, "reason": reason, "figures": {}})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Any:
    report = yield
    if HERE in item.path.parents and (report.when == "call" or not report.passed):
        figures: dict[str, Any] = {}
        for name, value in item.user_properties:
            figures |= value if name == "figures" else {}
        told(
            described(item)
            | {"result": WORDS[report.outcome], "seconds": round(call.duration, 2)}
            | {"reason": _reason(report, call), "figures": figures}
        )
    return report


def _reason(report: Any, call: Any) -> str:
    if report.skipped:
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    if report.passed:
        return ""
    first = str(call.excinfo.value).strip().splitlines()[:1]
    return ": ".join([call.excinfo.typename, *first])


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What a check has measured: shown beside it, and written to the JSON."""
    measured: dict[str, Any] = {}
    request.node.user_properties.append(("figures", measured))
    return measured


@pytest.fixture(scope="session")
def device() -> Any:
    """The device that is checked: a GPU, or in tests of the checks a CPU or one that computes
    nothing."""
    import torch

    if ON == "cpu":
        return torch.device("cpu")
    if ON == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU here")
    return torch.device("cuda", 0)


@pytest.fixture(scope="session")
def fake() -> bool:
    """Whether that device computes nothing."""
    return ON == "fake"


@pytest.fixture(scope="session")
def with_values(device: Any, fake: bool) -> Any:
    """That device, for checks of numbers."""
    if fake:
        pytest.skip("the fake device computes no values")
    return device


@pytest.fixture(scope="session")
def gpu(device: Any, fake: bool) -> Any:
    """That device, for checks of the hardware."""
    if fake or device.type != "cuda":
        pytest.skip("only a GPU has it")
    return device


@pytest.fixture(scope="session")
def build_standard(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """`build_standard(layers, hidden, heads, inner)`: a random BERT of that shape."""
    from tests.gpu.work import random_bert

    return lambda *sizes: random_bert(tmp_path_factory.mktemp("bert"), *sizes)


@pytest.fixture(scope="session")
def standard(build_standard: Callable[..., Any]) -> Any:
    """A BERT of two layers with weights as they are before training, with which 16-bit numbers
    keep to the tolerances."""
    return build_standard(2, 64, 4, 256)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Warnings of libraries stay out of the table's log."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
