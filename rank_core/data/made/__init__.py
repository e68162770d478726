"""Collections made here: the embedded one, and long documents around short passages.

A new one is a function of its name that calls `cached_directory("collections", f"{name}-{version}",
build)`, whose `build(folder)` writes `docs.jsonl.gz` and, in a folder for each of `SPLITS` that it
makes, `queries.tsv` and `qrels.trec` (`write_lines`, `write_queries`, `write_qrels` of
`rank_core.data.trec`). It returns `dataclasses.replace(load_folder(folder), name=name)`, and its
version is raised whenever it would write something else: a folder that is there is not made again.
"""
