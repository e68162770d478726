"""The shell lines and Python blocks of README.md and docs/ run, page after page and in their order,
over one small sweep at the path that the pages name. Only sizes and inputs are smaller."""

import gzip
import importlib
import io
import json
import re
import shutil
import sys
import traceback
import zlib
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rank_core as rc
from rank_core.data.trec import write_qrels, write_queries
from rank_core.records import Collection
from sweeps.__main__ import main
from tests.sweeps.test_documented_commands import NOT_OURS, commands

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLDER = "results/window_stride/python-docs"

IN_PLACE = {
    "medquad": "python-docs",
    "msmarco-doc": "python-docs",
    "MaxP 48/32 +BM25": "winner +BM25",
}
"""{collection that is not ours to ship, or row of a larger sweep: what stands for it}."""
_TEACHER, _TRACKERS = "tests/sweeps/commands/test_teach.py", "extras that tests do not have"
_OPENVINO = "an extra; tests/rank_core/encoders/test_openvino_runtime.py"
LEFT_OUT = {
    **NOT_OURS,
    "from sentence_transformers": "an extra that tests do not have",
    "from torch.utils.tensorboard import SummaryWriter": _TRACKERS,
    "make": "installs",
    "mine = ranksweep.Collection.of": "tests/ranksweep/test_plan_and_objects.py",
    "mlflow": "a server",
    "pip": "installs",
    "python -m tests.benchmarks": "tests/benchmarks/test_every_benchmark.py runs them",
    "python -m tests.gpu.ladder": "tests/rank_core/test_few_libraries.py runs it",
    "ranksweep compare BM25=ir:": "downloads",
    "ranksweep compare DIR": "sweeps of the reader; tests/sweeps/launch/test_test_sets.py",
    "ranksweep compare base=": "runs of the reader; tests/sweeps/commands/compare/test_gate.py",
    "ranksweep compare bundles": "bundles of the reader",
    "ranksweep compare first stage=": "two sweeps; tests/sweeps/report/test_interactions.py",
    "ranksweep compare results/aggregation": "two sweeps of the reader",
    "ranksweep convert": "files of other programs; tests/sweeps/commands/test_convert.py",
    "ranksweep doctor --gpu": "a GPU",
    "ranksweep export results/window_stride/python-docs --to hf": "the Hub",
    "ranksweep export results/window_stride/mine --to model --runtime openvino": _OPENVINO,
    "ranksweep run chunk_size --collection medquad": "downloads",
    "ranksweep run chunk_size --collection mine --backbone intfloat": _OPENVINO,
    "ranksweep run serving --collection mine --backbone model training.precision": _OPENVINO,
    "ranksweep run model_zoo --collection": "downloads",
    "ranksweep run reference": "data with a licence; tests/sweeps/plan/test_reference.py has twins",
    "ranksweep run docs/examples/windows_minilm_gpu": "a published model",
    "ranksweep run seeds training.negatives_from": _TEACHER,
    "ranksweep run seeds training.teacher": _TEACHER,
    "ranksweep run teacher.toml": "a published model",
    "ranksweep run window_stride --collection ir:": "downloads",
    "ranksweep run window_stride --collection mine --backbone BAAI/": "an extra, peft",
    "ranksweep split --qrels ir:": "downloads",
    "ranksweep status $SCRATCH": "a folder of the reader",
    "ranksweep status s3://": "an object store",
    "ranksweep teach": _TEACHER,
    "ranksweep ui": "serves until it is interrupted",
    "ray": "a cluster",
    "import wandb": _TRACKERS,
    "sbatch": "Slurm",
}
"""{beginning of a shell line, without variables and quotes, or of a Python block: why not}."""

TESTED_APART = {"tutorial-embeddings.md": "tests/sweeps/report/test_chunking_snippets.py"}
"""{page: the test of its Python blocks, of libraries that tests do not have}."""

SMALL = ["training.max_steps=2", "evaluation.max_test_queries=8", "evaluation.max_dev_queries=8"]
GRID = ["chunking.window=32", "chunking.stride=24", "evaluation.keep_chunk_scores=true"]
OTHER_SWEEPS = (
    "DIR",
    *(f"results/window_stride/{name}" for name in ("mine", "msmarco-doc", "medquad")),
)
PUBLISHED, EMBEDS = "BAAI/bge-reranker-v2-m3", "sentence-transformers/all-MiniLM-L6-v2"


def small_run(words: list[str]) -> list[str]:
    """Words of `run` with the engine of this process and few steps and queries."""
    words = words if "--engine" in words else [*words, "--engine", "local"]
    if "--confirm" in words:  # has the settings of its sweep, and finds one collection only
        return words
    if words[1] == "window_stride" and "--collection" not in words:
        return [*words, *(GRID if "chunking" not in str(words) else ()), *SMALL]
    # A storage of its own: the same question with another model is another sweep.
    words += ["--storage", f"others/{zlib.crc32(repr(words).encode()):08x}"]
    return words if {"--smoke-test", "--dry-run"} & {*words} else [*words, "--smoke-test"]


def snippets() -> Iterator[tuple[Path, str | list[str]]]:
    """(page, the words of a shell line or the text of a Python block)."""
    for page in PAGES:
        blocks = re.findall(r"^ *```(bash|python)\n(.*?)^ *```", page.read_text(), re.M | re.S)
        for language, text in blocks:
            if language == "python" and page.name in TESTED_APART:
                continue
            text = re.sub(r"python sweeps/(\w+)\.py", r"ranksweep run \1", text)
            parts = [text] if language == "python" else commands(text)
            yield from ((page, part) for part in parts)


def write_inputs(collection: Collection) -> None:
    """The files that the pages name, in the working directory."""
    shutil.copytree(ROOT / "docs" / "examples", "docs/examples")
    for file in Path("docs/examples").glob("own_*"):
        shutil.copy(file, ".")
    Path("my_pkg").mkdir()
    model = Path("own_model.py").read_text().replace("SmoothMaxP", "MyRanker")
    Path("my_pkg/models.py").write_text(model)
    shutil.copy("own_collection.py", "my_pkg/data.py")
    for cell in ("firstp", "maxp"):
        for seed in (1, 2, 3):
            [run] = Path("results/trials").glob(f"{cell}-*-seed{seed}/test.run.gz")
            for folder in ("runs", "runs/robust", "runs/dl"):
                Path(folder).mkdir(exist_ok=True)
                Path(folder, f"{cell}.{seed}.run").write_bytes(gzip.decompress(run.read_bytes()))
            shutil.copy(f"runs/{cell}.{seed}.run", f"{cell}{seed}.run")
    first_stage = gzip.decompress(Path(FOLDER, "first_stage", "test.run.gz").read_bytes())
    for name in ("first.run", "bm25.run", "runs/bm25.run"):
        Path(name).write_bytes(first_stage)
    for name in ("test", "robust", "dl"):
        shutil.copy(Path(FOLDER, "qrels", "test.qrels"), f"{name}.qrels")
    splits = collection.splits
    judged = {q: grades for split in splits.values() for q, grades in split.qrels.items()}
    asked = {q: text for split in splits.values() for q, text in split.queries.items()}
    for name in ("all.trec", "qrels.trec"):
        write_qrels(Path(name), judged)
    write_queries(Path("queries.tsv"), asked)
    meetings = {query_id: f"m{number // 3}" for number, query_id in enumerate(asked)}
    rows = ({"query_id": q, "text": text, "meeting": meetings[q]} for q, text in asked.items())
    write_lines("queries.jsonl", rows)
    Path("groups.tsv").write_text("".join(f"{q}\t{own}\n" for q, own in meetings.items()))
    write_lines("docs.jsonl", ({"_id": d, "text": t} for d, t in collection.documents.items()))
    Path("BEIR/qrels").mkdir(parents=True)
    shutil.copy("docs.jsonl", "BEIR/corpus.jsonl")
    write_lines("BEIR/queries.jsonl", ({"_id": q, "text": text} for q, text in asked.items()))
    for name in ("train", "test"):
        rows = [f"{q}\t{d}\t{g}\n" for q, of in splits[name].qrels.items() for d, g in of.items()]
        Path(f"BEIR/qrels/{name}.tsv").write_text("".join(rows))
    write_folder(Path("mine"), collection, "doc_id", "text")
    write_folder(Path("DIR"), collection, "uri", "body")


def write_lines(name: str, rows: Iterable[dict[str, str]]) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_folder(folder: Path, collection: Collection, doc_id: str, text: str) -> None:
    rows = ({doc_id: d, text: t, "headline": d} for d, t in collection.documents.items())
    write_lines(f"{folder}/docs.jsonl", rows)
    for name, split in collection.splits.items():
        (folder / name).mkdir()
        write_queries(folder / name / "queries.tsv", split.queries)
        write_qrels(folder / name / "qrels.trec", split.qrels)


def names_of_the_pages(collection: Collection) -> dict[str, Any]:
    """What Python blocks take as given."""
    split, folder = collection.splits["test"], Path(FOLDER)
    given: dict[str, Any] = {"queries": split.queries, "documents": collection.documents}
    for name in ("dev", "test"):
        given[f"{name}_qrels"] = rc.read_qrels(folder / "qrels" / f"{name}.qrels")
        given[f"{name}_first_stage"] = rc.read_run(folder / "first_stage" / f"{name}.run.gz")
        given[f"{name}_run"] = rc.read_run(
            *folder.parents[1].glob(f"trials/maxp-*-seed1/{name}.run.gz")
        )
    given |= {"qrels": given["test_qrels"], "path": Path("maxp1.run"), "run": given["test_run"]}
    runs = [rc.read_run(path) for path in sorted(Path().glob("[fm]*[123].run"))]
    ranx = [SimpleNamespace(to_dict=lambda run=run: run) for run in runs]
    return given | {"firstp": ranx[:3], "maxp": ranx[3]}


def run_line(words: list[str], backbones: dict[str, Path]) -> None:
    """A shell line in this process; what it writes (`--to`) is written anew."""
    stand_in = IN_PLACE | {name: str(folder) for name, folder in backbones.items()}
    words = [stand_in.get(word, word) for word in words[1:]]
    for before, word in enumerate(words[1:]):
        if word in OTHER_SWEEPS and words[before] != "--collection":
            words[before + 1] = FOLDER
        if words[before] == "--to":
            shutil.rmtree(word, ignore_errors=True)
    if "--register" in words:  # so small a sweep confirms no champion
        words.append("--force")
    code = main(small_run(words) if words[0] == "run" else words)
    assert code == 0, f"exit code {code}"


@pytest.fixture
def bert(tmp_path: Path, backbone_folder: Path) -> Iterator[Path]:
    """In place of bert-base-uncased, one layer that reads windows as long."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    tokenizer = AutoTokenizer.from_pretrained(backbone_folder)
    config = BertConfig(vocab_size=len(tokenizer), num_hidden_layers=1, **sizes)
    BertModel(config).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    yield tmp_path / "bert"
    importlib.import_module("mlflow").set_tracking_uri(None)  # a page has set it


def test_every_snippet_runs(tmp_path, monkeypatch, bert, reranker_folder):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    collection = rc.load_collection("python-docs")
    assert main(small_run(["run", "window_stride"])) == 0
    write_inputs(collection)
    given = names_of_the_pages(collection)
    names_of_page, used, wrong = {}, set(), []
    backbones = {"bert-base-uncased": bert, EMBEDS: bert, PUBLISHED: reranker_folder}
    monkeypatch.setattr("rank_core.encoders.hub.DEFAULT", str(bert))
    for page, snippet in snippets():
        text = snippet if isinstance(snippet, str) else " ".join(snippet)
        left_out = [start for start in LEFT_OUT if re.match(rf"{re.escape(start)}\b", text)]
        used.update(left_out)
        if left_out:
            continue
        out = io.StringIO()
        try:
            with redirect_stdout(out), redirect_stderr(out):
                if isinstance(snippet, str):
                    names = names_of_page.setdefault(page, dict(given))
                    exec(compile(smaller(snippet), page.name, "exec"), names)
                else:
                    run_line(snippet, backbones)
        except Exception:
            said = out.getvalue()[-2000:] + traceback.format_exc(limit=-2)
            wrong.append(f"{page.name}: {text}\n{said}")
    assert not wrong, "\n\n".join(wrong)
    assert set(LEFT_OUT) - set(NOT_OURS) == used - set(NOT_OURS)


def smaller(block: str) -> str:
    """A Python block whose trial and sweep have few steps and queries."""
    settings = dict(word.split("=") for word in SMALL)
    small = dict(word.split("=") for word in (*GRID, *SMALL))
    block = re.sub(r"(ranksweep\.run\(.*)\)", rf'\1, engine="local", settings={small})', block)
    few = "".join(f', "{name}": {value}' for name, value in settings.items())
    return re.sub(r'("chunking\.stride": \d+)', rf"\1{few}", block)
