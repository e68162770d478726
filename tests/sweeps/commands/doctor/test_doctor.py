"""The doctor's command: what it prints, its exit codes, and that it leaves nothing behind; what it
says of hand-made collections, whose numbers follow from a glance."""

import re
import shutil
from argparse import Namespace

import pytest

from rank_core.chunking.inputs import load_inputs
from rank_core.records import Collection, Split
from rank_core.settings.config import Evaluation
from sweeps.__main__ import main
from sweeps.commands.doctor.examination import (
    asked_of,
    clustered_queries,
    coverage,
    found_share,
    recall,
    shared_queries,
    unread_letters,
)
from sweeps.commands.doctor.finding import LEVELS, Diagnosis, accelerators, verdict


@pytest.fixture
def doctor(inputs_words, tmp_path, monkeypatch, capsys):
    """(exit code, output) of the doctor over the small collection, unless told otherwise."""
    monkeypatch.chdir(tmp_path)
    inputs = dict(zip(inputs_words[::2], inputs_words[1::2], strict=True))

    def run(*words: str) -> tuple[int, str]:
        given = {flag: inputs[flag] for flag in ("--collection", "--backbone") if flag not in words}
        code = main(["doctor", *words, *[word for pair in given.items() for word in pair]])
        out, err = capsys.readouterr()
        return code, out + "".join(line for line in err.splitlines(True) if line[:4] != "... ")

    return run


def lines_of(level, text):
    return [line for line in text.splitlines() if line.startswith(f"  {level}")]


def test_a_sound_collection_has_findings_and_no_error(doctor, tmp_path):
    code, text = doctor()
    assert code == 0 and not lines_of("error", text)
    assert re.search(r"woods \w{16}: 20 documents .*queries: 8 train, 8 dev, 8 test", text)
    assert "8 dev and 8 test queries: too few" in text and "evaluation.folds=5" in text
    assert "test: 100.0% of relevant documents are among 6 candidates" in text
    assert "training: 1 step per trial (8 queries, batch 16, 1 epoch)" in text
    assert ", window " in text and "0.0% of all tokens are never seen" in text
    title, *lines, last = text.splitlines()
    findings = [line for line in lines if line != "data"]
    assert title == "environment" and all(line.split()[0] in LEVELS for line in findings)
    assert all("Remedy: " in line for line in lines_of("warning", text))
    assert last == verdict(Diagnosis(line.split()[0], "x") for line in findings)
    assert list(tmp_path.iterdir()) == []


def test_an_embedded_backbone_has_the_depth_of_its_trials():
    for words, depth in ([], 20), (["evaluation.depth=50"], 50):
        arguments = Namespace(collection=None, fields=None, backbone="tiny-docs", settings=words)
        assert asked_of(arguments).config.evaluation.depth == depth


@pytest.mark.parametrize("sweep", ["chunk_size", "serving", "window_stride"])
def test_the_sweep_that_is_asked_for_is_examined(doctor, tmp_path, collection_folder, sweep):
    """What trains nothing is not examined for training, nor asked for its queries."""
    folder = tmp_path / "untrained"
    shutil.copytree(collection_folder, folder)
    shutil.rmtree(folder / "train")
    trains = sweep == "window_stride"
    code, text = doctor(sweep, "--collection", str(folder), "--backbone", "tiny-docs")
    data = text.partition("data\n")[2]
    assert ("no train split" in data) is trains
    assert ("a real backbone takes hours per trial" in text) is trains
    assert ("candidates" in data) is (sweep != "chunk_size")
    assert ("the place of the answer is known for" in data) is (sweep == "chunk_size")
    assert code == (2 if trains else 0)


def test_inputs_that_a_sweep_would_refuse_are_errors(doctor, tmp_path, collection_folder):
    broken = tmp_path / "broken"
    shutil.copytree(collection_folder, broken)
    (broken / "test" / "bm25.run").write_text("test-0 Q0 d01 1 NaN t\n")
    cases = {
        ("--collection", str(broken)): ["bm25.run:1"],
        ("--collection", f"{tmp_path}/woods"): ["woods"],
        ("--backbone", f"{tmp_path}/bert"): ["bert"],
        ("chunking.window=500", "chunking.stride=250"): ["chunking.window"],
    }
    for words, named in cases.items():
        code, text = doctor(*words)
        errors = lines_of("error", text)
        assert code == 2 and len(errors) == len(named)
        assert all(name in error for name, error in zip(named, errors, strict=True))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["nonsense"], "section.setting=value"),
        (["chunking.window=5", "chunking.window=6"], "chunking.window"),
        (["evaluation.measures=nDCG@10,ERR_IA@10"], "ERR_IA@10"),
        (["--gpu"], "--gpu"),
        (["--json", "checks.json"], "--json"),
    ],
)
def test_bad_usage_is_refused_before_anything_is_examined(doctor, words, named):
    code, text = doctor(*words)
    assert code == 2
    assert text.startswith("error: ") and named in text and text.count("\n") == 1


@pytest.mark.parametrize(
    ("attached", "build", "hidden", "level", "words"),
    [
        (0, None, None, "note", "no GPU on this machine"),
        (2, None, None, "error", "torch is a CPU build"),
        (2, "12.8", None, "error", "torch is built for CUDA 12.8"),
        (2, "12.8", "", "note", "CUDA_VISIBLE_DEVICES is ''"),
    ],
)
def test_gpus_that_torch_does_not_see_have_a_reason(attached, build, hidden, level, words):
    found = accelerators(visible=0, attached=attached, build=build, hidden=hidden)
    assert found.level == level and words in found.text


def split(queries=None, qrels=None, candidates=None):
    queries = queries or {"q": "x"}
    run = {q: {d: float(-i) for i, d in enumerate(ds)} for q, ds in (candidates or {}).items()}
    return Split(queries, qrels or {}, run)


def collection(**splits):
    return Collection("made", "0" * 16, {"a": "Some  text", "b": "some text", "c": "else"}, splits)


TWO = split(
    {"q1": "x", "q2": "y"},
    {"q1": {"a": 1, "b": 1}, "q2": {"c": 2, "a": 0}},
    {"q1": ["c", "a"], "q2": ["a", "b"]},
)


def test_recall_is_a_mean_over_queries_within_the_depth():
    assert found_share(TWO, 2) == (1 / 2 + 0) / 2
    assert found_share(TWO, 1) == 0


def test_a_candidate_list_without_any_relevant_document_is_an_error():
    lost = split(qrels={"q": {"a": 1}}, candidates={"q": ["b"]})
    found = recall("test", lost, Evaluation())
    assert found.level == "error" and "first-stage" in found.remedy


def test_the_number_of_candidates_is_that_of_the_longest_list():
    for depth, number in ((1, "1 candidate"), (2, "2 candidates"), (100, "2 candidates")):
        found = recall("test", TWO, Evaluation(depth=depth))
        assert found.what.endswith(f"among {number}")
        assert ("evaluation.depth" in found.remedy) == (depth == 1)


def test_texts_that_are_no_documents_are_not_looked_for_among_candidates():
    """Those of the documented {query, pos, neg}: trained on as they are, never found by others."""
    texts = frozenset({"x", "y"})
    pairs = split(qrels={"q": {"x": 1, "y": 1}}, candidates={"q": ["b"]})
    assert recall("train", pairs, Evaluation(), texts).level == "ok"
    found = recall("test", pairs, Evaluation(), texts)
    assert found.level == "error" and "are not documents of the collection" in found.what
    mixed = split(qrels={"q": {"x": 1, "b": 1}}, candidates={"q": ["b"]})
    assert "100.0%" in recall("train", mixed, Evaluation(), texts).what


def test_a_folder_with_a_file_of_pairs_is_sound(doctor, tmp_path, collection_folder):
    folder = tmp_path / "paired"
    shutil.copytree(collection_folder, folder)
    shutil.rmtree(folder / "train")
    query = (folder / "dev" / "queries.tsv").read_text().split("\n")[0].split("\t")[1]
    for negatives in ("", ', "neg": ["c"]'):
        line = f'{{"query": "{query}", "pos": ["b"]{negatives}}}'
        (folder / "train.jsonl").write_text(f"{line}\n")
        code, text = doctor("--collection", str(folder))
        assert code == 0 and "train: the relevant texts are not documents" in text


def test_queries_of_two_splits_with_one_text_are_a_warning():
    both = collection(
        train=split({"t": "What  is\tRayleigh scattering?"}),
        test=split({"e": "what is rayleigh scattering?", "f": "other"}),
    )
    [found] = shared_queries(both)
    assert found.level == "warning"
    assert "test: 1 of 2 queries with the text of a train query, such as e" in found.text


def test_test_queries_that_share_a_relevant_document_are_a_warning():
    """Sizes 2, 1, 1: the design effect is at most (4 + 1 + 1) / 4."""
    qrels = {"a": {"x": 1}, "b": {"x": 1, "y": 0}, "c": {"y": 1}, "d": {"z": 1}}
    [found] = clustered_queries(collection(test=split(qrels=qrels)))
    assert found.level == "warning"
    assert "2 of 4 test queries share a relevant document with another one (3 clusters)" in (
        found.text
    )
    assert "design effect up to 1.5, standard errors up to 22% larger" in found.text
    apart = {"a": {"x": 1}, "b": {"y": 1}}
    assert not [*clustered_queries(collection(test=split(qrels=apart)))]


def test_text_behind_the_limit_is_a_note_and_all_read_is_fine(small_trial, backbone):
    inputs = load_inputs(small_trial.collection, small_trial.model.backbone)
    cut = small_trial.override({"chunking.max_document_tokens": 6})
    whole = small_trial.override({"chunking.max_document_tokens": 10_000})
    short, read = (coverage(one, inputs) for one in (cut, whole))
    assert (short.level, read.level, read.remedy) == ("note", "ok", "")
    assert short.remedy.startswith("chunking.max_document_tokens=")
    assert f"{inputs.tokens.lengths().max()} " in short.remedy


def test_a_document_as_long_as_the_limit_is_not_cut(small_trial):
    """The longest of the 20 documents exactly fits, then the longest two do not."""
    inputs = load_inputs(small_trial.collection, small_trial.model.backbone)
    *_, third, second, longest = sorted(inputs.tokens.lengths().tolist())
    assert third < second < longest
    for limit, cut in ((longest + 1, ""), (longest, ""), (longest - 1, "5.0%"), (third, "10.0%")):
        found = coverage(small_trial.override({"chunking.max_document_tokens": limit}), inputs)
        assert found.why == (f"{cut} of documents are longer than max_document_tokens" * bool(cut))
        assert found.level == ("note" if cut else "ok")
        assert bool(found.remedy) == bool(cut)
    # What is never seen are the tokens of the two longest beyond the limit.
    unseen = (longest + second - 2 * third) / int(inputs.tokens.lengths().sum())
    assert f", {unseen:.1%} of all tokens are never seen" in found.what and unseen > 0.001


@pytest.mark.parametrize(
    ("text", "language", "first_stage", "words"),
    [
        (
            "北京大学在中国 abc",
            "",
            "BM25",
            ["70%", "English", "language=zh)'", "zh for Chinese"],
        ),
        ("книга о море", "en", "BM25+RM3", ["100%", "ru for Russian, sr for Serbian, und for any"]),
        ("ქართული ენა", "", "BM25", ['{"language": "und"}', "ranksweep.json (und for any other"]),
        ("plain words", "zh", "BM25", ["Chinese", "language=CODE", "the code of their language"]),
        ("北京大学", "zh", "BM25", []),
        ("北京大学", "und", "BM25", []),
        ("북경 대학", "ko", "BM25", []),
        ("北京 and more words", "", "BM25", []),  # most letters are read
        ("北京大学", "", "mine", []),  # not ranked here
        ("北京大学", "", "BM25 of subwords", []),
        ("12 %", "", "BM25", []),
    ],
)
def test_letters_that_the_language_of_bm25_does_not_have_are_a_warning(
    text, language, first_stage, words
):
    made = Collection("made", "1", {"d": text}, {}, first_stage, language=language)
    found = list(unread_letters("a/made|debias(seed=2)", made))
    assert [finding.level for finding in found] == ["warning"] * bool(words)
    for word in (*words, "'a/made|first-stage(language=") if words else ():
        assert word in found[0].text
