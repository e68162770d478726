"""Requirements of pyproject.toml without their upper bounds, and which of these bounds can go.

`python tests/newest.py` prints the requirements of the `dev` extra without upper bounds, for pip.
`python tests/newest.py --report OUTCOME` prints each upper bound beside the installed version, and
whether the bound can go: it can where a version beyond it is installed and the tests passed with
it. `--keep torch` leaves the bound of a package: a plain `torch` of Linux is a CUDA build of 3 GB.
`make test-newest` runs the two with the quick tests between them."""

import argparse
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

UPPER = ("<", "<=", "==", "~=")


def requirements(project: dict, extra: str) -> Iterator[Requirement]:
    """Those of the project and of an extra, and of the extras that this one names."""
    names, seen = [extra], set()
    yield from map(Requirement, project["dependencies"])
    while names:
        if (name := names.pop()) in seen:
            continue
        seen.add(name)
        for text in project["optional-dependencies"][name]:
            requirement = Requirement(text)
            if canonicalize_name(requirement.name) == project["name"]:
                names += sorted(requirement.extras)
            else:
                yield requirement


def upper(requirement: Requirement) -> SpecifierSet:
    """The part of a requirement that refuses newer versions."""
    return SpecifierSet(",".join(str(s) for s in requirement.specifier if s.operator in UPPER))


def without_upper(requirement: Requirement) -> Requirement:
    free = Requirement(str(requirement))
    free.specifier = SpecifierSet(
        ",".join(str(s) for s in requirement.specifier if s.operator not in UPPER)
    )
    return free


def verdict(bound: SpecifierSet, installed: str, passed: bool) -> str:
    """What a bound does to the installed version, which is the newest that pip could install."""
    if bound.contains(installed, prereleases=True):
        return "refuses nothing"
    return "can go: the tests passed" if passed else "stays: the tests failed"


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    flags.add_argument("--report", choices=("passed", "failed"))
    flags.add_argument("--keep", action="append", default=[])
    given = flags.parse_args()
    path = Path(__file__).parents[1] / "pyproject.toml"
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    bounded: dict[str, SpecifierSet] = {}
    for requirement in requirements(project, "dev"):
        if given.report is None:
            keep = canonicalize_name(requirement.name) in given.keep
            print(requirement if keep else without_upper(requirement))
        elif bound := upper(requirement):
            bounded.setdefault(canonicalize_name(requirement.name), bound)
    for name, bound in sorted(bounded.items()):
        row = (name, str(bound), version(name))
        print("{:<24}{:<10}{:<14}{}".format(*row, verdict(bound, row[2], given.report == "passed")))


if __name__ == "__main__":
    main()
