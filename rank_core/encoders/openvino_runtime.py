"""Encoders computed by OpenVINO on a CPU, in fp32, bf16 or with products of 8-bit integers (extra
`openvino`).

An encoder is traced into a graph of OpenVINO, whose vectors must be torch's for rows of another
size. In int8 both sides of every product are rounded: weights by their range, activations by the
range that rows of the collection show (static quantization, by nncf). The files have the names that
sentence-transformers gives them, so that `backend="openvino"` finds them.

On one AVX512-bf16 core static int8 is the fastest (`python -m tests.benchmarks.runtimes`).
https://docs.openvino.ai/2026/openvino-workflow/model-optimization-guide/quantizing-models-post-training.html
"""

import contextlib
import io
import logging
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rank_core.encoders.checkpoint import quietly
from rank_core.errors import BadInput, not_installed

FOLDER = "openvino"
FILES = {"fp32": "openvino_model.xml", "int8": "openvino_model_qint8_quantized.xml"}
"""{precision: the graph below `FOLDER`}; bf16 is computed from the graph in fp32."""
TELEMETRY = "openvino_telemetry"
BLOCK_TOKENS = 4096
"""Tokens of a call: above, intermediate values leave the caches."""
TRACED, CHECKED = (2, 24), (3, 37)
"""Rows and tokens of the batch that is traced, and of another one that checks the graph."""
LARGEST_DIFFERENCE = 1e-3
"""Of an element, beside torch's fp32; a graph that fixed the traced size differs by far more."""

Row: TypeAlias = Mapping[str, NDArray[np.int64]]
"""{name of an input: its value} of a batch."""


def require_openvino(*, quantizes: bool = False) -> None:
    """Raises `BadInput` where OpenVINO, or what quantizes for it, is not installed."""
    missing = [name for name in ("openvino", *["nncf"] * quantizes) if find_spec(name) is None]
    if missing:
        raise not_installed(" and ".join(missing), "openvino")


def _openvino() -> Any:
    """The library. Imported by us it sends nothing about its use to its vendor."""
    with _without_telemetry():
        import openvino
    return openvino


@contextlib.contextmanager
def _without_telemetry() -> Iterator[None]:
    """Hides the module that OpenVINO and nncf send events with, which they look for once."""
    if TELEMETRY in sys.modules:  # the caller has imported them
        yield
        return
    sys.modules[TELEMETRY] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[TELEMETRY]


class CompiledEncoder:
    """An encoder's last layer, computed by OpenVINO on the threads of torch. Threads may share it.
    Raises `BadInput` for bf16 on a processor without it."""

    def __init__(self, graph: Any, precision: str) -> None:
        core = _openvino().Core()
        if precision == "bf16" and "BF16" not in core.get_property(
            "CPU", "OPTIMIZATION_CAPABILITIES"
        ):
            raise BadInput("OpenVINO has no bf16 on this processor; use training.precision=fp32")
        how = {
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
            "PERFORMANCE_HINT": "LATENCY",
        }
        self._compiled = core.compile_model(graph, "CPU", how)
        self.described = f"OpenVINO {version('openvino')}, {precision}"
        self._names = [port.any_name for port in self._compiled.inputs]
        self._own = threading.local()

    def __call__(self, ids_CL: Tensor, mask_CL: Tensor, segments_CL: Tensor | None) -> Tensor:
        """hidden_CLH (fp32), with the tokens that the encoder's last layer has; 0 beyond the
        longest row of a block."""
        given = dict(zip(INPUTS, (ids_CL, mask_CL, segments_CL), strict=True))
        at_once = max(1, BLOCK_TOKENS // ids_CL.shape[1])
        parts = []
        for start in range(0, len(ids_CL), at_once):
            rows = slice(start, start + at_once)
            # Rows are sorted by length: a block can often be cut below the width of the batch.
            longest = int(mask_CL[rows].any(0).nonzero().max()) + 1
            block = {name: _integers(given[name], rows, longest) for name in self._names}
            parts.append(torch.from_numpy(self._infer(block)))
        width = max(part.shape[1] for part in parts)
        padded = [nn.functional.pad(part, (0, 0, 0, width - part.shape[1])) for part in parts]
        return torch.cat(padded)

    def _infer(self, block: Row) -> NDArray[np.float32]:
        if not hasattr(self._own, "request"):
            self._own.request = self._compiled.create_infer_request()
        found = self._own.request.infer(block, share_inputs=True)
        return np.array(found[0], dtype=np.float32)


INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def _integers(value: Tensor | None, rows: slice, longest: int) -> NDArray[np.int64]:
    assert value is not None  # the graph was traced with it
    return np.ascontiguousarray(value[rows, :longest].numpy(), dtype=np.int64)


class _LastLayer(nn.Module):
    """An encoder as a function of tensors."""

    def __init__(self, encoder: nn.Module, *, segments: bool) -> None:
        super().__init__()
        self.encoder, self.names = encoder, INPUTS if segments else INPUTS[:2]

    def forward(self, *given: Tensor) -> Tensor:
        """hidden_CLH of the last layer."""
        hidden: Tensor = self.encoder(**dict(zip(self.names, given, strict=True))).last_hidden_state
        return hidden


def converted(encoder: nn.Module, name: str, *, segments: bool) -> Any:
    """The graph of a torch encoder in evaluation mode on the CPU, in fp32; with `segments` it reads
    token types. Raises `BadInput` for an encoder, called `name` there, that cannot be traced, or
    whose graph has other vectors."""
    require_openvino()
    openvino, module = _openvino(), _LastLayer(encoder, segments=segments).eval()
    try:
        with torch.no_grad(), warnings.catch_warnings(), quietly(), _quiet():
            warnings.simplefilter("ignore")  # of a tracer, about values that the check is for
            example = tuple(_example(encoder, *TRACED)[: len(module.names)])
            graph = openvino.convert_model(module, example_input=example)
            for port, given in zip(graph.inputs, module.names, strict=True):
                port.get_tensor().set_names({given})
            graph.outputs[0].get_tensor().set_names({"last_hidden_state"})
            graph.validate_nodes_and_infer_types()
            other = _example(encoder, *CHECKED)[: len(module.names)]
            ids_CL, mask_CL, *rest = other
            segments_CL = rest[0] if rest else None
            found, expected = (
                CompiledEncoder(graph, "fp32")(ids_CL, mask_CL, segments_CL),
                module(*other),
            )
    except Exception as error:  # of many kinds, from torch's tracer and OpenVINO's own parts
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        raise _not_converted(name, f"{type(error).__name__}: {reason[:200]}") from None
    # Every token, as some models average them; a NaN is no vector either.
    real_CL = mask_CL[:, : expected.shape[1]].bool()
    alike = found.shape == expected.shape and (
        float((found - expected)[real_CL].abs().max()) <= LARGEST_DIFFERENCE
    )
    if not alike:
        raise _not_converted(name, "its graph has other vectors than the encoder")
    return graph


def _not_converted(name: str, reason: str) -> BadInput:
    return BadInput(
        f"backbone {name} cannot be converted for OpenVINO ({reason}); use evaluation.runtime=torch"
    )


def _example(encoder: nn.Module, num_rows: int, length: int) -> list[Tensor]:
    """Ids, mask and token types of rows of which one is padded."""
    config: Any = encoder.config
    ids_CL = (7 * torch.arange(num_rows * length).view(num_rows, length) + 5) % config.vocab_size
    mask_CL = torch.ones_like(ids_CL)
    mask_CL[0, length // 2 :] = 0
    pad = getattr(config, "pad_token_id", None) or 0
    # A padding token among the others would move the positions of some encoders.
    ids_CL = torch.where(ids_CL == pad, ids_CL + 1, ids_CL).masked_fill(mask_CL == 0, pad)
    segments_CL = (torch.arange(length) > length // 3).long().expand(num_rows, -1) * mask_CL
    return [ids_CL, mask_CL, segments_CL]


def quantized(graph: Any, rows: Sequence[Row]) -> Any:
    """The graph in int8, with the ranges of activations that `rows` show: the same for the same
    rows on the same processor. Raises `BadInput` without rows."""
    require_openvino(quantizes=True)
    if not rows:
        raise BadInput(
            "int8 needs rows of a collection, which show the ranges of activations: `ranksweep "
            "export --runtime openvino --precision int8` writes a model with them"
        )
    with _without_telemetry(), _quiet():
        import nncf

        own = [port.any_name for port in graph.inputs]
        data = nncf.Dataset([{name: row[name] for name in own} for row in rows])
        return nncf.quantize(
            graph.clone(), data, model_type=nncf.ModelType.TRANSFORMER, subset_size=len(rows)
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without progress bars, and messages about what is normal."""
    logger = logging.getLogger("nncf")
    before = logger.disabled
    logger.disabled = True
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.disabled = before


def save_graph(graph: Any, folder: Path, precision: str) -> None:
    """Writes a graph beside the encoder in `folder`."""
    (folder / FOLDER).mkdir(exist_ok=True)
    _openvino().save_model(graph, folder / FOLDER / FILES[precision], compress_to_fp16=False)


def saved_graph(folder: Path, precision: str) -> Any:
    """The graph for a precision beside the encoder in `folder`; None if there is none."""
    path = folder / FOLDER / FILES["int8" if precision == "int8" else "fp32"]
    if not path.is_file():
        return None
    require_openvino()
    return _openvino().Core().read_model(path)
