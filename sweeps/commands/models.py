"""`ranksweep models`: every ranking system with its paper; or (`--profile NAME`) a paper's settings
beside their source, and the deviations from it; or (`--markdown`) docs/models.md."""

import inspect
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from rank_core.lines import put, put_program
from rank_core.models import MODELS, citations, model_class
from rank_core.models.ranker import Ranker
from rank_core.models.ranking_system import RankingSystem
from rank_core.own_code import announced
from rank_core.parsing import parsed_toml
from sweeps.plan.profiles import PROFILES, Profile, Stated, profile
from sweeps.terminal.command_line import Need, Parser, needing
from sweeps.terminal.text import columns, terminal_columns, wrapped

TEXTS = parsed_toml(Path(__file__).with_name("models_page.toml").read_bytes(), __name__)
VALUE = 20  # most columns of a setting's value


def main(argv: Sequence[str]) -> int:
    """List every ranking system, or the settings of a paper beside their source."""
    arguments = parser().parse_args(argv)
    if arguments.markdown:
        put_program(models_page(), end="")
        return 0
    if arguments.profile is not None:
        put(profile_text(profile(arguments.profile)))
        return 0
    kinds = {name: model_class(name) for name in [*MODELS, *announced("model")]}
    rows = [(name, kind.label, kind.paper) for name, kind in kinds.items()]
    put(_text([("model", "in tables", "paper"), *rows], "lll"))
    return 0


def parser() -> Parser:
    """The arguments and flags of `ranksweep models`."""
    parser = Parser("ranksweep models", main.__doc__)
    add = parser.add_argument
    add("--profile", metavar="NAME", help=f"print a paper's settings: {', '.join(PROFILES)}")
    markdown = add("--markdown", action="store_true", help="print docs/models.md")
    needing(markdown, Need("profile", without=True))
    return parser


def profile_text(stated: Profile) -> str:
    """A profile for the terminal: its settings beside their reference, those of single models,
    reproduced faults, deviations, settings of other runs."""
    head = ("setting", "value", "reference")
    parts = [wrapped(stated.source)]
    if stated.settings:
        parts.append(_text([head, *_beside(stated.settings)], "lll"))
    for model, settings in stated.of_models.items():
        parts.append(f"Of {model} alone:\n{_text([head, *_beside(settings)], 'lll')}")
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


def papers() -> dict[str, str]:
    """{paper as in models and profiles: title, venue and arXiv number}."""
    return TEXTS["papers"] | citations()


def models_page() -> str:
    """The text of docs/models.md."""
    sections: dict[str, list[str]] = {}
    for name in MODELS:
        sections.setdefault(model_class(name).family, []).append(name)
    parts = [TEXTS["introduction"]]
    for family, names in sections.items():
        lines = ["| model | in tables | paper | its settings |", "|---|---|---|---|"]
        for name in names:
            kind = model_class(name)
            options = ", ".join(f"`model.{option}`" for option in kind.options)
            lines.append(f"| `{name}` | {kind.label} | {kind.paper} | {options} |")
        parts += [f"## {family[0].upper()}{family[1:]}", "\n".join(lines), *_page_texts(names)]
    parts += [TEXTS[name] for name in ("embedding_models", "late_interaction", "beyond_profiles")]
    for name, stated in PROFILES.items():
        if stated.settings:
            items = [*stated.not_the_same, *(f"By hand: {text}" for text in stated.by_hand)]
            lines = [f"**{name}** ({stated.source}):", "", *(f"* {text}" for text in items)]
            parts.append("\n".join(lines))
    parts += [TEXTS["not_built"], "## Papers"]
    parts.append("\n".join(f"* {paper}: {title}." for paper, title in sorted(papers().items())))
    return "\n\n".join(parts) + "\n"


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
    return [
        module for module in models if module not in (Ranker.__module__, RankingSystem.__module__)
    ]
