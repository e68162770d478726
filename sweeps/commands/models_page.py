"""The text of docs/models.md: every ranking system with its paper and what differs from it."""

import inspect
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rank_core.models import MODELS, model_class
from rank_core.models.ranker import Ranker
from sweeps.plan.profiles import PROFILES, Profile

TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
PAPERS: dict[str, str] = TEXTS["papers"]
"""{paper as in models and profiles: title, venue and arXiv number}."""


def models_page() -> str:
    """The text of docs/models.md."""
    sections: dict[str, list[str]] = {}
    for name in MODELS:
        sections.setdefault(model_class(name).family, []).append(name)
    parts = [TEXTS["introduction"]]
    for family, names in sections.items():
        parts += [f"## {family[0].upper()}{family[1:]}", _table(names), *_texts(names)]
    parts.append(TEXTS["beyond_profiles"])
    parts += [_differences(name, profile) for name, profile in PROFILES.items() if profile.settings]
    parts += [TEXTS["not_built"], "## Papers"]
    parts.append("\n".join(f"* {paper}: {title}." for paper, title in PAPERS.items()))
    return "\n\n".join(parts) + "\n"


def _table(names: list[str]) -> str:
    lines = ["| model | in tables | paper | settings of its own |", "|---|---|---|---|"]
    for name in names:
        kind = model_class(name)
        options = ", ".join(f"`model.{option}`" for option in kind.options)
        lines.append(f"| `{name}` | {kind.label} | {kind.paper} | {options} |")
    return "\n".join(lines)


def _texts(names: list[str]) -> Iterator[str]:
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
