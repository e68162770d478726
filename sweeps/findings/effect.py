"""What the choice gains beside the headline: after allowing for the choice, over the baseline, and
by the first stage."""

import math

from rank_core.seeding import generator
from rank_core.stats.bootstrap import selected_gain
from rank_core.stats.compare import CellComparison
from rank_core.stats.selection import gain_after_choice
from sweeps.findings.analysis import Analysis
from sweeps.findings.finding import Finding
from sweeps.systems.choice import Choice, dev_by_seed
from sweeps.systems.system import System

LINK = "how-reliable-is-this"


def rows(analysis: Analysis) -> list[Finding]:
    """The gain after allowing for the choice, that over the baseline, and what mixing adds."""
    choice, sweep = analysis.choice, analysis.sweep
    if choice is None:
        return []
    found = []
    if analysis.chosen and not math.isnan(gain := allowed_gain(analysis)):
        name = f"gain over {sweep.label(analysis.chosen.baseline)}, after allowing for the choice"
        found.append(Finding("effect", name, choice.label, gain, link=LINK))
    row = next((row for row in analysis.rows if row.name == choice.system), None)
    test = row.test(sweep.primary) if row else None
    if test and test is not analysis.chosen and analysis.first_stage:
        found.append(_gain(f"gain over {sweep.label(test.baseline)}", choice.label, test))
    for pair in analysis.own_model_comparisons:
        if pair.system == choice.system and pair.measure == sweep.primary:
            name = f"gain by {sweep.first_stage_name} over {sweep.label(pair.baseline)}"
            found.append(_gain(name, choice.label, pair))
    return found


def _gain(name: str, about: str, test: CellComparison) -> Finding:
    own = test.in_family
    ends = own.ci_low, own.ci_high
    return Finding(
        "effect", name, about, test.delta, *ends, test.p_both_adjusted, link="one-comparison"
    )


def allowed_gain(analysis: Analysis) -> float:
    """The gain over the reference with each seed left out of the choice in turn: the gain of the
    system that the others chose, on the seed left out; systems that a search eliminated with two
    runs or more are candidates, too. NaN below two seeds, and where an earlier sweep
    has chosen."""
    sweep, choice, test = analysis.sweep, analysis.choice, analysis.chosen
    if choice is None or test is None or sweep.about.confirms or sweep.about.chosen:
        return math.nan
    if choice.on_reported:
        return _of_reported(analysis, choice, test)
    rows = {row.name: row for row in analysis.rows}
    dev, test_means = dev_by_seed(sweep), dict[str, list[float]]()
    dev_means = dict[str, list[float]]()
    # What a search eliminated lost by the same runs.
    candidates = dict.fromkeys([*choice.order, *sweep.about.eliminated])
    for name in [*candidates, *[test.baseline] * (test.baseline not in candidates)]:
        row, own = rows.get(name), dev.get(name, {})
        if row is None or (len(own) == 1 and not _is_fixed(row)):
            continue
        on_test = row.seed_means[sweep.primary]
        seeds = [seed for seed in sorted(own) if seed in on_test] or sorted(on_test)
        test_means[name] = [on_test[seed] for seed in seeds]
        if name in candidates:
            dev_means[name] = [own[seed] for seed in seeds if seed in own]
    gain = gain_after_choice(dev_means, test_means, reference=test.baseline)
    return math.nan if gain is None else gain


def _of_reported(analysis: Analysis, choice: Choice, test: CellComparison) -> float:
    """The same where the reported queries chose: by the bootstrap, which leaves queries out, too.
    NaN for a mean over collections."""
    matrix = analysis.every[test.measure]
    names = [name for name in choice.order if name in matrix.cells and name != test.baseline]
    fixed = [name for name in analysis.fixed if name in matrix.cells]
    single = [name for name in names if len(matrix.scores[name]) < 2 and name not in fixed]
    if len(names) < 2 or single or test.measure in analysis.means:
        return math.nan
    return selected_gain(
        matrix.only((test.baseline, *names)),
        baseline=test.baseline,
        rng=generator(1, "selected gain"),
        deterministic=fixed,
    ).corrected


def _is_fixed(row: System) -> bool:
    return row.deterministic or not row.num_launched
