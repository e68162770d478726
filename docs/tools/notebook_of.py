"""The notebook of a script whose cells begin with `# %%`, as editors read them:

    python -m docs.tools.notebook_of docs/examples/documents_to_service.py

It is written beside the script, without outputs; `jupyter nbconvert --execute` adds them.
"""

import re
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook


def cells_of(text: str) -> list[tuple[str, str]]:
    """(kind, source) of each cell of a script: `markdown` without its comment signs, or `code`."""
    found = []
    for mark, body in re.findall(r"^# %%(.*)\n((?:(?!^# %%).*\n?)*)", text, re.MULTILINE):
        if "markdown" in mark:
            found.append(("markdown", re.sub(r"^# ?", "", body, flags=re.MULTILINE).strip()))
        else:
            found.append(("code", body.strip()))
    return found


def main(argv: list[str]) -> None:
    """Write the notebook of the script that is named."""
    script = Path(argv[0])
    made = {"markdown": new_markdown_cell, "code": new_code_cell}
    cells = [made[kind](source) for kind, source in cells_of(script.read_text(encoding="utf-8"))]
    for place, cell in enumerate(cells):
        cell["id"] = f"cell-{place}"  # the same file each time
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, script.with_suffix(".ipynb"))


if __name__ == "__main__":
    main(sys.argv[1:])
