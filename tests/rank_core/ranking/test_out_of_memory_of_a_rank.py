"""Of two workers one runs out of GPU memory: it goes on in smaller micro-batches, the other waits
for its gradients as ever, and the numbers are those of two workers with room enough."""

import json

import pytest

from tests.rank_core.test_distributed import run_two

TRAINED = """
from rank_core.training import micro_batch
from rank_core.settings.config import TrialConfig
from rank_core.trial.trial import run_trial
config = TrialConfig().override(json.loads(sys.argv[3]))
losses, failures = {}, 0
for small in (False, True):
    if small and rank == 1:
        score = micro_batch.score_documents
        def limited(model, pairs, documents, **kwargs):
            global failures
            if len(documents) > 2:  # more than one row of the loss
                failures += 1
                raise torch.cuda.OutOfMemoryError("CUDA out of memory (made up)")
            return score(model, pairs, documents, **kwargs)
        micro_batch.score_documents = limited
    *progress, result = run_trial(config, folder / f"{small}{rank}")
    losses[small] = [point.loss for news in progress for point in news.curve]
print(json.dumps([losses[False], losses[True], failures]))
"""


@pytest.mark.long
def test_one_rank_may_use_smaller_batches_without_a_deadlock(small_trial, tmp_path):
    config = small_trial.override(
        {
            "model.dropout": 0.0,
            "training.precision": "fp32",
            "training.batch_size": 8,
            "training.num_epochs": 4,
            "training.max_steps": 4,
            "evaluation.max_dev_queries": 2,
            "evaluation.max_test_queries": 2,
        }
    )
    first, second = run_two(TRAINED, tmp_path, json.dumps(config.settings()))
    assert (first[2], second[2] > 0) == (0, True)
    assert first[:2] == second[:2] and len(first[1]) == 4
    assert first[1] == pytest.approx(first[0], abs=1e-4)
