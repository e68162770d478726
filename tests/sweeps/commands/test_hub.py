"""`ranksweep export --to hf://ORG/NAME` against a stand-in of the Hugging Face Hub on loopback."""

import json
import re

import pytest
import yaml

from rank_core.export.reranker import Reranker
from sweeps.__main__ import main
from tests.e2e.conftest import run_local
from tests.hub_server import TOKEN, Machine, running_hub

__all__ = ["run_local"]

WORDS = (*("--smoke-test", "--tracking-uri", "none"), "chunking.window=48", "chunking.stride=32")


@pytest.fixture(scope="module")
def finished(run_local, tmp_path_factory):
    return run_local(tmp_path_factory.mktemp("hub") / "results", *WORDS)


@pytest.fixture
def hub():
    with running_hub(TOKEN) as hub:
        yield hub


@pytest.fixture
def machine(tmp_path, hub):
    return Machine(tmp_path / "machine", hub)


@pytest.mark.slow
def test_a_model_goes_to_a_private_repository_and_comes_back(finished, hub, machine, tmp_path):
    words = ("-m", "sweeps", "export", str(finished.folder), "--to")
    listed = machine.python(*words, "hf://org/reranker", "--dry-run", HF_TOKEN="")
    assert listed.returncode == 0, listed.stderr
    assert hub.requests == []
    done = machine.python(*words, "hf://org/reranker")
    assert done.returncode == 0, done.stderr
    assert f"sent        {hub.url}/org/reranker/commit/" in done.stdout
    repository = hub.repositories["model", "org/reranker"]
    [(_, sent)] = repository.commits
    assert repository.private

    named = re.findall(r"^ +([\d,]+)  (\S+)$", listed.stdout, re.M)
    sizes = {name: int(size.replace(",", "")) for size, name in named}
    card = "README.md"  # it has the command that made it
    assert sizes.keys() == sent.keys() and card in sent
    assert {name for name in sent if abs(sizes[name] - len(sent[name])) > 20} == set()
    local = tmp_path / "local"
    assert main(["export", str(finished.folder), "--to", str(local)]) == 0
    files = {str(p.relative_to(local)): p for p in local.rglob("*") if p.is_file()}
    report = {"report/index.html", "report/results.json", "report/table.md"}
    assert sent.keys() == files.keys() | report
    own = {card, "ranker.json"}
    assert {name for name in files.keys() - own if files[name].read_bytes() != sent[name]} == set()

    metadata = yaml.safe_load(sent[card].decode().split("---")[1])
    [model] = metadata["model-index"]
    assert model["results"][0]["metrics"][0]["type"] == "nDCG@10"
    assert "hf download org/reranker --local-dir FOLDER" in sent[card].decode()
    assert json.loads(sent["report/results.json"])["comparisons"]

    pulled = tmp_path / "pulled"
    fetch = "import sys; from huggingface_hub import snapshot_download as get; "
    fetch += "get(sys.argv[1], local_dir=sys.argv[2])"
    assert machine.python("-c", fetch, "org/reranker", str(pulled)).returncode == 0
    assert {name: (pulled / name).read_bytes() for name in sent} == sent
    scores = [
        Reranker.load(folder).rank("a query", ["a text", "a query of a text"])
        for folder in (local, pulled)
    ]
    assert scores[0] == scores[1]

    assert machine.tells_the_token() == []
    assert [name for name in sent if TOKEN.encode() in sent[name]] == []
    places = [*finished.folder.parents[1].rglob("*"), *tmp_path.rglob("*")]
    told = [p for p in places if p.is_file() and TOKEN.encode() in p.read_bytes()]
    assert [path.name for path in told] == ["token"]  # the file of the login


@pytest.mark.slow
def test_no_page_that_is_sent_names_a_folder_of_this_machine(finished, hub, machine):
    done = machine.python("-m", "sweeps", "export", str(finished.folder), "--to", "hf://org/own")
    assert done.returncode == 0, done.stderr
    [(_, sent)] = hub.repositories["model", "org/own"].commits
    storage = str(finished.folder.parents[1]).encode()
    assert [name for name, data in sent.items() if storage in data] == []


@pytest.mark.slow
def test_a_public_repository_must_be_meant(finished, hub, machine):
    hub.repository("model", "org/own").private = False
    words = ("-m", "sweeps", "export", str(finished.folder), "--to", "hf://org/own")
    done = machine.python(*words)
    assert done.returncode == 2 and "hf://org/own is public: --public says" in done.stderr
    assert hub.repositories["model", "org/own"].commits == []
    assert machine.python(*words, "--public").returncode == 0
    assert machine.python(*words[:-1], "hf://org/new", "--public").returncode == 0
    assert not hub.repositories["model", "org/new"].private


@pytest.mark.slow
def test_a_refusal_of_the_hub_is_one_message(finished, hub, machine):
    words = ("-m", "sweeps", "export", str(finished.folder), "--to", "hf://org/own")
    done = machine.python(*words, HF_TOKEN="hf_" + "ofAnotherUser" * 3)
    assert done.returncode == 2 and "hf://org/own was not written" in done.stderr
    assert "ofAnotherUser" not in done.stderr + done.stdout and "Traceback" not in done.stderr
    (machine.home / "hf" / "token").unlink()
    done = machine.python(*words)
    assert done.returncode == 2 and "needs a login that may write: `hf auth login`" in done.stderr
    assert hub.repositories == {}


@pytest.mark.parametrize(
    "words, named",
    [
        (("--to", "hf://reranker"), "a model on the Hugging Face Hub is hf://ORG/NAME"),
        (("--to", "hf://datasets/org/name"), "a model on the Hugging Face Hub is hf://ORG/NAME"),
        (("--to", "folder", "--dry-run"), "--dry-run needs --to hf://ORG/NAME"),
        (("--to", "folder", "--public"), "--public needs --to hf://ORG/NAME"),
        (("--public", "--register", "x"), "'--public' needs --to"),
    ],
)
def test_other_words_are_refused_before_any_work(capsys, words, named):
    assert main(["export", "nowhere", *words]) == 2
    assert named in capsys.readouterr().err
