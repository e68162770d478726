"""The share of lines that tests ran, by room: `python tests/coverage_by_room.py FILE`, where FILE
is the JSON of coverage.py."""

import json
import sys
from collections import Counter
from pathlib import Path, PurePath


def by_room(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> list[tuple[str, int, int]]:
    """(room, lines that ran, lines), and the sum. A room is a folder of a package."""
    ran, lines = Counter[str](), Counter[str]()
    for name, file in report["files"].items():
        parts = PurePath(name).parts[:-1]
        room = "/".join(parts[:2])
        ran[room] += file["summary"]["covered_lines"]
        lines[room] += file["summary"]["num_statements"]
    rows = [(room, ran[room], lines[room]) for room in sorted(lines) if lines[room]]
    return [*rows, ("all", ran.total(), lines.total())]


if __name__ == "__main__":
    for room, ran, lines in by_room(json.loads(Path(sys.argv[1]).read_text())):
        print(f"{room:28} {ran:7,} of {lines:7,} {ran / lines:7.1%}")
