"""The search of a plan, by its name in `SEARCHES`."""

from importlib import import_module

from sweeps.plan.plan import Plan
from sweeps.plan.search_options import SEARCHES
from sweeps.search.search import Known, Search
from sweeps.store.trial_store import Store


def search_class(name: str) -> type[Search]:
    """The class of the search called `name`, imported now."""
    module, _, kind = SEARCHES[name].path.partition(":")
    search: type[Search] = getattr(import_module(module), kind)
    return search


def make_search(plan: Plan, known: Known, store: Store) -> Search:
    """The search of a plan; earlier proposals become part of its plan. `known` is called only after
    this returns."""
    return search_class(plan.search.name)(plan, known, store)
