"""MLDR: long documents in 13 languages (Chen et al. 2024, M3-Embedding), from Hugging Face.

A language has a corpus, and train, dev and test as files of pairs. Relevant is what they name;
train has negatives of its own, dev and test are ranked by BM25 over the corpus, in the language.
"""

from dataclasses import replace
from pathlib import Path

from rank_core.data.folder import load_folder
from rank_core.errors import BadInput, shown
from rank_core.records import Collection

REPOSITORY = "Shitao/MLDR"
LANGUAGES = "ar de en es fr hi it ja ko pt ru th zh"
FOLDERS = {f"mldr-{language}": f"mldr-v1.0-{language}" for language in LANGUAGES.split()}


def load_mldr(name: str) -> Collection:
    """The collection of a language, `mldr-de`, downloaded on first use."""
    from huggingface_hub import snapshot_download

    try:
        files = f"{FOLDERS[name]}/*.jsonl.gz"
        home = snapshot_download(REPOSITORY, repo_type="dataset", allow_patterns=files)
    except Exception as error:  # of the network, the disk or the hub
        raise BadInput(
            f"{name} could not be downloaded from Hugging Face's dataset {REPOSITORY}: "
            f"{type(error).__name__} {shown(str(error))}"
        ) from error
    language = name.removeprefix("mldr-")
    return replace(load_folder(Path(home) / FOLDERS[name], language=language), name=name)
