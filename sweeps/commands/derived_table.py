"""The derived systems as text, Markdown and CSV. Every derived row is marked."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rank_core.files import atomic_write
from rank_core.models.passage_scores import KMaxAvgP
from rank_core.settings.config import TrialConfig
from rank_core.stats.compare import Comparison
from rank_core.stats.multiplicity import CORRECTION_NAMES
from sweeps.plan.experiment import model_and_windows
from sweeps.plan.terminal import shortened
from sweeps.report.interpolation import interpolation_text
from sweeps.report.load import Interpolated, Sweep
from sweeps.report.notation import (
    TWO_RUNS_WORDS,
    decisive_p,
    has_two_runs,
    level_text,
    short_interval,
    short_signed,
)
from sweeps.report.table import Cell, csv_text, markdown, table, terminal_lines, wrapped

MARK = "inference-only"
_LABEL = 34
_OWN = "cell label kind model k window stride max_chunks normalise alphas seeds".split()
_TESTED = "delta ci_low ci_high p_queries p_both p_both_adjusted".split()


@dataclass(frozen=True)
class DerivedRow:
    """A trained cell, or a system derived from its trials, over their seeds."""

    cell: str  # the trained one
    label: str
    derived: bool
    config: TrialConfig
    seeds: tuple[int, ...]
    means: Mapping[str, float]  # {measure: mean over seeds and queries}
    comparisons: Mapping[
        str, Comparison
    ]  # {measure: against the trained cell}; empty for that cell
    interpolated: Interpolated | None = None  # of a row "+BM25"

    @property
    def kind(self) -> str:
        """`trained`, or the mark of a derived row."""
        return MARK if self.derived else "trained"


@dataclass(frozen=True)
class Derived:
    """All rows, each trained cell before its derived systems, and the reasons for missing ones."""

    sweep: Sweep
    rows: tuple[DerivedRow, ...]
    left_out: tuple[str, ...]


def derived_label(config: TrialConfig) -> str:
    """`KMaxAvgP 150/75, k 3, 4 chunks`."""
    parts = [model_and_windows(config)]
    if config.model.name == "kmax-avgp":
        parts.append(f"k {config.model.k or KMaxAvgP.DEFAULT_K}")
    count = config.chunking.max_chunks
    if count:
        parts.append(f"{count} chunk{'s' if count > 1 else ''}")
    return ", ".join(parts)


def derived_text(derived: Derived) -> str:
    """The terminal's table and its caption."""
    sweep = derived.sweep
    others = [measure for measure in sweep.measures if measure != sweep.primary][:1]
    rows = []
    for row in derived.rows:
        test = row.comparisons.get(sweep.primary)
        tested = (short_signed(test.delta), decisive_p(test)) if test else ("", "")
        rows.append(
            (
                shortened(f"  {row.label}" if row.derived else row.label, _LABEL),
                row.kind,
                f"{row.means[sweep.primary]:.3f}",
                *tested,
                *(f"{row.means[measure]:.3f}" for measure in others),
            )
        )
    heading = ["system", "", sweep.primary, "diff", "p", *others]
    lines = [*terminal_lines(table(heading, rows, "ll".ljust(len(heading), "r"))), ""]
    missing = (f"Not derived from {reason}" for reason in derived.left_out)
    for sentence in (caption(derived), *missing):
        lines += wrapped(sentence)
    return "\n".join([*lines, ""])


def caption(derived: Derived) -> str:
    """The caption: rows, seeds and test."""
    sweep = derived.sweep
    seeds = sorted({len(row.seeds) for row in derived.rows})
    over = f"{seeds[0]} seed{'s' if seeds[0] > 1 else ''}"
    if len(seeds) > 1:
        over = f"{seeds[0]} to {seeds[-1]} seeds"
    family = sum(row.derived for row in derived.rows)
    mixed = [row.interpolated for row in derived.rows if row.interpolated]
    aggregated = "; others: another aggregation of its chunk scores; a model trained with that "
    aggregated += "aggregation would have other weights"
    if not any(row.derived and not row.interpolated for row in derived.rows):
        aggregated = ""
    tested = [c for row in derived.rows for c in row.comparisons.values()]
    two = f" {TWO_RUNS_WORDS}" if any(map(has_two_runs, tested)) else ""
    how = f". {interpolation_text(sweep, mixed)}" if mixed else ""
    return (
        f"{sweep.name} on {sweep.split_text}, means over {over}. {MARK}: the weights of the "
        f"trained cell above{how}{aggregated}. diff and p: against that cell, queries and seeds as "
        "random effects, each run paired with itself; "
        f"{CORRECTION_NAMES[sweep.correction]} over {family}.{two}"
    )


def write_derived(derived: Derived, folder: Path) -> tuple[Path, Path]:
    """`derived.md` and `derived.csv`, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"derived.md": _markdown(derived), "derived.csv": _csv(derived)}
    for name, content in contents.items():
        with atomic_write(folder / name) as unfinished:
            unfinished.write_text(content, encoding="utf-8")
    return folder / "derived.md", folder / "derived.csv"


def _markdown(derived: Derived) -> str:
    sweep = derived.sweep
    heading = ["system", "", "seeds"]
    for measure in sweep.measures:
        heading += [measure, "diff", f"{level_text(sweep.alpha)} interval", "p"]
    rows = []
    for row in derived.rows:
        line: list[str | Cell] = [row.label, Cell(row.kind, face="tied" if row.derived else "")]
        line.append(str(len(row.seeds)))
        for measure in sweep.measures:
            test = row.comparisons.get(measure)
            line.append(f"{row.means[measure]:.3f}")
            line += (
                [short_signed(test.delta), short_interval(test), decisive_p(test)]
                if test
                else [""] * 3
            )
        rows.append(line)
    left_out = "".join(f"\nNot derived from {reason}\n" for reason in derived.left_out)
    drawn = table(heading, rows, "ll".ljust(len(heading), "r"), caption=caption(derived))
    return f"{markdown(drawn)}{left_out}"


def _csv(derived: Derived) -> str:
    """The rows as CSV, unrounded, a line for each system and measure."""
    rows = []
    for row in derived.rows:
        model, chunking = row.config.model, row.config.chunking
        own = [row.cell, row.label, row.kind, model.name, model.k, chunking.window]
        own += [chunking.stride, chunking.max_chunks]
        mixed = row.interpolated
        own += [mixed.normalise, mixed.alphas_text] if mixed else ["", ""]
        own += [" ".join(map(str, row.seeds))]
        for measure, mean in row.means.items():
            comparison = row.comparisons.get(measure)
            tested = [getattr(comparison, name, None) for name in _TESTED]
            rows.append([*own, measure, mean, *tested])
    return csv_text([*_OWN, "measure", "mean", *_TESTED], rows)
