"""`ranksweep models`: every ranking system with its paper and its size over a backbone; or
(`--profile NAME`) a paper's settings beside their source, and the deviations from it; or
(`--markdown`) docs/models.md."""

import inspect
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

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
from rank_core.settings.config import TrialConfig
from sweeps.plan.command_line import Parser
from sweeps.plan.experiment import suited
from sweeps.plan.profiles import PROFILES, Profile, Stated, profile
from sweeps.plan.terminal import columns, say, shortened, terminal_columns, wrapped

TEXTS = tomllib.loads(Path(__file__).with_name("models_page.toml").read_text(encoding="utf-8"))
PAPERS: dict[str, str] = TEXTS["papers"]
"""{paper as in models and profiles: title, venue and arXiv number}."""
QUERY_TOKENS = 32
HEADINGS = ("model", "paper", "parameters", "tokens/doc")
PAPER, VALUE = 24, 20  # most columns


@dataclass(frozen=True)
class ZooEntry:
    """A system of the zoo."""

    name: str
    paper: str
    parameters: int | None = None  # None: no trained weights
    tokens_per_document: int | None = None  # encoder tokens of the longest document
    refused: str = ""  # why it cannot use the backbone; empty where it can


def main(argv: Sequence[str]) -> int:
    """List every ranking system, or the settings of a paper beside their source."""
    parser = Parser("ranksweep models", main.__doc__)
    add = parser.add_argument
    add("--backbone", default="tiny-docs", metavar="ID|DIR", help="of sizes (default %(default)s)")
    add("--profile", metavar="NAME", help=f"print a paper's settings: {', '.join(PROFILES)}")
    add("--markdown", action="store_true", help="print docs/models.md")
    arguments = parser.parse_args(argv)
    if arguments.markdown:
        print(models_page(), end="")
        return 0
    if arguments.profile is not None:
        print(profile_text(profile(arguments.profile)))
        return 0
    backbone = resolve_backbone(arguments.backbone)
    entries = [zoo_entry(name, backbone) for name in [*MODELS, *announced("model")]]
    print(_table(entries))
    print()
    say(f"tokens/doc: encoder tokens of the longest document; backbone {backbone.name}")
    for entry in entries:
        if entry.refused:
            say(f"{entry.name}: {entry.refused}")
    return 0


def zoo_entry(name: str, backbone: Backbone) -> ZooEntry:
    """The system `name` over a backbone, with windows that it accepts."""
    kind = model_class(name)
    if issubclass(kind, ListRanker):
        return ZooEntry(name, kind.paper)
    config = TrialConfig().override({"model.name": name, "model.backbone": backbone.name})
    config = config.override(suited(config, backbone))
    try:
        check_model(config, backbone)
    except BadInput as error:
        return ZooEntry(name, kind.paper, refused=str(error))
    model = build_model(config, backbone, init_seed=0)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return ZooEntry(name, kind.paper, parameters, _tokens(kind, config, backbone))


def _tokens(kind: type[Ranker], config: TrialConfig, backbone: Backbone) -> int:
    """Encoder tokens of a document of the greatest length that the settings allow."""
    length = config.chunking.max_document_tokens
    text = {"d": np.full(length, backbone.sep_id + 1, dtype=np.int32)}
    reader = kind.reader(config, backbone, text)  # type: ignore[arg-type]
    query = np.full(QUERY_TOKENS, backbone.sep_id + 1, dtype=np.int32)
    return sum(len(chunk.text) + QUERY_TOKENS + NUM_SPECIAL for chunk in reader.chunks(query, "d"))


def profile_text(stated: Profile) -> str:
    """A profile for the terminal: its settings beside their reference, those of single models,
    reproduced faults, deviations, settings of other runs."""
    head = ("setting", "value", "reference")
    parts = [wrapped(stated.source)]
    if stated.settings:
        parts.append(_text([head, *_beside(stated.settings)], "lll"))
    for model, own in stated.of_models.items():
        parts.append(f"Of {model} alone:\n{_text([head, *_beside(own)], 'lll')}")
    if stated.quirks:
        quirks = [(model, ",".join(names)) for model, names in stated.quirks.items()]
        table = _text([("model", "model.quirks"), *quirks], "ll")
        parts.append(f"Faults of the reference's code that are reproduced:\n{table}")
    for title, sentences in (("Not the same", stated.not_the_same), ("By hand", stated.by_hand)):
        if sentences:
            items = [wrapped(f"* {sentence}", 2) for sentence in sentences]
            parts.append("\n".join([f"{title}:", *items]))
    return "\n\n".join(parts)


def _beside(stated: Stated) -> list[tuple[str, str, str]]:
    return [
        (name, ", ".join(value) if isinstance(value, tuple) else str(value), words)
        for name, (value, words) in stated.items()
    ]


def _table(entries: Sequence[ZooEntry]) -> str:
    rows: list[tuple[str, ...]] = [HEADINGS]
    for entry in entries:
        sizes = (entry.parameters, entry.tokens_per_document)
        shown = ("-" if size is None else f"{size:,}" for size in sizes)
        rows.append((entry.name, shortened(entry.paper, PAPER), *shown))
    return "\n".join(columns(rows, "llrr"))


def _text(rows: Sequence[Sequence[str]], align: str) -> str:
    """A table whose last columns are wrapped at the terminal's width."""
    name = max(len(row[0]) for row in rows)
    value = min(VALUE, max(len(row[1]) for row in rows)) if len(rows[0]) > 2 else 0
    room = terminal_columns() - name - value - 2 * (len(rows[0]) - 1)
    lines: list[Sequence[str]] = []
    for row in rows:
        cells = [[row[0]], *(textwrap.wrap(text, value) for text in row[1:-1])]
        cells.append(textwrap.wrap(row[-1], room))
        lines += zip_longest(*cells, fillvalue="")
    return "\n".join(columns(lines, align))


def models_page() -> str:
    """The text of docs/models.md."""
    sections: dict[str, list[str]] = {}
    for name in MODELS:
        sections.setdefault(model_class(name).family, []).append(name)
    parts = [TEXTS["introduction"]]
    for family, names in sections.items():
        parts += [f"## {family[0].upper()}{family[1:]}", _page_table(names), *_page_texts(names)]
    parts.append(TEXTS["beyond_profiles"])
    parts += [_differences(name, profile) for name, profile in PROFILES.items() if profile.settings]
    parts += [TEXTS["not_built"], "## Papers"]
    parts.append("\n".join(f"* {paper}: {title}." for paper, title in PAPERS.items()))
    return "\n\n".join(parts) + "\n"


def _page_table(names: list[str]) -> str:
    lines = ["| model | in tables | paper | settings of its own |", "|---|---|---|---|"]
    for name in names:
        kind = model_class(name)
        options = ", ".join(f"`model.{option}`" for option in kind.options)
        lines.append(f"| `{name}` | {kind.label} | {kind.paper} | {options} |")
    return "\n".join(lines)


def _page_texts(names: list[str]) -> Iterator[str]:
    """The descriptions of models; before them, once, those of their modules, each in the family
    with most of its models."""
    families: dict[str, Counter[str]] = {}
    for name in MODELS:
        families.setdefault(_modules(name)[0], Counter())[model_class(name).family] += 1
    seen: set[str] = set()
    for name in names:
        family = model_class(name).family
        for module in _modules(name):
            home = families[module].most_common(1)[0][0] if module in families else family
            if home == family and module not in seen:
                seen.add(module)
                yield inspect.cleandoc(sys.modules[module].__doc__ or "")
        yield f"**{name}**: {inspect.getdoc(model_class(name))}"


def _modules(name: str) -> list[str]:
    """The modules of a model and of the rankers that it builds on, its own first."""
    modules = dict.fromkeys(base.__module__ for base in model_class(name).__mro__)
    models = [module for module in modules if module.startswith("rank_core.models.")]
    return [module for module in models if module != Ranker.__module__]


def _differences(name: str, profile: Profile) -> str:
    sentences = [*profile.not_the_same, *(f"By hand: {text}" for text in profile.by_hand)]
    return "\n".join([f"**{name}** ({profile.source}):", "", *(f"* {text}" for text in sentences)])
