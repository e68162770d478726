"""The search of a plan."""

from sweeps.plan.plan import Plan
from sweeps.search.halving import HalvingSearch
from sweeps.search.race import RaceSearch
from sweeps.search.search import Known, Listed, Search
from sweeps.store.trial_store import Store


def make_search(plan: Plan, known: Known, store: Store) -> Search:
    """The search that the plan asks for; one that proposes has its earlier proposals in its plan.
    `known` is asked only after this returns."""
    if plan.search.proposes:
        from sweeps.search.proposing import ProposingSearch  # which brings in Optuna

        return ProposingSearch(plan, known, store)
    if plan.search.name == "race":
        return RaceSearch(plan, known, store)
    if plan.search.name == "halving":
        return HalvingSearch(plan, known, store)
    return Listed(plan, known, store)
