"""Published rerankers that are decoders: the text around query and document, and the score at the
last token, which needs two rows of the output matrix instead of the vocabulary.

A checkpoint in the layout of sentence-transformers (6 and later) says both itself: `modules.json`
with a `LogitScore`, and a chat template with the roles query and document. Older ones are known by
name. The parts are tokenised one by one and joined, so that a chunk is a slice of the document's
tokens; beside published code, a space before query or document is a token of its own.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor

from rank_core.encoders.backbone_types import RowLayout
from rank_core.errors import BadInput

INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


@dataclass(frozen=True)
class Template:
    """The texts before the query, between query and document, and behind it; the tokens that say
    relevant and, if any, not relevant."""

    prefix: str
    middle: str
    suffix: str
    true: str
    false: str | None


TEMPLATES = {
    "qwen3-reranker": Template(
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
        'and the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
        f"<|im_start|>user\n<Instruct>: {INSTRUCTION}\n<Query>: ",
        "\n<Document>: ",
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "yes",
        "no",
    ),
    "mxbai-rerank-(base|large)-v2": Template(
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
        "<|im_end|>\n<|im_start|>user\nquery: ",
        "\ndocument: ",
        "\nYou are a search relevance expert who evaluates how well documents match search "
        "queries. For each query-document pair, carefully analyze the semantic relationship "
        "between them, then provide your binary relevance judgment (0 for not relevant, 1 for "
        "relevant).\n"
        "Relevance:<|im_end|>\n<|im_start|>assistant\n",
        "1",
        "0",
    ),
    "bge-reranker-v2-gemma": Template(
        "<bos>A: ",
        "\nB: ",
        "\nGiven a query A and a passage B, determine whether the passage contains an answer to "
        "the query by providing a prediction of either 'Yes' or 'No'.",
        "Yes",
        None,
    ),
}
"""By a part of the checkpoint's name, ignoring case (their model cards)."""


class LogitScore(NamedTuple):
    """The tokens whose logits at the last position are the score, true minus false."""

    true: int
    false: int | None
    layout: RowLayout


def logit_score(name: str, folder: Path, tokenizer: Any) -> LogitScore | None:
    """The score of a decoder by its files or its name; None for a decoder that is no known
    reranker."""
    modules = folder / "modules.json"
    if modules.exists():
        for module in json.loads(modules.read_text(encoding="utf-8")):
            if str(module["type"]).endswith(".LogitScore"):
                config = json.loads((folder / module["path"] / "config.json").read_text())
                layout = _layout(tokenizer, *_rendered(name, tokenizer))
                return LogitScore(config["true_token_id"], config.get("false_token_id"), layout)
    for part, known in TEMPLATES.items():
        if re.search(part, name, re.IGNORECASE):
            layout = _layout(tokenizer, known.prefix, known.middle, known.suffix)
            false = _token(name, tokenizer, known.false) if known.false else None
            return LogitScore(_token(name, tokenizer, known.true), false, layout)
    return None


def score_row(folder: Path, score: LogitScore) -> Tensor:
    """weight_1H: the row of the output matrix of the true token, minus the false one's, in fp32;
    of a classifier its only row."""
    paths = sorted(folder.glob("*.safetensors"))
    # Without a head, embeddings and output matrix are the same.
    for wanted in ("score.weight", "lm_head.weight", "embed_tokens.weight"):
        for path in paths:
            with safe_open(path, "pt") as file:
                for key in file.keys():
                    if key.endswith(wanted):
                        rows = file.get_slice(key)
                        if wanted == "score.weight":
                            return rows[:].to(torch.float32)
                        row = rows[score.true : score.true + 1].to(torch.float32)
                        if score.false is not None:
                            row = row - rows[score.false : score.false + 1].to(torch.float32)
                        return row
    raise BadInput(f"{folder} has no output matrix (lm_head or embed_tokens) in *.safetensors")


def _rendered(name: str, tokenizer: Any) -> tuple[str, str, str]:
    """The parts of the checkpoint's chat template around query and document."""
    texts = ("QUERY-4f1c", "DOCUMENT-4f1c")
    for content in (list(texts), [[{"type": "text", "text": text}] for text in texts]):
        roles = zip(("query", "document"), content, strict=True)
        messages = [{"role": role, "content": part} for role, part in roles]
        try:
            text = tokenizer.apply_chat_template(messages, tokenize=False)
        except Exception:  # of Jinja, of any kind
            continue
        prefix, _, rest = text.partition(texts[0])
        middle, found, suffix = rest.partition(texts[1])
        if found and suffix:
            return prefix, middle, suffix
    raise BadInput(
        f"backbone {name}: its chat template must have the roles query and document, and text "
        "behind the document"
    )


def _layout(tokenizer: Any, *parts: str) -> RowLayout:
    return RowLayout(*(tuple(tokenizer(p, add_special_tokens=False)["input_ids"]) for p in parts))


def _token(name: str, tokenizer: Any, text: str) -> int:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        raise BadInput(f"backbone {name}: its vocabulary must have the token {text!r}")
    return int(ids[0])
