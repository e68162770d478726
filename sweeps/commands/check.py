"""`ranksweep check MODULE:CLASS`: the laws of every model, on a model of one's own."""

from collections.abc import Sequence

from sweeps.terminal.command_line import Parser
from sweeps.terminal.text import numbered, say

BROKEN = 3  # exit code


def main(argv: Sequence[str]) -> int:
    """Run the contract tests on a ranking model: no score depends on the other documents of a
    batch, every chunk is read, every parameter has a gradient, and more. The encoder has two layers
    and random weights. Exit code 0: all tests pass; 3: lines that begin with `broken` name the
    tests that failed, each followed by its meaning and the error."""
    name = parser().parse_args(argv).model
    from rank_core.testing.plugin import check

    contract = check(name)
    say(
        f"{name}: {contract.broken or 'none'} of {numbered(contract.count, 'contract test')} failed"
    )
    return BROKEN if contract.broken or not contract.count else 0


def parser() -> Parser:
    """The arguments and flags of `ranksweep check`."""
    parser = Parser("ranksweep check", main.__doc__)
    parser.add_argument(
        "model", metavar="MODULE:CLASS", help="a subclass of Ranker, or the name of a model"
    )
    return parser
