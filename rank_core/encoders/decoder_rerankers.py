"""Published rerankers that are decoders: the text around query and document, and the score at the
last token, which needs two rows of the output matrix instead of the vocabulary.

A checkpoint in the layout of sentence-transformers (6 and later) says both itself: `modules.json`
with a `LogitScore`, and a chat template with the roles query and document. Older ones are known by
name. The parts are tokenised one by one and joined, so that a chunk is a slice of the document's
tokens; beside published code, a space before query or document is a token of its own.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor

from rank_core.encoders.backbone_types import RowLayout
from rank_core.encoders.checkpoint import (
    CONFIG,
    MODULES,
    damaged,
    read_json,
)
from rank_core.errors import BadInput, shown

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
    if (folder / MODULES).exists():
        if not (modules := read_json(folder / MODULES, list)):
            raise damaged(folder / MODULES, "names no modules")
        for module in modules:
            kind, path = (str(dict_of(module).get(key, "")) for key in ("type", "path"))
            if not kind:
                raise damaged(folder / MODULES, f"has a module without a type: {shown(module)}")
            if kind.endswith(".LogitScore"):
                parts = _rendered(name, tokenizer)
                tokens = _score_tokens(folder / path / CONFIG, len(tokenizer))
                return LogitScore(*tokens, _layout(name, tokenizer, *parts))
    for part, known in TEMPLATES.items():
        if re.search(part, name, re.IGNORECASE):
            layout = _layout(name, tokenizer, known.prefix, known.middle, known.suffix)
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


def dict_of(value: Any) -> dict[str, Any]:
    """The value if it is a table, else an empty one."""
    return value if isinstance(value, dict) else {}


def _score_tokens(path: Path, num_tokens: int) -> tuple[int, int | None]:
    """The tokens of a `LogitScore` that say relevant and, if any, not relevant."""
    config = read_json(path, dict)
    true, false = config.get("true_token_id"), config.get("false_token_id")
    for key, token in (("true_token_id", true), ("false_token_id", false)):
        absent = token is None and key == "false_token_id"
        if not absent and not (type(token) is int and 0 <= token < num_tokens):
            raise damaged(path, f"must have a token of the vocabulary as {key}, got {shown(token)}")
    return true, false  # type: ignore[return-value]


def _rendered(name: str, tokenizer: Any) -> tuple[str, str, str]:
    """The parts of the checkpoint's chat template around query and document. A template is a
    program: it is run in a process of its own with little time and memory."""
    try:
        template = tokenizer.get_chat_template()
    except Exception:  # of any kind, where there is none or no default
        template = ""
    texts = ("QUERY-4f1c", "DOCUMENT-4f1c")
    for contents in (list(texts), [[{"type": "text", "text": text}] for text in texts]):
        roles = zip(("query", "document"), contents, strict=True)
        messages = [{"role": role, "content": part} for role, part in roles]
        values = {**tokenizer.special_tokens_map, "messages": messages}
        text = _run_template(name, str(template), json.dumps(values)) if template else ""
        prefix, _, rest = text.partition(texts[0])
        middle, found, suffix = rest.partition(texts[1])
        if found and suffix:
            return prefix, middle, suffix
    raise BadInput(
        f"backbone {name}: its chat template must have the roles query and document, and text "
        "behind the document"
    )


TEMPLATE_SECONDS, TEMPLATE_BYTES, TEMPLATE_LENGTH = 20, 2**30, 100_000
"""What a chat template may use: time, memory, and the characters that it may write."""
_RENDER = """
import json, resource, sys
from transformers.utils.chat_template_utils import _compile_jinja_template
given = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_AS, (given["bytes"],) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (given["seconds"],) * 2)
try:
    text = _compile_jinja_template(given["template"]).render(**given["values"])
except MemoryError:
    raise
except Exception:  # of Jinja, of any kind: not of these roles
    text = ""
print(json.dumps(text[: given["length"]]))
"""


@lru_cache(maxsize=16)
def _run_template(name: str, template: str, values: str) -> str:
    """What a template writes for these values, in JSON; "" where it refuses them."""
    limits = {"bytes": TEMPLATE_BYTES, "seconds": TEMPLATE_SECONDS, "length": TEMPLATE_LENGTH}
    usual = {"tools": None, "documents": None, "add_generation_prompt": False}
    given = {"template": template, "values": {**usual, **json.loads(values)}, **limits}
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _RENDER],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=3 * TEMPLATE_SECONDS,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            check=True,
        )
        text: str = json.loads(ended.stdout)
    except (subprocess.SubprocessError, ValueError):
        text = TEMPLATE_LENGTH * " "
    if len(text) >= TEMPLATE_LENGTH:
        raise BadInput(
            f"backbone {name}: its chat template needs more than {TEMPLATE_SECONDS} seconds, "
            f"{TEMPLATE_BYTES / 2**30:.0f} GiB or {TEMPLATE_LENGTH:,} characters for a query and a "
            "document: it is damaged, or made to do harm"
        )
    return text


def _layout(name: str, tokenizer: Any, *parts: str) -> RowLayout:
    """The tokens of the texts around query and document; raises `BadInput` where one is empty."""
    ids = [tuple(tokenizer(part, add_special_tokens=False)["input_ids"]) for part in parts]
    for place, tokens in zip(("before the query", "after it", "at the end"), ids, strict=True):
        if not tokens:
            raise BadInput(
                f"backbone {name}: its chat template must write text {place}, where a row of "
                "another kind would begin"
            )
    return RowLayout(*ids)


def _token(name: str, tokenizer: Any, text: str) -> int:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        raise BadInput(f"backbone {name}: its vocabulary must have the token {text!r}")
    return int(ids[0])
