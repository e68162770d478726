"""The kernels that a GPU would launch, with their arithmetic and bytes, recorded on a fake one.

LD_PRELOAD=LIBRARY python -m tests.contracts.fake_cuda.trace FOLDER MODEL ... -- TOKENS ... prints a
line of JSON for each model over the backbone in FOLDER, each of the ways that its encoder may read
(padded rows, a flat row of tokens), and each number of tokens in a call: the kernels of scoring, of
a pass forward and backward, and of the update after it, as [name, kind, FLOPs, bytes].
"""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rank_core.chunking.batches import Chunk
from rank_core.chunking.encoder_input import NUM_SPECIAL
from rank_core.encoders import cls_only
from rank_core.encoders.backbones import resolve_backbone
from rank_core.models import model_class
from rank_core.models.build import build_model
from rank_core.ranking.encode import Document, Work, score_documents
from rank_core.settings.config import TrialConfig
from rank_core.training.optimizer import build_optimizer
from tests.contracts.fake_cuda.steps import DEVICE, NO_KERNEL

QUERY, WINDOW, CHUNKS = 8, 150, 20  # tokens, tokens, chunks of a document
PRODUCTS = {"mm", "addmm", "addmm_", "bmm", "baddbmm"}
ATTENTION = {
    "_flash_attention_forward": (0, 1, 1.0),
    "_flash_attention_backward": (1, 2, 2.5),
    "_scaled_dot_product_efficient_attention": (0, 1, 1.0),
    "_scaled_dot_product_efficient_attention_backward": (1, 2, 2.5),
}
"""Attention: the places of query and key, and its arithmetic as multiples of a forward pass."""
FUSED = {"native_dropout", "native_dropout_backward", "add", "mul", "gelu", "gelu_backward"}
FUSED |= {"native_layer_norm"}
"""What a compiler fuses with its neighbours; the gradient of a norm sums over all tokens."""


class Kernel(NamedTuple):
    """One launch."""

    name: str
    kind: str  # product, attention, other; copy: from the host
    flops: float
    reads: dict[int, int]  # bytes of each memory
    writes: dict[int, int]

    def told(self) -> list[Any]:
        """Name, kind, FLOPs, bytes."""
        moved = sum(self.reads.values()) + sum(self.writes.values())
        return [self.name, self.kind, self.flops, moved]


class Trace(TorchDispatchMode):
    """Records operations that a GPU would run as a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []
        self._alive: list[object] = []  # or a later memory would be taken for an earlier one

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name == "_local_scalar_dense":  # there are no values; any one lets the code continue
            return False if args[0].dtype == torch.bool else 1
        result = function(*args, **(kwargs or {}))
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.numel()]
        inputs = [x for x in given if x.device == DEVICE]
        outputs = [x for x in tree_leaves(result) if isinstance(x, Tensor) and x.device == DEVICE]
        if (inputs or outputs) and name not in NO_KERNEL | {"device"}:
            self._alive += [x.untyped_storage() for x in inputs + outputs]
            kernel = Kernel(name, "other", 0.0, _sizes(inputs), _sizes(outputs))
            self.kernels.append(_classified(kernel, args, given, outputs))
        return result


def _sizes(tensors: Sequence[Tensor]) -> dict[int, int]:
    """Bytes of each storage that is touched; an expanded tensor has no more than its storage."""
    sizes: dict[int, int] = {}
    for x in tensors:
        storage = x.untyped_storage()
        touched = sizes.get(storage._cdata, 0) + x.numel() * x.element_size()
        sizes[storage._cdata] = min(touched, storage.nbytes())
    return sizes


def _classified(
    kernel: Kernel, args: Any, given: Sequence[Tensor], outputs: Sequence[Tensor]
) -> Kernel:
    """The kernel with its kind and its arithmetic; rows of attention are all of one length."""
    if kernel.name in PRODUCTS:
        return kernel._replace(kind="product", flops=2.0 * outputs[0].numel() * args[-2].shape[-1])
    if kernel.name in ATTENTION:
        query, key, factor = ATTENTION[kernel.name]
        flat = args[key].dim() == 3
        length = QUERY + WINDOW + NUM_SPECIAL if flat else args[key].shape[-2]
        return kernel._replace(kind="attention", flops=factor * 4.0 * args[query].numel() * length)
    if given and kernel.name in ("_to_copy", "copy_") and not kernel.reads:
        return kernel._replace(kind="copy")
    return kernel


def compiled(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The kernels of which a compiler makes one where those of `FUSED` follow each other: it reads
    what came before and writes what is read after."""
    runs: list[list[Kernel]] = []
    for kernel in kernels:
        follows = runs and kernel.name in FUSED and runs[-1][-1].name in FUSED
        runs[-1:] = [[*runs[-1], kernel]] if follows else [*runs[-1:], [kernel]]
    last_read = {memory: i for i, run in enumerate(runs) for k in run for memory in k.reads}
    return [_one(run, {m for m, at in last_read.items() if at > i}) for i, run in enumerate(runs)]


def _one(run: list[Kernel], read_after: set[int]) -> Kernel:
    if len(run) == 1:
        return run[0]
    reads: dict[int, int] = {}
    writes: dict[int, int] = {}
    for kernel in run:
        reads |= {m: size for m, size in kernel.reads.items() if m not in writes}
        writes |= kernel.writes
    writes = {m: size for m, size in writes.items() if m in read_after}
    return Kernel("+".join(kernel.name for kernel in run), "other", 0.0, reads, writes)


@contextlib.contextmanager
def one_kernel_of_attention() -> Iterator[None]:
    """Lets attention over padded rows be one kernel, as on a GPU; on a fake one torch would take
    it apart."""
    own = torch.nn.functional.scaled_dot_product_attention
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention

    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
        bias = None
        if attn_mask is not None:
            bias = torch.zeros_like(attn_mask, dtype=query.dtype)
            bias = bias.masked_fill(attn_mask.logical_not(), -torch.inf)
        records = torch.is_grad_enabled()
        return kernel(query, key, value, bias, records, dropout_p, is_causal, scale=scale)[0]

    modules: list[Any] = [torch.nn.functional, cls_only]
    for module in modules:
        module.scaled_dot_product_attention = attention
    try:
        yield
    finally:
        for module in modules:
            module.scaled_dot_product_attention = own


def documents_of(num_tokens: int) -> list[Document]:
    """Documents of `CHUNKS` full chunks, as many as a call of so many tokens holds."""
    rng = np.random.default_rng(0)
    query = rng.integers(5, 20, QUERY).astype(np.int32)
    length = QUERY + WINDOW + NUM_SPECIAL
    texts = rng.integers(5, 20, (max(1, num_tokens // length), WINDOW)).astype(np.int32)
    chunks = [Chunk(query, text) for text in texts]
    return [chunks[i : i + CHUNKS] for i in range(0, len(chunks), CHUNKS)]


def traced(folder: str, name: str, num_tokens: int, *, flat: bool) -> dict[str, list[Kernel]]:
    """The kernels of scoring, of a pass forward and backward, and of the update after it."""
    backbone = resolve_backbone(folder)
    config = TrialConfig().override({"model.name": name, "model.backbone": folder})
    pairs = model_class(name).reader(config, backbone, {})
    model = build_model(config, backbone, init_seed=1)
    model.encoder.reads_flat_rows = flat
    documents = documents_of(num_tokens)

    def score() -> Tensor:
        return score_documents(
            model, pairs, documents, batch_tokens=num_tokens, autocast=torch.bfloat16, work=Work()
        )

    def recorded(compute: Callable[[], Any]) -> list[Kernel]:
        compute()  # what is made once is made here
        model.zero_grad(set_to_none=True)
        with Trace() as trace:
            compute()
        return trace.kernels

    with FakeTensorMode(allow_non_fake_inputs=True), one_kernel_of_attention():
        model.to(DEVICE)
        optimizer = build_optimizer(model, config.training)
        with torch.no_grad():
            model.eval()
            scoring = recorded(score)
        model.train()
        training = recorded(lambda: score().sum().backward())
        with Trace() as trace:
            # A fake tensor's type is none that torch clips all at once unasked.
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
            optimizer.step()
    return {"scoring": scoring, "training": training, "update": trace.kernels}


def main() -> None:
    """Prints the lines."""
    _, folder, *words = sys.argv
    middle = words.index("--")
    for name in words[:middle]:
        for num_tokens in map(int, words[middle + 1 :]):
            for flat in (False, True):
                steps = traced(folder, name, num_tokens, flat=flat)
                line = {phase: [k.told() for k in kernels] for phase, kernels in steps.items()}
                fused = {phase: [k.told() for k in compiled(steps[phase])] for phase in steps}
                print(
                    json.dumps(
                        {"model": name, "tokens": num_tokens, "flat": flat}
                        | {"kernels": line, "compiled": fused}
                    ),
                    flush=True,
                )


if __name__ == "__main__":
    main()
