"""`ranksweep check MODULE:CLASS`: the laws of every model, on a model of one's own."""

from collections.abc import Sequence

from sweeps.terminal.command_line import Parser
from sweeps.terminal.text import numbered, say

BROKEN = 3  # exit code


def main(argv: Sequence[str]) -> int:
    """Check a ranking model as all models of the package are checked: no score depends on other
    documents of a batch, every chunk is read, every parameter has a gradient, and more, over a
    two-layer encoder with random weights. Exit code 0: it has every property; 3: lines that begin
    with `broken` name the laws that it breaks; below each are its meaning and the error."""
    parser = Parser("ranksweep check", main.__doc__)
    parser.add_argument("model", metavar="MODULE:CLASS", help="a Ranker, or a model's name")
    name = parser.parse_args(argv).model
    from rank_core.testing.plugin import check

    contract = check(name)
    say(f"{name}: {contract.broken or 'none'} of {numbered(contract.count, 'law')} broken")
    return BROKEN if contract.broken or not contract.count else 0
