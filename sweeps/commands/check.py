"""`ranksweep check MODULE:CLASS`: the laws of every model, on a model of one's own."""

from collections.abc import Iterator, Sequence

from rank_core.models import model_class
from sweeps.terminal.command_line import Parser
from sweeps.terminal.text import numbered, say

BROKEN = 3  # exit code


def main(argv: Sequence[str]) -> int:
    """Run the contract tests on a ranking model: no score depends on the other documents of a
    batch, every chunk is read, every parameter has a gradient, and more. The encoder has two layers
    and random weights. Exit code 0: all tests pass; 3: lines that begin with `broken` name the
    tests that failed, each followed by its meaning and the error. At the end are the facts of the
    class, by what it reads, how it trains and how it is served, and what is left to do."""
    name = parser().parse_args(argv).model
    from rank_core.testing.plugin import check

    contract = check(name)
    say(
        f"{name}: {contract.broken or 'none'} of {numbered(contract.count, 'contract test')} failed"
    )
    for line in _of_the_class(name):
        say(line)
    return BROKEN if contract.broken or not contract.count else 0


def _of_the_class(name: str) -> Iterator[str]:
    """What the class says of the model where it differs from its base class, by groups; then what
    is left to do."""
    from rank_core.testing.author import left_to_do

    for group, facts in model_class(name).facts_by_group().items():
        stated = (
            f"{fact}={getattr(value, '__name__', repr(value))}" for fact, value in facts.items()
        )
        yield f"{group:12}{', '.join(stated) or 'as its base class'}"
    for sentence in [*left_to_do(name)] or ["nothing"]:
        yield f"to do       {sentence}"


def parser() -> Parser:
    """The arguments and flags of `ranksweep check`."""
    parser = Parser("ranksweep check", main.__doc__)
    parser.add_argument(
        "model", metavar="MODULE:CLASS", help="a subclass of Ranker, or the name of a model"
    )
    return parser
