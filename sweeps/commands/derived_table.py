"""What was derived from chunk scores as text, markdown and CSV. Every derived row says so."""

import csv
import io
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rank_core.files import atomic_write
from rank_core.models.passage_scores import KMaxAvgP
from rank_core.settings.config import TrialConfig
from rank_core.stats.compare import Comparison
from rank_core.stats.results import CORRECTION_NAMES
from sweeps.plan.experiment import model_and_windows
from sweeps.report.load import Sweep
from sweeps.report.notation import aligned, p_text, short_interval, short_signed, shortened
from sweeps.report.terminal import WIDTH

MARK = "inference-only"
_LABEL = 34
_CSV = (
    "cell,label,kind,model,k,window,stride,max_chunks,seeds,measure,mean,delta,ci_low,ci_high,"
    "p_queries,p_both,p_both_adjusted"
).split(",")


@dataclass(frozen=True)
class DerivedRow:
    """A trained cell, or a system derived from its trials, over their seeds."""

    cell: str  # the trained one
    label: str
    derived: bool
    config: TrialConfig
    seeds: tuple[int, ...]
    means: Mapping[str, float]  # {measure: mean over seeds and queries}
    comparisons: Mapping[str, Comparison]  # {measure: against the trained cell}; empty of itself

    @property
    def kind(self) -> str:
        """`trained`, or the mark of what is not."""
        return MARK if self.derived else "trained"


@dataclass(frozen=True)
class Derived:
    """All rows, each cell's trained one first, and why some cells lack some."""

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


def derived_text(found: Derived) -> str:
    """The table of a terminal, and what its columns mean."""
    sweep = found.sweep
    others = [one for one in sweep.measures if one != sweep.primary][:1]
    lines = [["system", "", sweep.primary, "diff", "p", *others]]
    for row in found.rows:
        one = row.comparisons.get(sweep.primary)
        lines.append(
            [
                shortened(f"  {row.label}" if row.derived else row.label, _LABEL),
                row.kind,
                f"{row.means[sweep.primary]:.3f}",
                short_signed(one.delta) if one else "",
                p_text(one.p_both_adjusted) if one else "",
                *(f"{row.means[measure]:.3f}" for measure in others),
            ]
        )
    sentences = [*textwrap.wrap(caption(found), WIDTH, break_on_hyphens=False)]
    for reason in found.left_out:
        sentences += textwrap.wrap(f"Not derived from {reason}", WIDTH, break_on_hyphens=False)
    return "\n".join([*aligned(lines, left=(0, 1)), "", *sentences, ""])


def caption(found: Derived) -> str:
    """What the rows are, over which seeds, and the test."""
    sweep = found.sweep
    seeds = sorted({len(row.seeds) for row in found.rows})
    over = f"{seeds[0]} seed{'s' if seeds[0] > 1 else ''}"
    if len(seeds) > 1:
        over = f"{seeds[0]} to {seeds[-1]} seeds"
    family = sum(row.derived for row in found.rows)
    return (
        f"{sweep.name} on {sweep.split}, means over {over}. {MARK}: the weights of the trained "
        "cell above, its chunk scores aggregated otherwise; a model trained that way would have "
        "other weights. diff and p: against that cell, with queries and training runs random, "
        f"each run paired with itself; {CORRECTION_NAMES[sweep.correction]} over {family}."
    )


def write_derived(found: Derived, folder: Path) -> tuple[Path, Path]:
    """`derived.md` and `derived.csv`, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"derived.md": _markdown(found), "derived.csv": _csv(found)}
    for name, content in contents.items():
        with atomic_write(folder / name) as unfinished:
            unfinished.write_text(content, encoding="utf-8")
    return folder / "derived.md", folder / "derived.csv"


def _markdown(found: Derived) -> str:
    sweep = found.sweep
    level = f"{100 * (1 - sweep.alpha):g} % interval"
    head = ["system", "", "seeds"]
    for measure in sweep.measures:
        head += [measure, "diff", level, "p"]
    lines = [head, ["---"] * 2 + ["---:"] * (len(head) - 2)]
    for row in found.rows:
        line = [row.label, f"*{MARK}*" if row.derived else row.kind, str(len(row.seeds))]
        for measure in sweep.measures:
            one = row.comparisons.get(measure)
            line.append(f"{row.means[measure]:.3f}")
            line += (
                [short_signed(one.delta), short_interval(one), p_text(one.p_both_adjusted)]
                if one
                else [""] * 3
            )
        lines.append(line)
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    left_out = "".join(f"\nNot derived from {one}\n" for one in found.left_out)
    return f"{table}\n\n{caption(found)}\n{left_out}"


def _csv(found: Derived) -> str:
    """Unrounded, a line for each system and measure."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _CSV, lineterminator="\n")
    writer.writeheader()
    for row in found.rows:
        chunking = row.config.chunking
        facts = {
            "cell": row.cell,
            "label": row.label,
            "kind": row.kind,
            "model": row.config.model.name,
            "k": row.config.model.k,
            "window": chunking.window,
            "stride": chunking.stride,
            "max_chunks": chunking.max_chunks,
            "seeds": " ".join(map(str, row.seeds)),
        }
        for measure, mean in row.means.items():
            one = row.comparisons.get(measure)
            tested = (
                {name: getattr(one, name) for name in _CSV[_CSV.index("delta") :]} if one else {}
            )
            writer.writerow(facts | {"measure": measure, "mean": mean} | tested)
    return text.getvalue()
