"""Collections that are generated, such as `python-docs`, or made of published files.

A new one is a function of its name that calls `cached_directory("collections", f"{name}-{version}",
build)`, where `build(folder)` writes `docs.jsonl.gz` and, in a folder per split of `SPLITS`,
`queries.tsv` and `qrels.trec` (`write_lines`, `write_queries`, `write_qrels` of
`rank_core.data.trec`). It returns `dataclasses.replace(load_folder(folder), name=name)`. Its
version must be incremented whenever it would write something else, because existing folders are
kept.
"""
