"""The flags on costs: what a search seeks beside the measure, what a system may cost at most, and
what a unit of cost weighs in the choice."""

import math
from collections.abc import Mapping

from rank_core.errors import BadInput, shown, unknown
from sweeps.store.trial_costs import COST_UNITS, TOKENS
from sweeps.terminal.command_line import OUTSIDE_BRACKETS


def parse_objectives(text: str) -> tuple[str, ...]:
    """The measure and the costs of `nDCG@10,tokens_per_document`."""
    measure, *costs = (part.strip() for part in OUTSIDE_BRACKETS.split(text))
    if measure in COST_UNITS or not measure or not costs:
        raise BadInput(
            "--objective names the measure that decides, then one cost or more "
            f"({', '.join(COST_UNITS)}), got {shown(text)}"
        )
    for cost in costs:
        if cost not in COST_UNITS:
            raise unknown("cost of --objective", cost, COST_UNITS)
    if len({*costs}) < len(costs):
        raise BadInput(f"--objective names each cost once, got {shown(text)}")
    return measure, *costs


def parse_amounts(flag: str, text: str) -> dict[str, float]:
    """{cost: amount} of `tokens_per_document=600,ms_per_query=20`."""
    found: dict[str, float] = {}
    for part in text.split(","):
        cost, equals, amount = (word.strip() for word in part.partition("="))
        if not equals:
            raise BadInput(f"{flag} is written COST=NUMBER,..., got {shown(text)}")
        if cost not in COST_UNITS:
            raise unknown(f"cost of {flag}", cost, COST_UNITS)
        if cost in found:
            raise BadInput(f"{flag} names each cost once, got {shown(text)}")
        try:
            found[cost] = float(amount)
        except ValueError:
            found[cost] = math.nan
        if not 0 < found[cost] < math.inf:
            raise BadInput(f"{flag} {cost} must be a number above 0, got {shown(amount)}")
    return found


def check_measure(objectives: tuple[str, ...], primary: str) -> None:
    """Refuses another measure than the one that selects checkpoints and chooses."""
    if objectives and objectives[0] != primary:
        raise BadInput(
            f"--objective names the measure that decides first: {primary}, the first of "
            f"evaluation.measures; got {objectives[0]}"
        )


def over_limit(tokens_per_document: float, at_most: Mapping[str, float]) -> str:
    """Why a configuration is over a limit that is known before it runs; "" where it is not."""
    limit = at_most.get(TOKENS, math.inf)
    if tokens_per_document <= limit:
        return ""
    return f"reads {tokens_per_document:,.0f} tokens per document, --at-most {TOKENS}={limit:g}"
