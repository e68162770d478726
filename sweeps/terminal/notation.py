"""The notation of numbers: rounding happens here and nowhere earlier."""

import math

from rank_core.stats.compare import CellComparison
from rank_core.stats.scopes import LEAST_SEEDS

MISSING = "—"
TIE_POLICY = "equal scores rank by ascending document id"


def number(value: float, digits: int = 3) -> str:
    """A rounded number with a true minus sign; a rounded -0 is 0, NaN a dash."""
    if math.isnan(value):
        return MISSING
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def signed(value: float, digits: int = 3) -> str:
    """A rounded difference with its sign, a true minus included."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def p_text(p: float) -> str:
    """A p-value: three decimals, `<.001` below, a dash where undefined."""
    if math.isnan(p):
        return MISSING
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def relation(p: float) -> str:
    """`= .012` or `<.001`, for a sentence."""
    text = p_text(p)
    return text if text.startswith("<") else f"= {text}"


def percent(share: float) -> str:
    """A share of 1 in whole percent; above 0 and below 1, never "0%" or "100%"."""
    if math.isnan(share):
        return MISSING
    if 0 < share < 0.01:
        return "under 1%"
    if 0.99 < share < 1:
        return "over 99%"
    return f"{100 * share:.0f}%"


def level_text(alpha: float) -> str:
    """The level of an interval: `95%`."""
    return f"{100 * (1 - alpha):.4g}%"


ONE_RUN = "†"
"""Mark of an interval or a p of the queries alone, of one training run."""
ONE_RUN_WORDS = f"{ONE_RUN}: one training run, so interval and p are those of the queries alone."
TWO_RUNS_WORDS = "(p): two training runs, too few to decide."
_WIDEST = 2.0  # an interval wider than any measure: of two queries or two seeds
_TOO_WIDE = "too wide"


def interval_text(pair: CellComparison, digits: int = 3) -> str:
    """The interval of a difference; with one seed that of the queries alone, with its mark."""
    single = math.isnan(pair.p_both)
    ends = (pair.ci_queries_low, pair.ci_queries_high) if single else (pair.ci_low, pair.ci_high)
    text = range_text(*ends, digits)
    return text + ONE_RUN * (single and text.startswith("["))


def difference_text(pair: CellComparison, digits: int = 3) -> str:
    """`+0.177 [0.082, 0.272]`: a difference with the interval that holds for its family at once."""
    return f"{signed(pair.delta, digits)} {interval_text(pair.in_family, digits)}"


def range_text(low: float, high: float, digits: int = 3) -> str:
    """`[−0.010, 0.030]`: an interval; words where it is wider than any measure, a dash where it is
    undefined."""
    if math.isnan(low):
        return MISSING
    if high - low > _WIDEST:
        return _TOO_WIDE
    return f"[{number(low, digits)}, {number(high, digits)}]"


def decisive_p(comparison: CellComparison) -> str:
    """The adjusted p with queries and seeds random; with one run that of the queries alone."""
    if not math.isnan(comparison.p_both_adjusted):
        return both_p(comparison)
    text = p_text(comparison.p_queries_adjusted)
    return text if text == MISSING else text + ONE_RUN


def both_p(comparison: CellComparison) -> str:
    """The adjusted p with queries and seeds random, in parentheses with two runs."""
    text = p_text(comparison.p_both_adjusted)
    return f"({text})" if has_two_runs(comparison) else text


def has_two_runs(comparison: CellComparison) -> bool:
    """True if p has a value that cannot make the difference significant."""
    return not math.isnan(comparison.p_both) and comparison.fewest_seeds < LEAST_SEEDS


def names_text(names: list[str], most: int = 3) -> str:
    """`a, b and c`; of more than `most` names the first few and the number of the others."""
    if len(names) > most:
        names = [*names[:most], f"{len(names) - most} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
