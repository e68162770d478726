"""The small backbone that comes with the package, so that no download is ever needed.

`tiny-docs` has two layers of 96 dimensions and was trained on docstrings of libraries
(`python -m tests.benchmarks.tiny_docs` makes it again); `tiny-docs-untrained` is the same encoder
with random weights.
"""

import hashlib
from pathlib import Path

from rank_core.cache import cached_directory
from rank_core.seeding import derive

TRAINED, UNTRAINED = "tiny-docs", "tiny-docs-untrained"
SHIPPED = (TRAINED, UNTRAINED)
FOLDER = Path(__file__).with_name("tiny_docs")

SETTINGS: dict[str, str | float] = {
    "model.dropout": 0.0,
    "training.backbone_learning_rate": 3e-4,
    "training.head_learning_rate": 1e-3,
    "training.aggregator_learning_rate": 1e-3,
    # `auto` is bf16 on a CPU with matrix units: the results of an example should not depend on it.
    "training.precision": "fp32",
    "evaluation.depth": 20,
}
"""The settings under which a backbone of this size learns; the defaults suit a BERT-base."""

RANKING_HEAD = "ranking_head.safetensors"
"""The head that was trained with a backbone: a linear layer from [CLS] to a score."""


def shipped_folder(name: str) -> Path:
    """The folder of one of `SHIPPED`; the untrained one is written on first use."""
    if name == TRAINED:
        return FOLDER
    key = hashlib.sha256((FOLDER / "config.json").read_bytes()).hexdigest()[:16]
    return cached_directory("untrained", key, _write_untrained)


def _write_untrained(folder: Path) -> None:
    import torch  # here, so that the list of settings does not wait for it
    from transformers import AutoModel

    from rank_core.encoders.checkpoint import open_config

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(1, "untrained"))
        config = open_config(UNTRAINED, FOLDER)
        AutoModel.from_config(config, trust_remote_code=False).save_pretrained(folder)
    for path in FOLDER.glob("tokenizer*"):
        (folder / path.name).write_bytes(path.read_bytes())
