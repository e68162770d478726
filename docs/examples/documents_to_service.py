# %% [markdown]
# # From documents to a service
#
# Files of documents, queries and judgments become the chunk size of an index, a tested reranker
# and a service. Only the first cell knows where the texts come from: replace it by your own export.
# The same cells are a script, `python documents_to_service.py`, and a notebook.

# %%
import json
import os
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from wsgiref.simple_server import make_server

import ranksweep

shipped = ranksweep.load_collection("python-docs")  # docstrings; a quarter of them is enough here
queries, qrels = {}, {}
for split in shipped.splits.values():
    for query_id in list(split.queries)[::4]:
        queries[query_id], qrels[query_id] = split.queries[query_id], split.qrels[query_id]
texts = {doc_id: shipped.documents[doc_id] for judged in qrels.values() for doc_id in judged}

# %% [markdown]
# ## The files
# A line for each document, query and judgment. `split` puts the queries into train, dev and test.

# %%
documents = [json.dumps({"doc_id": doc_id, "text": text}) for doc_id, text in texts.items()]
judgments = [f"{q} 0 {doc} {grade}" for q, judged in qrels.items() for doc, grade in judged.items()]
Path("docs.jsonl").write_text("\n".join(documents))
Path("queries.tsv").write_text("\n".join(f"{q}\t{text}" for q, text in queries.items()))
Path("qrels.trec").write_text("\n".join(judgments))


def command(*words):
    """Runs a command of ranksweep and prints what it says; raises where it fails."""
    words = [sys.executable, "-m", "sweeps", *words]
    print(subprocess.run(words, check=True, text=True, capture_output=True).stdout)


files = ["--docs", "docs.jsonl", "--queries", "queries.tsv", "--qrels", "qrels.trec"]
command("split", *files, "--shares", "40,20,40", "--to", "mine")

# %% [markdown]
# ## Which chunk size?
# An embedding model as it is, a folder or a Hugging Face id, over the whole collection.

# %%
model = os.environ.get("MODEL", "sentence-transformers/all-MiniLM-L6-v2")
sizes = {"chunking.window": [64, 128], "chunking.overlap": [0, 0.5], "chunking.snap": False}
chunks = ranksweep.run("chunk_size", collection="mine", backbone=model, settings=sizes)

# %%
chosen = json.loads(Path("results/chunk_size/mine/report/chunking.json").read_text())
{name: chosen[name] for name in ("chunk_tokens", "overlap_tokens", "chunk_characters")}

# %% [markdown]
# ## Which window for the reranker?
# Two windows and FirstP as the baseline, three seeds each. The same call resumes. The page is
# `results/window_stride/mine/report/index.html`.

# %%
windows = {"chunking.window": [48, 96], "chunking.stride": 48, "evaluation.depth": 10}
tiny = {"backbone": "tiny-docs", "seeds": 3}  # minutes; a published encoder takes hours
sweep = ranksweep.run("window_stride", collection="mine", settings=windows, **tiny)

# %%
sweep.table()

# %%
sweep.plot("forest")

# %% [markdown]
# ## The winner as a service

# %%
command("export", "results/window_stride/mine", "--to", "model")
reranker = ranksweep.Reranker.load("model")


# %%
def service(environ, start_response):
    asked = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
    ranked = reranker.rank(asked["query"], asked["documents"])
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps([one._asdict() for one in ranked]).encode()]


with make_server("127.0.0.1", 0, service) as server:  # a free port; docs/export.md has an ASGI app
    threading.Thread(target=server.handle_request, daemon=True).start()
    question = {"query": "how do I sort a list", "documents": ["Opens a file.", "Sorts a list."]}
    url = f"http://127.0.0.1:{server.server_port}"
    answer = urllib.request.urlopen(url, json.dumps(question).encode()).read()
print(answer.decode())
