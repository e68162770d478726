"""MLDR: long documents in 13 languages (Chen et al. 2024, M3-Embedding), from Hugging Face.

A language has a corpus, and train, dev and test as files of pairs. Relevant is what they name;
train has negatives of its own, dev and test are ranked by BM25 over the corpus, in the language.
"""

from dataclasses import replace

from rank_core.data.folder import load_folder
from rank_core.data.hub import downloaded
from rank_core.records import Collection

REPOSITORY = "Shitao/MLDR"
LANGUAGES = "ar de en es fr hi it ja ko pt ru th zh"
FOLDERS = {f"mldr-{language}": f"mldr-v1.0-{language}" for language in LANGUAGES.split()}


def load_mldr(name: str) -> Collection:
    """The collection of a language, `mldr-de`, downloaded on first use."""
    home = downloaded(name, REPOSITORY, [f"{FOLDERS[name]}/*.jsonl.gz"])
    language = name.removeprefix("mldr-")
    return replace(load_folder(home / FOLDERS[name], language=language), name=name)
