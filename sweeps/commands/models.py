"""`python -m sweeps models`: the zoo, and what each of its systems is over a given backbone; or
(`--profile NAME`) a profile beside its reference, and what is not the same."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from rank_core.chunking.batches import NUM_SPECIAL
from rank_core.encoders.backbone_types import Backbone
from rank_core.encoders.backbones import resolve_backbone
from rank_core.errors import BadInput
from rank_core.models import MODELS, check_model, model_class
from rank_core.models.build import build_model
from rank_core.models.list_rankers import ListRanker
from rank_core.models.ranker import Ranker
from rank_core.own_code import announced
from rank_core.settings.config import Chat, TrialConfig
from sweeps.commands.models_page import models_page
from sweeps.plan.command_line import Parser
from sweeps.plan.experiment import suited
from sweeps.plan.profiles import PROFILES, Profile, Stated, profile

QUERY_TOKENS = 32
HEADINGS = ("model", "family", "paper", "parameters", "tokens/doc", "settings of its own")


@dataclass(frozen=True)
class Entry:
    """One system of the zoo."""

    name: str
    family: str
    paper: str
    parameters: int | None  # None: no weights of ours
    tokens_per_document: int | None  # encoder tokens of the longest document that is read
    options: tuple[str, ...]
    refused: str  # why the backbone cannot carry it; empty where it can


def main(argv: Sequence[str]) -> int:
    """Prints the zoo, or a profile."""
    parser = Parser("python -m sweeps models", main.__doc__)
    parser.add_argument("--backbone", default="tiny", metavar="ID|DIR")
    parser.add_argument("--profile", metavar="NAME", help="one of " + ", ".join(PROFILES))
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    parser.add_argument("--markdown", action="store_true", help="the text of docs/models.md")
    arguments = parser.parse_args(argv)
    if arguments.markdown:
        print(models_page(), end="")
        return 0
    if arguments.profile is not None:
        stated = profile(arguments.profile)
        print(json.dumps(asdict(stated), indent=1) if arguments.json else profile_text(stated))
        return 0
    backbone = resolve_backbone(arguments.backbone)
    entries = [entry(name, backbone) for name in [*MODELS, *announced("model")]]
    if arguments.json:
        json.dump([asdict(one) for one in entries], sys.stdout, indent=1)
        print()
        return 0
    print(_table(entries))
    print(f"\nParameters and encoder tokens of a longest document over backbone {backbone.name}.")
    for one in entries:
        if one.refused:
            print(f"{one.name}: {one.refused}")
    return 0


def entry(name: str, backbone: Backbone) -> Entry:
    """The system called `name` over a backbone, under the windows that suit it."""
    kind = model_class(name)
    if issubclass(kind, ListRanker):
        return Entry(name, kind.family, kind.paper, None, None, _options(name, kind), "")
    config = TrialConfig().override({"model.name": name, "model.backbone": backbone.name})
    config = config.override(suited(config, backbone))
    try:
        check_model(config, backbone)
    except BadInput as error:
        return Entry(name, kind.family, kind.paper, None, None, kind.options, str(error))
    model = build_model(config, backbone, init_seed=0)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    tokens = _tokens(kind, config, backbone)
    return Entry(name, kind.family, kind.paper, parameters, tokens, kind.options, "")


def _tokens(kind: type[Ranker], config: TrialConfig, backbone: Backbone) -> int:
    """Encoder tokens of a document as long as the settings let one be."""
    length = config.chunking.max_document_tokens
    text = {"d": np.full(length, backbone.sep_id + 1, dtype=np.int32)}
    reader = kind.reader(config, backbone, text)  # type: ignore[arg-type]
    query = np.full(QUERY_TOKENS, backbone.sep_id + 1, dtype=np.int32)
    return sum(len(chunk.text) + QUERY_TOKENS + NUM_SPECIAL for chunk in reader.chunks(query, "d"))


def _options(name: str, kind: type[ListRanker]) -> tuple[str, ...]:
    chat = tuple(f"chat.{field}" for field in Chat.__dataclass_fields__)
    return chat[:4] if name == "rankgpt" else kind.options


def profile_text(stated: Profile) -> str:
    """A profile beside its reference, in the terminal: settings, those of single models, quirks,
    what is not the same, what other runs set."""
    head = ("setting", "value", "reference")
    parts = [stated.source]
    if stated.settings:
        parts.append(_columns([head, *_beside(stated.settings)]))
    for model, own in stated.of_models.items():
        parts.append(f"Of {model} alone:\n{_columns([head, *_beside(own)])}")
    if stated.quirks:
        quirks = [(model, ",".join(names)) for model, names in stated.quirks.items()]
        table = _columns([("model", "model.quirks"), *quirks])
        parts.append(f"Faults of the reference's code that are reproduced:\n{table}")
    for title, sentences in (("Not the same", stated.not_the_same), ("By hand", stated.by_hand)):
        if sentences:
            parts.append("\n".join([f"{title}:", *(f"* {sentence}" for sentence in sentences)]))
    return "\n\n".join(parts)


def _beside(stated: Stated) -> list[tuple[str, str, str]]:
    return [
        (name, ",".join(value) if isinstance(value, tuple) else str(value), words)
        for name, (value, words) in stated.items()
    ]


def _table(entries: Sequence[Entry]) -> str:
    rows = [HEADINGS]
    for one in entries:
        rows.append(
            (
                one.name,
                one.family,
                one.paper,
                "-" if one.parameters is None else f"{one.parameters:,}",
                "-" if one.tokens_per_document is None else f"{one.tokens_per_document:,}",
                " ".join(one.options),
            )
        )
    return _columns(rows, right=(3, 4))


def _columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Rows in columns, the first one underlined; the columns `right` end at their right edge."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            text.rjust(width) if i in right else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
