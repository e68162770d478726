"""Published rerankers that are decoders: the text around query and document, and the score at the
last token, which needs two rows of the output matrix instead of the vocabulary, or the rows of a
classifier.

A checkpoint in the layout of sentence-transformers (6 and later) says both itself: `modules.json`
with a `LogitScore`, and a chat template with the roles query and document. So does a classifier's
template. Older ones are known by name. The parts are tokenised one by one and joined, so that a
chunk is a slice of the document's tokens. A space at the end of a part belongs to the first word
of what follows, as in published code; a line break there joins no punctuation before it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors import safe_open
from torch import Tensor

from rank_core.children import OverLimit, bounded
from rank_core.encoders.backbone_types import RowLayout
from rank_core.encoders.checkpoint import CONFIG, damaged
from rank_core.encoders.module_chain import pair_layout
from rank_core.encoders.saved_model import Module, SavedModel
from rank_core.encoders.st_folder import Unread, known_settings
from rank_core.errors import BadInput, shown
from rank_core.parsing import parsed_json
from rank_core.units import size_text

T = TypeVar("T")
LOGITS = "causal_logits"
"""What a `LogitScore` reads: the output matrix at the last token."""
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
"""By a part of the checkpoint's name (their model cards)."""


def known_by_name(known: Mapping[str, T], name: str) -> T | None:
    """What is known by a part of a checkpoint's name, ignoring case; the first that fits. The name
    is the last part of a Hugging Face id or of a folder, and of one in the Hub's cache that of its
    id: the folders above may be called as any model."""
    path = Path(name)
    cached = path.parent.name == "snapshots"  # models--org--name/snapshots/commit
    own = path.parent.parent.name.rpartition("--")[2] if cached else path.name
    return next((one for part, one in known.items() if re.search(part, own, re.IGNORECASE)), None)


Rows = tuple[int, int | None]
"""The rows of a matrix whose products are a score: the one that says relevant and, if any, the one
that says not relevant."""


class LogitScore(NamedTuple):
    """The rows whose logits at the last position are the score, true minus false: of the output
    matrix, or of the classifier of one that `classifies`."""

    true: int
    false: int | None
    layout: RowLayout
    classifies: bool = False


def logit_score(
    name: str, saved: SavedModel, tokenizer: Any, classifier: Rows | None = None
) -> LogitScore | None:
    """The score of a decoder by what its folder says, or its name; None for a decoder that is not a
    known reranker. `classifier` has the rows of a classifier, whose
    tokenizer has the text around query and document."""
    for module in saved.modules:
        if module.kind == "LogitScore":
            layout = _stated_layout(name, tokenizer, saved)
            tokens = _score_tokens(saved.folder, module, len(tokenizer))
            return LogitScore(*tokens, layout)
    if known := known_by_name(TEMPLATES, name):
        layout = _layout(name, tokenizer, known.prefix, known.middle, known.suffix)
        if classifier is not None:
            return LogitScore(*classifier, layout, classifies=True)
        false = _token(name, tokenizer, known.false) if known.false else None
        return LogitScore(_token(name, tokenizer, known.true), false, layout)
    if classifier is None:
        return None
    own = classifier_layout(name, tokenizer, saved)
    return LogitScore(*classifier, own, classifies=True) if own else None


def classifier_layout(name: str, tokenizer: Any, saved: SavedModel) -> RowLayout | None:
    """The text that a tokenizer writes around query and document, by its chat template or as a
    pair; None where it has neither."""
    try:
        if not writes_pairs(saved) and (layout := _template_layout(name, tokenizer, saved)):
            return layout
        return _pairs(name, tokenizer, saved)
    except Unread:
        return None


def writes_pairs(saved: SavedModel) -> bool:
    """True where a folder states a Transformer without messages, as all of older versions do:
    sentence-transformers then writes pairs, even where there is a chat template."""
    return any(module.kind == "Transformer" for module in saved.modules) and not saved.chats


def _stated_layout(name: str, tokenizer: Any, saved: SavedModel) -> RowLayout:
    """The layout of a decoder whose modules are stated. Raises `BadInput` for one that is not
    read."""
    if not writes_pairs(saved):
        return chat_layout(name, tokenizer, saved)
    if saved.row_problem:
        raise BadInput(f"backbone {name}: {saved.row_problem}")
    try:
        return _pairs(name, tokenizer, saved)
    except Unread as reason:
        raise BadInput(f"backbone {name}: {reason}") from None


def _pairs(name: str, tokenizer: Any, saved: SavedModel) -> RowLayout:
    return with_prompt(name, tokenizer, pair_layout(tokenizer, 0), saved.query_prefix)


def score_row(folder: Path, score: LogitScore) -> Tensor:
    """weight_1H: the row of the output matrix, or of the classifier, that says relevant, minus the
    other's, in fp32."""
    paths = sorted(folder.glob("*.safetensors"))
    # Without a head, embeddings and output matrix are the same.
    names = ("score.weight",) if score.classifies else ("lm_head.weight", "embed_tokens.weight")
    for wanted in names:
        for path in paths:
            with safe_open(path, "pt") as file:
                for key in file.keys():
                    if key.endswith(wanted):
                        rows = file.get_slice(key)
                        row: Tensor = rows[score.true : score.true + 1].to(torch.float32)
                        if score.false is not None:
                            row = row - rows[score.false : score.false + 1].to(torch.float32)
                        return row
    raise BadInput(f"{folder} has no {' or '.join(names)} in *.safetensors")


def _score_tokens(folder: Path, module: Module, num_tokens: int) -> tuple[int, int | None]:
    """The tokens of a `LogitScore` that say relevant and, if any, not relevant."""
    path, config = folder / module.path / CONFIG, known_settings(folder, module)
    if (source := config.get("module_input_name", LOGITS)) != LOGITS:
        raise damaged(path, f"has module_input_name={shown(source)}; only {LOGITS} are read")
    true, false = config.get("true_token_id"), config.get("false_token_id")
    for key, token in (("true_token_id", true), ("false_token_id", false)):
        absent = token is None and key == "false_token_id"
        if not absent and not (type(token) is int and 0 <= token < num_tokens):
            raise damaged(path, f"must have a token of the vocabulary as {key}, got {shown(token)}")
    return true, false  # type: ignore[return-value]


PROBES = (
    ("QUERY-4f1c", "DOCUMENT-4f1c"),
    (" \tis <b>9d27</b> A & 'b'?  \n", '\n\n  <i>\u00c4 "9e"</i> {{ c }}\n|  d \t '),
    (" ".join(["A7q"] * 300), " ".join(["c2E."] * 6_000)),
)
"""(query, document) with which a chat template shows its frame: of several lengths, with white
space at the ends and inside, capital letters, and marks that filters change."""


def chat_layout(name: str, tokenizer: Any, saved: SavedModel) -> RowLayout:
    """The layout by the checkpoint's chat template around query and document. Raises `BadInput` for
    a template that is no fixed frame around the two, and for settings that are not read."""
    try:
        layout = _template_layout(name, tokenizer, saved)
    except Unread as reason:
        raise BadInput(f"backbone {name}: {reason}") from None
    if layout is None:
        raise _no_frame(name, "must have the roles query and document")
    return layout


def _template_layout(name: str, tokenizer: Any, saved: SavedModel) -> RowLayout | None:
    """The same; None for a template that writes neither query nor document. The prompt of the
    folder is the system's message. Raises `Unread` for settings that are not read."""
    try:
        template = tokenizer.get_chat_template()
    except Exception:  # of any kind, where there is none or no default
        return None
    if saved.row_problem:
        raise Unread(saved.row_problem)
    values = {"add_generation_prompt": False, **tokenizer.special_tokens_map, **saved.template}
    given = [
        values | {"messages": _messages(*pair, saved.query_prefix, structured)}
        for structured in (False, True)
        for pair in PROBES
    ]
    try:
        texts = _run_template(str(template), json.dumps(given))
    except OverLimit:
        texts = []
    if max(map(len, texts), default=TEMPLATE_LENGTH) >= TEMPLATE_LENGTH:
        raise BadInput(
            f"backbone {name}: its chat template needs more than {TEMPLATE_SECONDS} seconds, "
            f"{size_text(TEMPLATE_BYTES)} or {TEMPLATE_LENGTH:,} characters for a query and a "
            "document: it is damaged, or made to do harm"
        )
    frames = [_frame(texts[: len(PROBES)]), _frame(texts[len(PROBES) :])]
    for frame in frames:
        if isinstance(frame, tuple):
            return _layout(name, tokenizer, *frame)
    if reason := next(filter(None, frames), ""):
        raise _no_frame(name, str(reason))
    return None


def _no_frame(name: str, reason: str) -> BadInput:
    return BadInput(
        f"backbone {name}: its chat template {reason}; a row here is a query and a document in a "
        "fixed text, which ends behind the document"
    )


def _messages(query: str, document: str, prompt: str, structured: bool) -> list[dict[str, Any]]:
    """The messages of a pair; contents are texts or, structured, lists of parts."""
    parts = {"system": prompt, "query": query, "document": document}
    return [
        {"role": role, "content": [{"type": "text", "text": text}] if structured else text}
        for role, text in parts.items()
        if text or role != "system"
    ]


def _frame(texts: Sequence[str]) -> tuple[str, str, str] | str:
    """The texts before the query, between query and document, and behind it, in what a template
    writes for `PROBES`; where they are no fixed frame the reason, "" where neither is there."""
    frames = set[tuple[str, str, str]]()
    for text, (query, document) in zip(texts, PROBES, strict=True):
        for role, part in (("query", query), ("document", document)):
            if not (times := text.count(part)):
                if not frames:  # the first has nothing that a filter would change
                    return "" if query not in text else f"does not write the {role} as it is"
                stripped = part.strip() in text
                how = "strips white space around" if stripped else "changes or cuts"
                return f"{how} the {role}"
            if times > 1:
                return f"writes the {role} {times} times"
        prefix, _, rest = text.partition(query)
        middle, between, suffix = rest.partition(document)
        if not between:
            return "writes the document before the query"
        if not suffix:
            return "must write text behind the document"
        frames.add((prefix, middle, suffix))
    if len(frames) > 1:
        return "writes other text around other queries or documents (such as their lengths)"
    return frames.pop()


TEMPLATE_SECONDS, TEMPLATE_BYTES, TEMPLATE_LENGTH = 20, 2**30, 100_000
"""What a chat template may use: time, memory, and the characters that it may write."""
_RENDER = """
from transformers.utils.chat_template_utils import _compile_jinja_template
bound()
def rendered(values):
    try:
        return _compile_jinja_template(given["template"]).render(**values)[: given["length"]]
    except MemoryError:
        raise
    except Exception:  # of Jinja, of any kind: not of these roles
        return ""
print(json.dumps([rendered(values) for values in given["values"]]))
"""


@lru_cache(maxsize=16)
def _run_template(template: str, values: str) -> list[str]:
    """What a template writes for each of a list of values, in JSON; "" where it refuses one. A
    template is a program: it is run in a process of its own with little time and memory. Raises
    `OverLimit`, which is not kept: a busy machine may have been the reason."""
    usual = {"tools": None, "documents": None}
    given = {
        "template": template,
        "values": [usual | own for own in parsed_json(values)],
        "length": TEMPLATE_LENGTH,
    }
    texts: list[str] = bounded(_RENDER, given, seconds=TEMPLATE_SECONDS, memory=TEMPLATE_BYTES)
    return texts


def _layout(name: str, tokenizer: Any, *parts: str) -> RowLayout:
    """The tokens of the texts around query and document; raises `BadInput` where one is empty."""
    ids, befores = zip(*(before_a_word(tokenizer, part) for part in parts), strict=True)
    for place, tokens in zip(("before the query", "after it", "at the end"), ids, strict=True):
        if not tokens:
            raise BadInput(
                f"backbone {name}: its chat template must write text {place}, where a row of "
                "another kind would begin"
            )
    if befores[2]:  # nothing follows
        ids = (*ids[:2], _ids(tokenizer, parts[2]))
    return RowLayout(*ids, *befores[:2])


def before_a_word(tokenizer: Any, text: str) -> tuple[tuple[int, ...], str]:
    """(tokens of a text, what the text that follows is tokenised with): the space at the end of the
    text, where the first word of what follows has it."""
    if not text.endswith(" "):
        return _ids(tokenizer, text), ""
    tokens = _ids(tokenizer, text[:-1])
    whole = _ids(tokenizer, text + _WORD)
    # Many tokenizers write a word alike with and without the space, some add one themselves.
    return tokens, "" if tokens + _ids(tokenizer, _WORD) == whole else " "


_WORD = "what"


def prompt_tokens(name: str, tokenizer: Any, prompt: str) -> tuple[tuple[int, ...], str]:
    """(tokens of a prompt, what the text behind it is tokenised with). Raises `BadInput` for a
    prompt that runs into the first word of a text."""
    whole = _ids(tokenizer, prompt + _WORD)
    tokens, before = before_a_word(tokenizer, prompt)
    if tokens + _ids(tokenizer, before + _WORD) != whole:
        tokens, before = _ids(tokenizer, prompt), ""  # a token may end with the space: "[Q] "
    if tokens + _ids(tokenizer, before + _WORD) != whole:
        raise BadInput(
            f"backbone {name}: the tokens of its prompt {shown(prompt)} run into the first word of "
            "a text; end it with a space, as it was trained"
        )
    return tokens, before


def with_prompt(name: str, tokenizer: Any, layout: RowLayout, prompt: str) -> RowLayout:
    """A layout with a text before the query. Raises `BadInput` for a text that runs into the
    query's first word."""
    if not prompt:
        return layout
    tokens, before = prompt_tokens(name, tokenizer, prompt)
    return layout._replace(prefix=layout.prefix + tokens, before_query=before)


def _ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def _token(name: str, tokenizer: Any, text: str) -> int:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        raise BadInput(f"backbone {name}: its vocabulary must have the token {text!r}")
    return int(ids[0])
