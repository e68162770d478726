"""Samplers of Optuna as searches: the text `QMCSampler(scramble=True)` names one, so that a later
command makes the same one again."""

import ast
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FunctionType
from typing import TYPE_CHECKING, Any

from rank_core.errors import BadInput, shown, unknown

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

Constraints = Callable[["FrozenTrial"], Sequence[float]]
"""How far a trial of Optuna exceeds each limit; at most 0: within."""
_STREAMS = ("rng", "seed")
"""Ends of the names of random streams, which belong to a search and not to its sampler."""


def is_sampler(name: str) -> bool:
    """True for the text of a sampler: every other search is a plain name."""
    return name.endswith(")")


def sampler_of(text: str, seed: int, constraints: Constraints | None = None) -> "BaseSampler":
    """The sampler that a text names, with this seed and these constraints if its class takes them.
    Raises `BadInput` for another class than those of `optuna.samplers`, and for arguments that are
    no literals."""
    from optuna import samplers  # takes a second

    name, given = _parsed(text)
    known = [own for own in samplers.__all__ if own.endswith("Sampler")]
    if name not in known:
        raise unknown("sampler of Optuna", name, known)
    return _made(getattr(samplers, name), given, seed, constraints)


def _parsed(text: str) -> tuple[str, dict[str, Any]]:
    with suppress(SyntaxError, ValueError):
        call = ast.parse(text, mode="eval").body
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args:
            return call.func.id, {
                str(one.arg): ast.literal_eval(one.value) for one in call.keywords
            }
    raise BadInput(
        "a sampler is its class of optuna.samplers with named arguments that are numbers, texts or "
        f"lists, such as QMCSampler(scramble=True), got {shown(text)}"
    )


def _made(
    kind: "type[BaseSampler]",
    given: Mapping[str, Any],
    seed: int,
    constraints: Constraints | None,
) -> "BaseSampler":
    if "seed" in given:
        raise BadInput(f"the seed of {kind.__name__} is --search-seed, got seed={given['seed']}")
    ours = {"seed": seed} | ({"constraints_func": constraints} if constraints else {})
    ours = {own: ours[own] for own in inspect.signature(kind).parameters if own in ours}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is experimental
        try:
            return kind(**given, **ours)
        except Exception as error:
            raise BadInput(f"--search {kind.__name__}(...): {error}") from None


def check_sampler(text: str, num_objectives: int = 1) -> None:
    """Refuses a text that names no sampler, one whose library is not installed, and one that cannot
    seek so many objectives."""
    error = _refusal(text, num_objectives)
    if isinstance(error, ImportError):
        raise BadInput(f"--search {text}: {str(error).splitlines()[0]}")
    # Otherwise a sampler of its own space, such as a GridSampler.
    if error and num_objectives > 1 and isinstance(_refusal(text, 1), ImportError | None):
        raise BadInput(
            f"--search {text} seeks one objective, but --objective names {num_objectives}; tpe, gp "
            "and NSGAIISampler() seek several"
        )


def _refusal(text: str, num_objectives: int) -> Exception | None:
    """What a sampler raises in a study of two numbers with so many objectives."""
    import optuna
    from optuna.distributions import BaseDistribution, FloatDistribution

    sampler = sampler_of(text, 0)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(directions=["minimize"] * num_objectives, sampler=sampler)
    space: dict[str, BaseDistribution] = {name: FloatDistribution(0, 1) for name in "ab"}
    try:
        for _ in range(3):
            study.tell(study.ask(space), [0.0] * num_objectives)
    except Exception as error:
        return error
    return None


def text_of(sampler: object) -> str:
    """The text of a sampler, without its seed. Raises `BadInput` for what is no sampler of Optuna's
    own, and where its arguments cannot be told from it."""
    kind, name = type(sampler), type(sampler).__name__
    given = {}
    for own, parameter in inspect.signature(kind).parameters.items():
        value = vars(sampler).get(f"_{own}", parameter.default)
        if own != "seed" and value is not parameter.default and _is_literal(value):
            given[own] = value
    if _makes(sampler, given):
        for own in [*given]:  # which the class may have set itself
            fewer = {other: value for other, value in given.items() if other != own}
            given = fewer if _makes(sampler, fewer) else given
        return _text(name, given)
    raise BadInput(
        f"a later command could not make this {name} again: what its arguments were cannot be told "
        f'from it. Give its text, search="{name}(name=value)", of a class of optuna.samplers'
    )


def _text(name: str, given: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{own}={value!r}' for own, value in given.items())})"


def _is_literal(value: object) -> bool:
    with suppress(SyntaxError, ValueError):
        return bool(ast.literal_eval(repr(value)) == value)
    return False


def _makes(sampler: object, given: Mapping[str, Any]) -> bool:
    """True if these arguments make the same sampler."""
    with suppress(BadInput):
        again = sampler_of(_text(type(sampler).__name__, given), 0)
        return type(again) is type(sampler) and bool(_state(again) == _state(sampler))
    return False


def _state(value: Any) -> Any:
    """All that a sampler is but its random streams, for a comparison."""
    if isinstance(value, Mapping):
        return {own: _state(inner) for own, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_state(inner) for inner in value]
    if isinstance(value, type | FunctionType) or not hasattr(value, "__dict__"):
        return value
    inner = {own: _state(part) for own, part in vars(value).items() if not own.endswith(_STREAMS)}
    return type(value), inner
