"""The files that describe a bundle: README.md, CITATION.cff and RO-Crate metadata.

RO-Crate 1.1, https://www.researchobject.org/ro-crate/specification/1.1/; Citation File Format 1.2.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sweeps.commands.bundle.contents import SWEEP, Manifest
from sweeps.store.sweep_file import SweepFile, read_sweep_file

README, CITATION, CRATE = "README.md", "CITATION.cff", "ro-crate-metadata.json"
VERSION = "https://w3id.org/ro/crate/1.1"
_TYPES = {
    ".json": "application/json", ".html": "text/html", ".md": "text/markdown", ".csv": "text/csv",
    ".svg": "image/svg+xml", ".png": "image/png", ".gz": "application/gzip",
    ".parquet": "application/vnd.apache.parquet",
}  # fmt: skip
NO_LICENSE = "No licence is stated: the authors of this sweep keep all rights."


def described(folder: Path, manifest: Manifest, files: Sequence[str]) -> dict[str, str]:
    """{name: text} of the three files, for a bundle with these `files` beside them."""
    sweep = read_sweep_file(folder / SWEEP)
    title = f"{sweep.sweep} on {sweep.collection.get('name', 'a collection')}: {sweep.question}"
    names = sorted({*files, README, CITATION} - {CRATE})
    crate = _crate(title, sweep, manifest, names)
    return {
        README: _readme(title, manifest),
        CITATION: _citation(title, manifest),
        CRATE: json.dumps(crate, indent=1, ensure_ascii=False) + "\n",
    }


def _readme(title: str, manifest: Manifest) -> str:
    judgments = (
        "`sweep/qrels/` holds the judgments."
        if manifest.qrels == "include"
        else "Of the judgments, `sweep/qrels/` holds only the SHA-256; add `--qrels FILE...` with "
        "those of dev and test."
    )
    return (
        f"# {title}\n\nOpen `sweep/report/index.html`. `ranksweep verify FILE.zip` recomputes "
        f"every value from runs and judgments, and the report from the values. {judgments}\n"
    )


def _citation(title: str, manifest: Manifest) -> str:
    """Texts are JSON, which is YAML as well: no name can break the file."""
    authors = manifest.authors or ("The authors of this sweep",)
    lines = [
        "cff-version: 1.2.0",
        "message: If you use these results, please cite them as below.",
        "type: dataset",
        f"title: {json.dumps(title)}",
        "authors:",
        *(f"  - name: {json.dumps(name)}" for name in authors),
        f"date-released: {json.dumps(manifest.date)}",
        *([f"license: {json.dumps(manifest.license)}"] if manifest.license else []),
        "references:",
        "  - type: software",
        "    title: ranksweep",
        f"    version: {json.dumps(manifest.made_with['ranksweep'])}",
        "    authors:",
        "      - name: The ranksweep authors",
    ]
    return "\n".join(lines) + "\n"


def _crate(
    title: str, sweep: SweepFile, manifest: Manifest, files: Sequence[str]
) -> dict[str, Any]:
    """The metadata descriptor, the root data entity, its licence, authors and files."""
    spdx = f"http://spdx.org/licenses/{manifest.license}"
    terms = spdx if manifest.license else "#license"
    people = {f"#author-{number}": name for number, name in enumerate(manifest.authors, start=1)}
    root = {
        "name": title,
        "description": f"{len(sweep.cells)} configurations of neural rerankers, seeds "
        f"{', '.join(map(str, sweep.seeds))}, by: {sweep.command}",
        "datePublished": manifest.date,
        "license": {"@id": terms},
        **({"author": [{"@id": place} for place in people]} if people else {}),
        "hasPart": [{"@id": quote(name)} for name in files],
    }
    name = manifest.license or "No licence"
    descriptor = {"conformsTo": {"@id": VERSION}, "about": {"@id": "./"}}
    graph = [
        {"@id": CRATE, "@type": "CreativeWork", **descriptor},
        {"@id": "./", "@type": "Dataset", **root},
        {"@id": terms, "@type": "CreativeWork", "name": name,
         "description": manifest.license or NO_LICENSE},
        *({"@id": place, "@type": "Person", "name": name} for place, name in people.items()),
        *({"@id": quote(name), "@type": "File", "name": name, "encodingFormat": _format(name)}
          for name in files),
    ]  # fmt: skip
    return {"@context": f"{VERSION}/context", "@graph": graph}


def _format(name: str) -> str:
    return _TYPES.get(Path(name).suffix, "text/plain")
