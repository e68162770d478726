"""A full GPU costs time, and neither a number nor the next trial."""

import gc

import pytest
import torch

from rank_core.machine import is_out_of_memory, make_deterministic, release_memory
from rank_core.ranking.encode import Work
from rank_core.ranking.rerank import within_memory
from rank_core.training.train import initial_state, train
from tests.gpu.work import STREAMS, difference, parts, queries, tokens

pytestmark = pytest.mark.gpu

LARGE, SMALL = 65_536, 8192  # encoder tokens of a micro-batch
LONG = {"chunking.window": 200, "chunking.stride": 200, "chunking.max_document_tokens": 2000}
NUM_TRIALS = 5
GROWTH = 2**20  # bytes


@pytest.fixture(scope="module")
def deep(build_standard):
    """An encoder whose activations fill more than its weights do."""
    return build_standard(4, 256, 4, 1024)


@pytest.fixture
def limited(gpu):
    """`limited(bytes)`: so much may this process take of the GPU."""

    def limit(size):
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(size / torch.cuda.mem_get_info(gpu)[1], gpu)

    yield limit
    torch.cuda.set_per_process_memory_fraction(1.0, gpu)


def long_texts():
    return {f"d{i}": tokens(i, 2000) for i in range(12)}


def peak_of(compute):
    """(what it gives, its peak in bytes as the allocator has reserved them)."""
    release_memory()
    torch.cuda.reset_peak_memory_stats()
    value = compute()
    return value, torch.cuda.max_memory_reserved()


def test_scoring_out_of_memory(gpu, deep, limited, figures):
    """scores are the same where memory holds no batch of the size that was asked for

    Set evaluation.batch_tokens=8192.
    """
    some = parts("maxp", deep, gpu, LONG, long_texts())

    def scored(batch_tokens):
        def compute(documents, num):
            return some.scores(None, num)

        with torch.inference_mode():
            work = Work()
            return within_memory(compute, some.documents, batch_tokens, model=some.model, work=work)

    (expected, _), large = peak_of(lambda: scored(LARGE))
    _, small = peak_of(lambda: scored(SMALL))
    limited((large + small) // 2)
    scores, held = scored(LARGE)
    figures |= {"tokens asked": LARGE, "held": held}
    figures["largest difference"] = f"{difference(scores, expected):.1e}"
    assert held < LARGE, "memory was never full"
    assert difference(scores, expected) < 1e-4


def test_training_out_of_memory(gpu, deep, limited, figures):
    """losses are the same where memory holds no micro-batch of the size that was asked for

    Set training.micro_batch_tokens=8192.
    """
    settings = LONG | {"training.max_steps": 2, "training.num_epochs": 9}

    def losses(micro_batch):
        own = settings | {"training.micro_batch_tokens": micro_batch}
        some = parts("sump", deep, gpu, own, long_texts())
        state = initial_state(some.model, some.config.training, None)
        groups = queries(texts=list(long_texts()))
        kinds = {"streams": STREAMS, "autocast": None, "work": Work(), "state": state}
        records = train(some.model, some.pairs, groups, some.config.training, **kinds)
        curve = [point.loss for record in records for point in record.curve]
        return torch.tensor(curve), state.tokens

    (expected, _), large = peak_of(lambda: losses(LARGE))
    _, small = peak_of(lambda: losses(SMALL))
    limited((large + small) // 2)
    curve, held = losses(LARGE)
    figures |= {"tokens asked": LARGE, "held": held}
    figures["largest difference"] = f"{difference(curve, expected):.1e}"
    assert held < LARGE, "memory was never full"
    assert difference(curve, expected) < 1e-3


def test_words_of_a_full_gpu(gpu, figures):
    """a full GPU is known by the error that torch raises

    Report the words: a trial would be taken for broken instead of too large.
    """
    total = torch.cuda.mem_get_info(gpu)[1]
    with pytest.raises(RuntimeError) as full:
        torch.empty(2 * total, dtype=torch.uint8, device=gpu)
    figures["error"] = type(full.value).__name__
    assert is_out_of_memory(full.value)


def test_trials_in_one_process(with_values, standard, figures):
    """five trials in one process leave no memory behind

    Report it; until it is mended, `--gpus-per-worker 1` leaves most room for what stays.
    """
    make_deterministic(False)
    sizes = []
    for _ in range(NUM_TRIALS):
        a_trial(standard, with_values)
        release_memory()
        gc.collect()
        sizes.append(held_bytes(with_values))
    figures["MiB after each"] = " ".join(f"{size / 2**20:.1f}" for size in sizes)
    assert sizes[-1] <= sizes[1] + GROWTH


def a_trial(backbone, device):
    some = parts("parade-transformer", backbone, device, {"training.max_steps": 3})
    for _ in train(
        some.model,
        some.pairs,
        queries(),
        some.config.training,
        streams=STREAMS,
        autocast=torch.bfloat16,
        work=Work(),
    ):
        pass
    with torch.inference_mode():
        some.scores(torch.bfloat16)


def held_bytes(device):
    """Bytes of all tensors that are left."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated()
    tensors = [x for x in gc.get_objects() if type(x) in (torch.Tensor, torch.nn.Parameter)]
    return sum(x.untyped_storage().nbytes() for x in tensors)
