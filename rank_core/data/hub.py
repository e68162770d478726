"""Collections in BEIR's layout from a dataset repository of the Hugging Face Hub:
`hf://datasets/ORG/NAME`, of its present revision, or `hf://datasets/ORG/NAME@REVISION`.

A repository has `corpus`, `queries` and `qrels`, each as `corpus.jsonl[.gz]`, as `corpus.parquet`,
or as the files of a folder of that name; qrels by split. Where its card names the files of the
configurations `corpus`, `queries` and `qrels` (or `default`), these are read.
https://huggingface.co/docs/hub/datasets-manual-configuration
"""

import fnmatch
import hashlib
import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rank_core.bounds import check_parquet
from rank_core.cache import cached_directory
from rank_core.data.folder import DECLARED, LAYOUT, SPLIT_NAMES, load_folder
from rank_core.data.tables import KINDS, TABS, kind_of
from rank_core.data.trec import open_content
from rank_core.data.vocabulary import Fields
from rank_core.errors import BadInput, not_installed, shown
from rank_core.records import Collection

PREFIX = "hf://datasets/"
FORM = f"{PREFIX}ORG/NAME or {PREFIX}ORG/NAME@REVISION"
CARD = "README.md"
TABLES = ("corpus", "queries", "qrels")
JUDGMENTS = ("qrels", "default")
"""The configurations of a card that may hold judgments."""
MOST_CARD = 1 << 22  # bytes
_CARD_TABLE = re.compile(r"\ufeff?\s*---[\r\n]+([\s\S]*?)[\r\n]+---(?:[\r\n]|$)")
_NAME = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")


def load_hub(name: str, fields: Fields | None = None) -> Collection:
    """The collection of a dataset repository, downloaded once for each revision. Its name has the
    revision, and so have the names of trials over it. Raises `BadInput` for a repository that
    cannot be read, and for another layout."""
    repository, revision = _parsed(name)
    snapshot = _snapshot(repository, revision)
    commit = snapshot.name
    key = f"{repository.replace('/', '--')}@{commit[:12]}"
    folder = cached_directory("hub", key, lambda folder: _lay_out(folder, snapshot, name))
    collection = load_folder(folder, fields)
    content = f"{collection.content_hash} {commit}"
    return replace(
        collection,
        name=f"{repository}@{commit[:7]}",
        content_hash=hashlib.sha256(content.encode()).hexdigest()[:16],
    )


def pinned(name: str) -> str:
    """The name with the revision that is read here, so that every process reads the same one."""
    repository, revision = _parsed(name)
    return f"{PREFIX}{repository}@{_snapshot(repository, revision).name}"


def _parsed(name: str) -> tuple[str, str | None]:
    match = _NAME.fullmatch(name.removeprefix(PREFIX))
    if match is None:
        raise BadInput(f"a collection of the Hugging Face Hub is {FORM}, got {shown(name)}")
    return match["repository"], match["revision"]


@lru_cache(maxsize=16)
def _snapshot(repository: str, revision: str | None) -> Path:
    """The folder of the files of a revision, which has the name of its commit."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise not_installed(f"huggingface_hub, which {PREFIX} needs,", "serve")
    from huggingface_hub import snapshot_download

    def fetch(revision: str | None, patterns: Sequence[str]) -> Path:
        patterns = [*patterns]
        home = snapshot_download(
            repository, repo_type="dataset", revision=revision, allow_patterns=patterns
        )
        return Path(home)

    try:
        first = fetch(revision, [CARD, DECLARED])
        patterns = [pattern for files in _patterns(first).values() for pattern in files]
        return fetch(first.name, [CARD, DECLARED, *patterns])
    except BadInput:
        raise
    except Exception as error:  # of the network, the disk or the hub
        raise BadInput(
            f"{PREFIX}{repository} could not be downloaded: {type(error).__name__} "
            f"{shown(str(error))}; a private one needs `hf auth login`"
        ) from None


def downloaded(
    name: str, repository: str, patterns: Sequence[str], revision: str | None = None
) -> Path:
    """The folder of the files of a dataset repository that a named collection is made of. Raises
    `BadInput` where they cannot be had."""
    from huggingface_hub import snapshot_download

    try:
        home = snapshot_download(
            repository, repo_type="dataset", revision=revision, allow_patterns=[*patterns]
        )
    except Exception as error:  # of the network, the disk or the hub
        raise BadInput(
            f"{name} could not be downloaded from Hugging Face's dataset {repository}: "
            f"{type(error).__name__} {shown(str(error))}"
        ) from error
    return Path(home)


def _patterns(snapshot: Path) -> dict[str, list[str]]:
    """{`corpus`, `queries`, or `qrels/SPLIT`: the patterns of its files}."""
    declared = _declared(snapshot / CARD)
    found: dict[str, list[str]] = {}
    for table in ("corpus", "queries"):
        files = [pattern for patterns in declared.get(table, {}).values() for pattern in patterns]
        found[table] = files or [f"{table}.*", f"{table}/*"]
    judged = next((declared[name] for name in JUDGMENTS if name in declared), {})
    for split, called in SPLIT_NAMES.items():
        files = [pattern for name in called for pattern in judged.get(name, ())]
        plain = [f"qrels/{name}{end}" for name in called for end in (".*", "-*")]
        found[f"qrels/{split}"] = files or ([] if judged else plain)
    return found


def _declared(card: Path) -> Mapping[str, Mapping[str, list[str]]]:
    """{configuration: {split: patterns of its files}} that a dataset's card names."""
    if not card.is_file():
        return {}
    try:
        metadata = _metadata(card)
        return {
            str(config["config_name"]): _by_split(config["data_files"])
            for config in metadata.get("configs") or ()
            if "data_files" in config
        }
    except Exception as error:  # of YAML, or of another shape than the Hub documents
        raise BadInput(
            f"{card} names its files (configs) in a form that is not read: {error}"
        ) from None


def _metadata(card: Path) -> Mapping[str, Any]:
    """The table at the top of a card. Its YAML has no aliases: a few lines of them, each of the
    line before, are a text that fills any memory."""
    import yaml

    class Plain(yaml.SafeLoader):  # type: ignore[misc]
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("its YAML has an alias (*name), which no card needs")
            return super().compose_node(parent, index)

    text = card.read_bytes()[: MOST_CARD + 1]
    if len(text) > MOST_CARD:
        raise ValueError(f"it has more than {MOST_CARD:,} bytes")
    block = _CARD_TABLE.match(text.decode())
    return yaml.load(block[1], Plain) or {} if block else {}  # a SafeLoader


def _by_split(files: Any) -> dict[str, list[str]]:
    """The patterns of `data_files`: a pattern, a list of them, or a list of {split, path}."""
    files = [files] if isinstance(files, str | dict) else files
    found: dict[str, list[str]] = {}
    for one in files:
        split, path = (one["split"], one["path"]) if isinstance(one, dict) else ("", one)
        found.setdefault(str(split), []).extend([path] if isinstance(path, str) else path)
    return found


def _lay_out(folder: Path, snapshot: Path, name: str) -> None:
    """Fills a folder in BEIR's layout with links to the files of a snapshot."""
    there = sorted(
        str(path.relative_to(snapshot)) for path in snapshot.rglob("*") if path.is_file()
    )
    for table, patterns in _patterns(snapshot).items():
        files = [
            file for file in there if any(fnmatch.fnmatch(file, pattern) for pattern in patterns)
        ]
        files = [file for file in files if kind_of(Path(file))]
        if not files and table in TABLES:
            raise BadInput(
                f"{name} has no files of {table} ({', '.join(patterns)}, each of "
                f"{', '.join((*KINDS, *TABS))}); {LAYOUT}"
            )
        if files:
            _place(folder / table, [snapshot / file for file in files], name)
    if (snapshot / DECLARED).is_file():
        (folder / DECLARED).symlink_to((snapshot / DECLARED).resolve())


def _place(target: Path, files: Sequence[Path], name: str) -> None:
    """Links the file of a table, or joins several, which must be of one kind."""
    kinds = {kind_of(file) for file in files}
    if len(kinds) > 1:
        names = ", ".join(file.name for file in files)
        raise BadInput(f"{name} has {target.name} in several formats ({names}): keep one of them")
    kind = kinds.pop()
    target.parent.mkdir(exist_ok=True)
    if len(files) == 1:
        target.with_name(f"{target.name}{kind}").symlink_to(files[0].resolve())
    elif kind == ".parquet":
        _join_tables(target.with_name(f"{target.name}.parquet"), files)
    elif kind.removesuffix(".gz") == ".jsonl":
        _join_lines(target.with_name(f"{target.name}.jsonl"), files)
    else:
        raise BadInput(
            f"{name} has several files of {target.name}: only .jsonl and .parquet may have several"
        )


def _join_lines(path: Path, files: Sequence[Path]) -> None:
    """One uncompressed file of several files of lines."""
    with path.open("wb") as joined:
        for file in files:
            last = b""
            with open_content(file) as data:
                while block := data.read(2**20):
                    joined.write(block)
                    last = block[-1:]
            if last != b"\n":  # or the next file's first line would be a part of the last one
                joined.write(b"\n")


def _join_tables(path: Path, files: Sequence[Path]) -> None:
    """One Parquet file of several with the same columns."""
    from pyarrow import parquet

    with parquet.ParquetWriter(path, parquet.read_schema(files[0])) as writer:
        for file in files:
            with parquet.ParquetFile(file) as table:
                check_parquet(table, file, file.stat().st_size)
                for batch in table.iter_batches():
                    writer.write_batch(batch)
