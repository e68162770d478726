"""The order of candidates on dev, while a sweep runs and at its end."""

from collections.abc import Collection, Iterable, Mapping

ROUNDING = 1e-9
"""The largest difference of two means of the same values."""


def ranked(
    means: Mapping[str, float],
    names: Iterable[str],
    out: Collection[str] = (),
    costs: Mapping[str, float] | None = None,
) -> list[str]:
    """The `names` of a plan that have a mean and are not `out`, the best first; equals by their
    cost, then in the order of the plan. Without the cost of one of them all cost the same."""
    known = [name for name in names if name in means and name not in out]
    priced = costs if costs and all(name in costs for name in known) else {}
    digits = round(1 / ROUNDING)
    return sorted(known, key=lambda name: (-round(means[name] * digits), priced.get(name, 0.0)))
