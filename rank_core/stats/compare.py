"""Every cell of a matrix against a baseline, with all three scopes and one correction; several
baselines in one table, the same for all rows, or one for every row.

A slot is the baseline that a letter of a results table names. A fixed slot names one cell; a slot
by row maps a system to its own baseline, such as FirstP with the same backbone. The comparisons of
a slot share a letter and are one family of the correction.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import ascii_lowercase
from typing import Any

import numpy as np
from scipy import stats

from rank_core.arguments import flag, instance, names, one_text, probability, takes, text
from rank_core.arrays import Floats
from rank_core.errors import BadInput, unknown
from rank_core.stats.behrens_fisher import half_width, two_part_p
from rank_core.stats.corrections import CORRECTION_NAMES, MAX_T
from rank_core.stats.family import OWN, Applied, Family, FamilyRecord, correlations
from rank_core.stats.matrix import ScoreMatrix
from rank_core.stats.moderation import (
    LEAST_POOL,
    Prior,
    Side,
    TwoParts,
    fitted_prior,
    moderated_error,
    moderated_parts,
    runs_apart,
    seeds_agree,
    where_queries_vary,
)
from rank_core.stats.multiplicity import adjusted
from rank_core.stats.scopes import (
    LEAST_SEEDS,
    ScopeTest,
    check_probability,
    confidence_interval,
    paired_scope_test,
    scope_test,
    seed_variances,
    strata_df,
    two_sided_p,
)

TIE = 1e-9
"""Mean scores of a query closer than this are a tie."""


@dataclass(frozen=True)
class CellComparison:
    """One system against the baseline on one measure; `significant` is the decision.

    With one seed the scopes `seeds` and `both` and the intervals are NaN, unless its system is
    declared deterministic. `p_moderated` is NaN unless enough trained systems are compared;
    `p_both_adjusted` corrects both by the rule of `Family`. The intervals are the wider ones of
    both tests.
    """

    measure: str
    system: str
    baseline: str
    delta: float
    relative_gain: float  # delta / mean of the baseline; NaN if that is 0
    p_queries: float
    p_seeds: float
    p_both: float
    p_both_adjusted: float
    df_both: float
    se_both: float
    ci_low: float  # of delta, scope `both`, level 1 - alpha
    ci_high: float
    num_seeds_system: int
    num_seeds_baseline: int
    num_queries: int
    family_size: int  # comparisons with this baseline that have `p_both`; if none has it, all
    correction: str  # what was applied, in words: `Applied.text`
    mean_system: float
    mean_baseline: float
    wins: int  # queries, on means over seeds
    ties: int
    losses: int
    p_queries_adjusted: float
    p_moderated: float  # of `both`, with the seed variances of the family squeezed
    se_queries: float
    ci_queries_low: float  # of delta, scope `queries`, level 1 - alpha
    ci_queries_high: float
    se_moderated: float = math.nan
    df_moderated: float = math.nan
    family_low: float = math.nan  # the intervals of all comparisons of the family at once
    family_high: float = math.nan
    family: FamilyRecord | None = field(default=None, compare=False, repr=False)
    test: ScopeTest | None = field(default=None, compare=False, repr=False)

    @property
    def facts(self) -> dict[str, Any]:
        """Its numbers and names, without the family and the test behind them."""
        return {name: value for name, value in vars(self).items() if name not in ("family", "test")}

    @property
    def fewest_seeds(self) -> float:
        """The smaller number of seeds of its trained systems; infinite if neither is trained."""
        # A single run with a p-value is that of a deterministic system.
        seeds = [S for S in (self.num_seeds_system, self.num_seeds_baseline) if S > 1]
        return 1 if math.isnan(self.p_both) else min(seeds, default=math.inf)

    @property
    def in_family(self) -> "CellComparison":
        """The comparison with the interval of its family, which belongs to a corrected p; itself
        where it has none, or is alone."""
        if self.family_size == 1 or math.isnan(self.family_low):
            return self
        return replace(self, ci_low=self.family_low, ci_high=self.family_high)

    @takes(alpha=probability)
    def significant(self, alpha: float) -> bool:
        """True if the difference is significant with queries and runs as random effects.

        Examples:
            >>> import numpy as np
            >>> from rank_core.stats.matrix import ScoreMatrix
            >>> from rank_core.stats.compare import compare_cells
            >>> base = np.random.default_rng(1).uniform(size=(3, 20))
            >>> scores, seeds = {"A": base, "B": base + 0.5}, {"A": (1, 2, 3), "B": (1, 2, 3)}
            >>> matrix = ScoreMatrix("RR", ("A", "B"), tuple(map(str, range(20))), seeds, scores)
            >>> compare_cells(matrix, baseline="A")[0].significant(alpha=0.05)
            True
        """
        return self.fewest_seeds >= LEAST_SEEDS and self.p_both_adjusted < alpha


@takes(
    matrix=instance(ScoreMatrix, "a ScoreMatrix, which score_matrix() gives"),
    baseline=text,
    correction=one_text("the name of a correction", CORRECTION_NAMES),
    alpha=probability,
    paired_seeds=flag,
    deterministic=names(" of cells", unordered=True),
)
def compare_cells(
    matrix: ScoreMatrix,
    *,
    baseline: str,
    correction: str = MAX_T,
    alpha: float = 0.05,
    paired_seeds: bool = False,
    deterministic: Collection[str] = (),
) -> list[CellComparison]:
    """The comparisons of every other cell with the baseline, one family of the correction.
    `deterministic` names cells declared to have one possible run (BM25). Queries and seeds are
    random effects (Clark 1973) with Welch's (1947) degrees of freedom; docs/statistics.md has the
    formulas. Raises `BadInput` for an unknown baseline or correction and alpha outside (0, 1).

    Examples:
        >>> import pandas as pd
        >>> import ranksweep
        >>> from rank_core.stats.matrix import score_matrix
        >>> values = pd.DataFrame({"cell": [*"AAAABBBB"], "seed": [1, 1, 2, 2] * 2})
        >>> values = values.assign(split="test", query_id=["q1", "q2"] * 4, measure="RR")
        >>> values["value"] = [0.2, 0.5, 0.3, 0.4, 0.7, 0.9, 0.8, 0.6]
        >>> matrix = score_matrix(values, measure="RR", cells=["A", "B"])
        >>> [found] = ranksweep.compare_cells(matrix, baseline="A")
        >>> found.system, round(found.delta, 2), found.correction
        ('B', 0.4, 'a single comparison')
    """
    if baseline not in matrix.cells:
        raise unknown("baseline", baseline, matrix.cells)
    return compare_pairs(
        matrix,
        [(cell, baseline) for cell in matrix.cells if cell != baseline],
        correction=correction,
        alpha=alpha,
        paired_seeds=paired_seeds,
        deterministic=deterministic,
    )


def compare_pairs(
    matrix: ScoreMatrix,
    pairs: Sequence[tuple[str, str]],
    *,
    correction: str = "holm",
    alpha: float = 0.05,
    paired_seeds: bool = False,
    deterministic: Collection[str] = (),
    num_families: int = 1,
) -> list[CellComparison]:
    """Compare the first cell of every pair with the second; the family is all pairs, and those of
    the other collections where there are several families."""
    if correction not in CORRECTION_NAMES:
        raise unknown("correction", correction, CORRECTION_NAMES)
    check_probability("alpha", alpha)
    _check_deterministic(matrix, deterministic)
    if not pairs:
        return []
    pairing: Any = {"paired_seeds": paired_seeds, "deterministic": deterministic}
    tests = [scope_test_of(matrix, pair, **pairing) for pair in pairs]
    moderated = _moderated(matrix, pairs, tests, **pairing)
    both_KK = queries_KK = None
    if correction == MAX_T:  # the others need none, which take most of a large family's time
        both_KK = correlations(matrix, pairs, tests, paired_seeds=paired_seeds)
        queries_KK = correlations(matrix, pairs, tests, scope="queries")
    own_K = np.array([test.p_both for test in tests])
    family = moderated.family(own_K, both_KK, num_families)
    both_K = family.adjusted(correction)
    levels = family.levels(alpha, correction)
    queries_K = adjusted([test.p_queries for test in tests], correction, queries_KK)
    queries_K = family.shared(queries_K, correction)
    applied = family.applied(correction)
    if np.isnan(own_K).all():  # the queries alone are tested, and corrected as was asked
        applied = Applied(correction, OWN, len(pairs) * num_families)
    record = FamilyRecord(
        tuple(pairs),
        applied,
        both_KK,
        queries_KK,
        levels[1],
        alpha,
        paired=paired_seeds,
        **moderated.facts,
    )
    return [
        _comparison(
            matrix,
            pair,
            tests[i],
            alpha,
            interval=moderated.interval(tests[i], i, alpha, alpha),
            family_interval=moderated.interval(tests[i], i, *levels),
            p_moderated=_one_nan(moderated.p_K[i]),
            p_both_adjusted=float(both_K[i]),
            p_queries_adjusted=float(queries_K[i]),
            se_moderated=_one_nan(moderated.error_K[i]),
            df_moderated=_one_nan(moderated.df_K[i]),
            family=record,
        )
        for i, pair in enumerate(pairs)
    ]


def _one_nan(value: Any) -> float:
    """A number, where NaN is always the same object: equal comparisons are then equal."""
    return math.nan if math.isnan(value) else float(value)


def _comparison(
    matrix: ScoreMatrix,
    pair: tuple[str, str],
    test: ScopeTest,
    alpha: float,
    *,
    interval: tuple[float, float],
    family_interval: tuple[float, float],
    family: FamilyRecord,
    **of_family: Any,
) -> CellComparison:
    score_A_SQ, score_B_SQ = (matrix.scores[cell] for cell in pair)
    mean_B = float(score_B_SQ.mean())
    # Wins and losses are of queries: the mean over seeds is what a system does on one.
    query_A_SQ, query_B_SQ = (matrix.of_queries.scores[cell] for cell in pair)
    delta_Q = query_A_SQ.mean(axis=0) - query_B_SQ.mean(axis=0)
    wins, losses = int((delta_Q > TIE).sum()), int((delta_Q < -TIE).sum())
    ci_queries_low, ci_queries_high = confidence_interval(test, 1 - alpha, scope="queries")
    of_test = ("delta", "p_queries", "p_seeds", "p_both", "se_both", "se_queries")
    return CellComparison(
        measure=matrix.measure,
        system=pair[0],
        baseline=pair[1],
        relative_gain=test.delta / mean_B if mean_B != 0 else math.nan,
        df_both=float(test.welch.at_level(alpha)) if test.se_both else test.df_both,
        ci_low=interval[0],
        ci_high=interval[1],
        family_low=family_interval[0],
        family_high=family_interval[1],
        num_seeds_system=matrix.fewest_runs(pair[0]),
        num_seeds_baseline=matrix.fewest_runs(pair[1]),
        num_queries=matrix.num_queries,
        mean_system=float(score_A_SQ.mean()),
        mean_baseline=mean_B,
        wins=wins,
        ties=len(delta_Q) - wins - losses,
        losses=losses,
        ci_queries_low=ci_queries_low,
        ci_queries_high=ci_queries_high,
        **{name: getattr(test, name) for name in of_test},
        test=test,
        family=family,
        family_size=family.applied.size,
        correction=family.applied.text,
        **of_family,
    )


@dataclass(frozen=True)
class _Moderated:
    """The moderated tests of K pairs; NaN where there are none."""

    error_K: Floats
    df_K: Floats
    p_K: Floats
    agree: bool
    prior: Prior | None = None
    parts: Mapping[int, TwoParts] = field(default_factory=dict)
    """{pair: the parts of its variance} where p is that of Behrens and Fisher."""

    @property
    def facts(self) -> dict[str, Any]:
        """What a `FamilyRecord` has of them."""
        prior = self.prior or Prior(math.nan, math.nan, math.nan)
        return {
            "seeds_agree": bool(self.agree),
            "prior_variance": float(prior.variance),
            "prior_df": float(prior.df),
            "pool_df": prior.pool_df,
        }

    def family(self, own_K: Floats, correlation_KK: Floats | None, num_families: int) -> Family:
        """The family of these tests and of the unmoderated ones."""
        apart = bool(self.parts)
        return Family(own_K, self.p_K, correlation_KK, self.agree, num_families, apart)

    def interval(
        self, test: ScopeTest, pair: int, level_own: float, level_moderated: float
    ) -> tuple[float, float]:
        """The wider one of a pair's two intervals, the own test's and the moderated one's."""
        if math.isnan(self.error_K[pair]):  # the own test decides over all comparisons
            return confidence_interval(test, 1 - level_moderated)
        low, high = confidence_interval(test, 1 - level_own)
        if math.isnan(low):
            return low, high
        if pair in self.parts:
            half = half_width(self.parts[pair], level_moderated)
        else:
            half = float(stats.t.isf(level_moderated / 2, self.df_K[pair]) * self.error_K[pair])
        return min(low, test.delta - half), max(high, test.delta + half)


def _moderated(
    matrix: ScoreMatrix,
    pairs: Sequence[tuple[str, str]],
    tests: Sequence[ScopeTest],
    *,
    paired_seeds: bool,
    deterministic: Collection[str],
) -> _Moderated:
    """The moderated test of every pair; NaN in a family of few trained systems and for one seed."""

    def tables(pair: tuple[str, str]) -> list[tuple[str, ...]]:
        """The cells of each table of scores whose seed variance the test of a pair estimates."""
        trained = [cell for cell in pair if cell not in deterministic]
        return [pair] if paired_seeds and len(trained) == 2 else [(cell,) for cell in trained]

    variances: dict[tuple[str, ...], Side] = {}
    # The baseline is in every pair, but its variance is one observation of the prior.
    for table in dict.fromkeys(table for pair in pairs for table in tables(pair)):
        scores = [matrix.scores[cell] for cell in table]
        if len(scores[0]) > 1:
            score_SQ = scores[0] - scores[1] if len(scores) > 1 else scores[0]
            runs = strata_df(score_SQ.mean(axis=1), matrix.run_strata.get(table[0], ()))
            variances[table] = *seed_variances(score_SQ), float(1 + runs)
    unknown_K = np.full(len(pairs), math.nan)
    if len(variances) < LEAST_POOL:
        return _Moderated(unknown_K, unknown_K, unknown_K, agree=False)
    # S V_s is the variance between single runs, which is what systems with different numbers of
    # seeds have in common.
    squares = np.array([S * V_s for V_s, _, S in variances.values()])
    df = np.array([S - 1 for *_, S in variances.values()])
    # A baseline whose seeds vary unlike the others' distorts every comparison at once.
    baselines = {(base,) for _, base in pairs}
    agree = bool(
        seeds_agree(squares, df, [at for at, one in enumerate(variances) if one in baselines])
    )
    prior = fitted_prior(squares, df)
    found = [
        moderated_error(
            test.variance_queries,
            1 + test.df_queries,
            [variances[table] for table in tables(pair)],
            prior,
        )
        if variances.keys() >= {*tables(pair)}
        else (math.nan, math.nan)
        for pair, test in zip(pairs, tests, strict=True)
    ]
    error_K, df_K = np.array(found, dtype=np.float64).T
    delta_K = np.array([test.delta for test in tests])
    p_K = np.where(np.isnan(error_K), math.nan, two_sided_p(delta_K, error_K, df_K))
    fixed = {base for _, base in pairs} <= {*deterministic}
    parts: dict[int, TwoParts] = {}
    if runs_apart(df + 1, agree=agree, deterministic=fixed):
        parts = _apart(tests, [variances.get((system,)) for system, _ in pairs], prior)
    for i, (of_queries, of_runs) in parts.items():
        p_K[i], df_K[i] = two_part_p(delta_K[i], of_queries, of_runs), math.nan
    own_K, V_q = (
        np.array([getattr(test, name) for test in tests]) for name in ("p_both", "variance_queries")
    )
    p_K = where_queries_vary(p_K, own_K, V_q)
    return _Moderated(error_K, df_K, p_K, agree, prior, parts)


def _apart(
    tests: Sequence[ScopeTest], sides: Sequence[Side | None], prior: Prior
) -> dict[int, TwoParts]:
    """{pair: the parts of its variance} over a deterministic baseline, where the system is trained
    and its runs are known."""
    return {
        i: moderated_parts(test.variance_queries, 1 + test.df_queries, side, prior)
        for i, (test, side) in enumerate(zip(tests, sides, strict=True))
        if side
    }


def scope_test_of(
    matrix: ScoreMatrix,
    pair: tuple[str, str],
    *,
    paired_seeds: bool,
    deterministic: Collection[str],
) -> ScopeTest:
    """The test of one pair; a run without a seed cannot share one, so it is never paired."""
    system, baseline = pair
    sides = matrix.scores[system], matrix.scores[baseline]
    fixed = system in deterministic, baseline in deterministic
    runs = [matrix.run_strata.get(cell, ()) for cell in pair]
    queries: Any = {"query_strata": matrix.query_strata, "query_df": matrix.query_df}
    if not paired_seeds or any(fixed):
        return scope_test(
            *sides,
            deterministic=fixed,
            **queries,
            run_strata=(runs[0], runs[1]),
        )
    if matrix.seeds[system] != matrix.seeds[baseline]:
        raise BadInput(
            "paired seeds need the same seeds in every cell, "
            f"got {matrix.seeds[system]} for {system} "
            f"and {matrix.seeds[baseline]} for {baseline}"
        )
    return paired_scope_test(*sides, **queries, run_strata=runs[0])


def _check_deterministic(matrix: ScoreMatrix, deterministic: Collection[str]) -> None:
    for cell in deterministic:
        if cell not in matrix.cells:
            raise unknown("deterministic system", cell, matrix.cells)
        if (num_runs := len(matrix.seeds[cell])) != 1:
            raise BadInput(f"a deterministic system must have one run, got {num_runs} for {cell}")


Slot = str | Mapping[str, str]
"""A baseline for all, or {system: its own baseline}; systems that are not named have none."""

ByLetter = dict[str, list[CellComparison]]
"""{letter of a slot: its comparisons}, in the order of the slots."""


def compare_with(
    matrix: ScoreMatrix,
    *,
    baselines: Sequence[Slot],
    correction: str = "holm",
    alpha: float = 0.05,
    paired_seeds: bool = False,
    deterministic: Collection[str] = (),
    num_families: int = 1,
) -> ByLetter:
    """The comparisons of every slot, in the order of the matrix. A cell that is its own baseline is
    excluded."""
    if not baselines:
        raise BadInput("at least one baseline must be given")
    for slot in baselines:
        named = [slot] if isinstance(slot, str) else list(slot.values())
        for cell in named if isinstance(slot, str) else [*slot, *named]:
            if cell not in matrix.cells:
                raise unknown("baseline" if cell in named else "cell", cell, matrix.cells)
    by_letter: ByLetter = {}
    for letter, slot in zip(ascii_lowercase, baselines, strict=False):
        of_cell = dict.fromkeys(matrix.cells, slot) if isinstance(slot, str) else slot
        by_letter[letter] = compare_pairs(
            matrix,
            [(cell, of_cell[cell]) for cell in matrix.cells if of_cell.get(cell, cell) != cell],
            correction=correction,
            alpha=alpha,
            paired_seeds=paired_seeds,
            deterministic=deterministic,
            num_families=num_families,
        )
    return by_letter


def letter(comparison: CellComparison | None, slot: int, alpha: float) -> str:
    """`A`, `a` or nothing, with an arrow for a loss; a NaN p-value marks nothing.

    The letter is that of the slot: upper case where the difference is significant with queries and
    training runs as random effects, lower case where it is with queries alone, or with too few
    seeds.
    """
    if comparison is None:
        return ""
    mark = ascii_lowercase[slot] if comparison.p_queries_adjusted < alpha else ""
    if comparison.significant(alpha):
        mark = ascii_lowercase[slot].upper()
    return f"{mark}↓" if mark and comparison.delta < 0 else mark
