"""E5 (Wang et al. 2022), whose prompts are in its model cards alone."""

from pathlib import Path

from huggingface_hub.repocard import metadata_load

NAMES = (
    *("e5-small", "e5-base", "e5-large", "e5-small-v2", "e5-base-v2", "e5-large-v2"),
    *("e5-small-unsupervised", "e5-base-unsupervised", "e5-large-unsupervised"),
    *("multilingual-e5-small", "multilingual-e5-base", "multilingual-e5-large", "e5-base-4k"),
)
"""Its sizes and versions, by the names in their model cards. Instruction models of the family
(e5-mistral-7b-instruct) have prompts in their folders."""
PROMPTS = ("query: ", "passage: ")
"""Before queries and before documents, by the model cards."""
EXTENDED, ORIGINAL_POSITIONS = "e5-base-4k", 512
"""E5-Base-4k has a table of more positions than BERT's; rows of at most BERT's are spread over it
(Zhu et al. 2024)."""
PUBLISHERS = ("intfloat/", "dwzhu/")


def e5_name(name: str, folder: Path) -> str:
    """The model of `NAMES` that a folder says it holds: by the name under which its model card has
    the measurements (model-index), or by the Hugging Face id that it was asked for; "" for others.
    A folder's own name says nothing, and a model that was trained from one may have other prompts.
    """
    card = folder / "README.md"
    try:
        facts = metadata_load(card) if card.is_file() else None
    except Exception:  # of any kind, from a card that is no YAML: it says nothing
        facts = None
    index = facts.get("model-index") if isinstance(facts, dict) else None
    named = [one.get("name") for one in index or () if isinstance(one, dict)]
    if not Path(name).exists():
        named += [name.removeprefix(one) for one in PUBLISHERS if name.startswith(one)]
    return next((one for one in named if one in NAMES), "")
