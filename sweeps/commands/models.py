"""`python -m sweeps models`: the zoo, and what each of its systems is over a given backbone."""

import argparse
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
from rank_core.settings.config import Chat, TrialConfig
from sweeps.plan.experiment import suited

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
    """Prints the zoo."""
    parser = argparse.ArgumentParser(prog="python -m sweeps models", description=main.__doc__)
    parser.add_argument("--backbone", default="tiny", metavar="ID|DIR")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    arguments = parser.parse_args(argv)
    backbone = resolve_backbone(arguments.backbone)
    entries = [entry(name, backbone) for name in MODELS]
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
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    lines = []
    for row in rows:
        cells = [
            text.rjust(width) if i in (3, 4) else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
