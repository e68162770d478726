"""Published rerankers of T5's kinds, which generate their answer: the score is the logit of the
token that says relevant, minus that of the token that says the opposite, if any, at the first step
of the decoder.

monoT5 (Nogueira et al. 2020, Document Ranking with a Pretrained Sequence-to-Sequence Model, EMNLP
Findings) writes true or false; the log-probability that its code ranks by is the logarithm of the
sigmoid of this score. RankT5 in its encoder-decoder form (Zhuang et al. 2023, RankT5: Fine-Tuning
T5 for Text Ranking with Ranking Losses, SIGIR, arXiv:2210.10634) has one logit. Checkpoints of both
are `T5ForConditionalGeneration`, as is any T5: they are known by name, or by `true_token_id` and
`false_token_id` in config.json, as an export states them.
"""

from pathlib import Path
from typing import Any, NamedTuple

from rank_core.encoders.backbone_types import RowLayout
from rank_core.encoders.checkpoint import CONFIG, damaged
from rank_core.encoders.decoder_rerankers import before_a_word, known_by_name
from rank_core.errors import BadInput, shown

KINDS = ("longt5", "mt5", "t5", "umt5")
GENERATES = "ForConditionalGeneration"


class Answers(NamedTuple):
    """The tokens that say relevant and, if any, not relevant."""

    true: str
    false: str | None


KNOWN = {
    "rankt5": Answers("<extra_id_10>", None),
    "ptt5-.*msmarco": Answers("▁sim", "▁não"),
    "mt5-(3b-mmarco|13b-mmarco)": Answers("▁true", "▁"),
    "mt5-.*ms?marco": Answers("▁yes", "▁no"),
    "monot5|inranker": Answers("▁true", "▁false"),
}
"""By a part of the checkpoint's name, the first that fits
(https://github.com/castorini/pygaggle, pygaggle/rerank/transformer.py)."""
QUERY, DOCUMENT, RELEVANT = "Query: ", " Document: ", " Relevant:"


def state_answers(name: str, folder: Path, config: Any, vocabulary: dict[str, int]) -> None:
    """Writes the tokens of a T5 reranker into its configuration, where its name says them; raises
    `BadInput` where they are not in its vocabulary."""
    for key in ("true_token_id", "false_token_id"):
        token = getattr(config, key, None)
        if token is not None and not (type(token) is int and 0 <= token < len(vocabulary)):
            why = f"must have a token of the vocabulary as {key}, got {shown(token)}"
            raise damaged(folder / CONFIG, why)
    if generated_answers(config):
        return
    if (known := known_by_name(KNOWN, name)) is None:
        return
    for token in filter(None, known):
        if token not in vocabulary:
            raise BadInput(f"backbone {name}: its vocabulary must have the token {token!r}")
    config.true_token_id = vocabulary[known.true]
    config.false_token_id = vocabulary[known.false] if known.false else None


def generates(config: Any) -> bool:
    """True for a T5 that generates text."""
    named = any(one.endswith(GENERATES) for one in config.architectures or ())
    return named and config.model_type in KINDS


def generated_answers(config: Any) -> tuple[int, ...]:
    """The tokens of a T5 reranker that say relevant and, if any, not relevant; none for others."""
    tokens = (getattr(config, f"{which}_token_id", None) for which in ("true", "false"))
    true, false = tokens
    if not generates(config) or true is None:
        return ()
    return (true,) if false is None else (true, false)


def generator_layout(tokenizer: Any, answers: tuple[int, ...]) -> RowLayout:
    """The published text around query and document. Both parts begin a word, so that T5's
    tokenizers write them alike alone and in the whole text."""
    prefix, before_query = before_a_word(tokenizer, QUERY)
    middle, before_text = before_a_word(tokenizer, DOCUMENT)
    asked = RELEVANT if len(answers) > 1 else ""
    suffix = tuple(tokenizer(asked)["input_ids"])  # with the token that ends a text
    return RowLayout(prefix, middle, suffix, before_query, before_text)


def described_answers(config: Any, tokenizer: Any, *, stated: bool) -> str:
    """What a plan says about a T5 reranker's head; `stated` in config.json."""
    kind = "monoT5" if len(generated_answers(config)) > 1 else "RankT5"
    known = f"{CONFIG} has true_token_id" if stated else "by its name"
    return f"read as {kind}, {known}: {_logit(config, tokenizer)}"


def described_score(config: Any, tokenizer: Any) -> str:
    """What a card says about the score of a T5 reranker."""
    asked = RELEVANT if len(generated_answers(config)) > 1 else ""
    return (
        f"The folder encoder is a {config.architectures[0]} of transformers: a chunk's score is "
        f'the {_logit(config, tokenizer)}, for the text "{QUERY}QUERY{DOCUMENT}CHUNK{asked}".'
    )


def _logit(config: Any, tokenizer: Any) -> str:
    tokens = tokenizer.convert_ids_to_tokens(list(generated_answers(config)))
    return f"logit of {' minus '.join(map(repr, tokens))} at the decoder's first step"


UNKNOWN = (
    "a T5 that was trained as monoT5 or RankT5 is read so where its name says it, or its "
    f"{CONFIG} has true_token_id (and false_token_id)"
)
