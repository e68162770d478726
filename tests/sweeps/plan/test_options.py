"""What the words of a command line mean, and which are refused."""

import pytest

from rank_core.errors import BadInput
from sweeps.plan.flags import FLAGS
from sweeps.plan.options import Options, absolute_folder, parse, range_text


def parsed(*words: str) -> Options:
    return parse(words, prog="window_stride.py", description="What?")


def test_nothing_given_means_three_seeds_one_worker_and_results():
    options = parsed()
    assert (options.seeds, options.engine, options.profile) == ((1, 2, 3), "ray", "clean")
    assert (options.num_workers, options.cpus_per_worker, options.gpus_per_worker) == (1, 1, None)
    assert (options.storage, options.tracking_uri) == ("results", None)
    assert (options.tests.alpha, options.tests.margin) == (0.05, 0.01)
    assert (options.checkpoint_minutes, options.checkpoint_gib) == (1.0, 0.0)
    assert not options.dry_run and not options.smoke_test and options.init_from is None
    assert options.settings == {} and options.grids == {}


@pytest.mark.parametrize(
    ("text", "least", "most", "said"),
    [("3", 0, 3, ""), ("1-4", 1, 4, "1-4 workers"), ("2-2", 0, 2, "")],
)
def test_workers_are_a_number_or_a_range(text, least, most, said):
    options = parsed("--num-workers", text)
    assert (options.min_workers, options.num_workers, range_text(options)) == (least, most, said)
    assert options.asked.flags == {"num_workers": text}


@pytest.mark.parametrize(
    ("words", "seeds"),
    [
        (["--num-seeds", "2"], (1, 2)),
        (["--seeds", "7"], (7,)),
        (["--seeds", "3,1,2"], (3, 1, 2)),
        (["--seeds=-1,4"], (-1, 4)),
        (["--smoke-test"], (1, 2)),
        (["--smoke-test", "--num-seeds", "5"], (1, 2, 3, 4, 5)),
        (["--confirm"], ()),
        (["--confirm", "--num-seeds", "5"], ()),
        (["--confirm", "--seeds", "8,9"], (8, 9)),
    ],
)
def test_seeds_are_listed_or_counted_and_a_confirmation_takes_fresh_ones(words, seeds):
    assert parsed(*words).seeds == seeds


def test_settings_stand_before_between_and_after_flags():
    options = parsed("model.dropout=0", "--num-seeds", "1", "chunking.window=48,64", "--dry-run")
    assert options.settings == {"model.dropout": 0.0}
    assert options.grids == {"chunking.window": [48, 64]}
    assert options.seeds == (1,) and options.dry_run


@pytest.mark.parametrize("measures", ["nDCG@10,AP", "AP(rel=2)"])
def test_measures_are_one_value_and_no_grid(measures):
    options = parsed(f"evaluation.measures={measures}")
    assert options.settings == {"evaluation.measures": tuple(measures.split(","))}
    assert options.grids == {}


def test_folders_and_files_become_absolute_because_trials_run_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parsed("--collection", "woods").collection == "woods"
    (tmp_path / "woods").mkdir()
    (tmp_path / "one.run").write_text("")
    woods = str(tmp_path / "woods")
    options = parsed("--collection", "woods", "--backbone", "woods", "--init-from", "woods")
    assert [options.collection, options.backbone, options.init_from] == [woods] * 3
    words = ("collection", "model.backbone", "training.teacher", "training.init_from")
    assert set(parsed(*(f"{name}=woods" for name in words)).settings.values()) == {woods}
    options = parsed("training.negatives_from=one.run,two.run")
    assert options.settings["training.negatives_from"] == (f"{tmp_path}/one.run", "two.run")
    assert options.grids == {}, "several files are one value and no grid"
    (tmp_path / "maxp-abc-seed3").mkdir()
    told = '{"cell": "maxp-abc", "seed": 3}'
    (tmp_path / "maxp-abc-seed3" / "result.json").write_text(told)
    assert parsed("--init-from", "maxp-abc").init_from == str(tmp_path / "maxp-abc")


@pytest.mark.parametrize(
    ("words", "share"),
    [
        ([], 1.0),
        (["--gpus-per-worker", "0.25"], 0.25),
        (["--gpus-per-worker", "0"], 1.0),  # of none
        (["--num-workers", "2", "--gpus-per-worker", "1"], 1.0),
    ],
)
def test_a_worker_may_fill_the_share_of_a_gpu_that_it_reserves(words, share):
    assert parsed(*words).gpu_share == share


def test_help_shows_the_question_and_every_flag(capsys):
    with pytest.raises(SystemExit) as stop:
        parsed("--help")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "What?" in text and [flag for flag in FLAGS.values() if flag.flag not in text] == []


def test_experiments_have_a_prefix_of_the_flag_the_environment_or_ours(monkeypatch):
    assert parsed().experiment_prefix == ""
    monkeypatch.setenv("RANKSWEEP_EXPERIMENT_PREFIX", "lab")
    assert parsed().experiment_prefix == "lab"
    assert parsed("--experiment-prefix", "team/long docs").experiment_prefix == "team/long docs"


NUMBERS = [name for name, flag in FLAGS.items() if flag.kind in (int, float)]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["nan", "inf", "x", ""])
def test_a_number_is_finite(name, value):
    with pytest.raises(BadInput, match=FLAGS[name].flag):
        parsed(f"{FLAGS[name].flag}={value}")


@pytest.mark.parametrize("name", [name for name in NUMBERS if name != "search_seed"])
def test_no_number_is_negative(name):
    with pytest.raises(BadInput, match=FLAGS[name].flag):
        parsed("--search", "race", "--num-seeds=4", f"{FLAGS[name].flag}=-1")


@pytest.mark.parametrize("name", [name for name, flag in FLAGS.items() if flag.kind is not bool])
def test_a_flag_is_given_once(name):
    with pytest.raises(BadInput, match=FLAGS[name].flag):
        parsed(FLAGS[name].flag, "best", f"{FLAGS[name].flag}=best")


REFUSED = [
    "--alpha=0",
    "--alpha=1",
    "--margin=0",
    "--margin=1",
    "--num-seeds=0",
    "--num-seeds=1001",
    "--num-workers=0",
    "--num-workers=10001",
    *(f"--num-workers={text}" for text in ("4-1", "0-2", "1-", "-4", "1-10001", "1-2-3", "1,2")),
    "--cpus-per-worker=0",
    "--gpus-per-worker=2",
    "--gpus-per-worker=.5 --num-workers=2",
    "--gpus-per-worker=.5 --num-workers=1-2",
    "--max-gpu-hours=0",
    "--seeds=1,,2",
    "--seeds=1,2,1",
    "--seeds=one,two",
    "--seeds=1 --num-seeds=2",
    "--engine=rai",
    "--engine=local --num-workers=2",
    "--engine=local --num-workers=1-4",
    "--profile=cedr",
    "--interpolate=some",
    "--search=annealing",
    "--search=halving",
    "--search=asha --engine=local",
    "--search=asha --num-workers=2",
    "--search=asha --num-workers=1-2",
    "--search=race --num-seeds=2",
    "--num-configs --search=tpe",
    "--num-configs=3",
    "--num-configs=1 --search=race --num-seeds=4",
    "--num-configs=100001 --search=random",
    "--race-delta=.01",
    "--asha-eta=3",
    "--asha-eta=1 --search=asha",
    "--asha-min-epochs=2 --search=race --num-seeds=4",
    "--search-seed=2",
    "--fields=a=text",
    "chunking.window=1 chunking.window=1,2",
    "seed=3",
    "window",
    *(f"--experiment-prefix={name}" for name in ("/team", "team/", "a//b", "../x", "a'b")),
    *(f"--{name}=x --confirm" for name in ("model", "backbone", "profile", "init-from", "search")),
    "--smoke-test --confirm",
    "training.max_steps=3 --confirm",
    "chunking.window=48,64 --confirm",
    "--num-sedes=3",
]


@pytest.mark.parametrize("line", REFUSED)
def test_a_bad_command_line_is_refused_by_the_name_of_its_first_word(line):
    words = line.split()
    with pytest.raises(BadInput) as refused:
        parsed(*words)
    named = words[0].partition("=")[0]
    needed = {"--engine": "engine", "--profile": "profile", "--search": "search"}.get(named, named)
    assert needed in str(refused.value)


def test_a_tokenizer_s_folder_is_absolute_as_its_collection_s(tmp_path, monkeypatch):
    (tmp_path / "tok").mkdir()
    monkeypatch.chdir(tmp_path)
    name = "python-docs|first-stage(tokenizer=tok)"
    assert absolute_folder(name) == f"python-docs|first-stage(tokenizer={tmp_path}/tok)"


def test_a_folder_does_not_stand_in_for_the_collection_of_its_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python-docs").mkdir()
    assert absolute_folder("python-docs") == "python-docs"
    assert absolute_folder("python-docs|debias") == "python-docs|debias"
    assert capsys.readouterr().err.count("./python-docs names the folder here") == 2
    assert absolute_folder("./python-docs|debias") == f"{tmp_path}/python-docs|debias"
    assert absolute_folder("python-docs-of-mine") == "python-docs-of-mine"


@pytest.mark.parametrize(
    ("words", "law"),
    [
        ("--objective nDCG@10", "names the measure that decides, then one cost or more"),
        ("--objective tokens_per_document,nDCG@10", "names the measure that decides, then"),
        ("--objective nDCG@10,ms", "unknown cost of --objective 'ms'; .*ms_per_query"),
        ("--objective nDCG@10,peak_memory,peak_memory", "each cost once"),
        ("--at-most tokens=5", "unknown cost of --at-most 'tokens'; .*tokens_per_document"),
        ("--at-most 600", "is written COST=NUMBER"),
        ("--at-most ms_per_query=0", "must be a number above 0, got '0'"),
        ("--at-most ms_per_query=nan", "must be a number above 0, got 'nan'"),
        ("--at-most peak_memory=1,peak_memory=2", "each cost once"),
        ("--cost-weight peak_memory=-1", "must be a number above 0, got '-1'"),
        ("--search race --objective nDCG@10,peak_memory", "by the measure on dev alone"),
        ("--search asha --at-most peak_memory=5", "--at-most needs one of grid, random, tpe"),
        ("--search-from x", "--search-from needs a search that proposes"),
        ("--confirm --at-most peak_memory=5", "--confirm uses all settings"),
    ],
)
def test_goals_that_say_nothing_are_refused(words, law):
    with pytest.raises(BadInput, match=law):
        parse(words.split(), prog="window_stride.py", description="")


def test_goals_are_read_as_typed():
    words = "--objective nDCG@10,tokens_per_document --at-most peak_memory=5,ms_per_query=2.5"
    search = parse(words.split(), prog="window_stride.py", description="").search
    assert search.objectives == ("nDCG@10", "tokens_per_document")
    assert search.at_most == {"peak_memory": 5, "ms_per_query": 2.5}


@pytest.mark.parametrize("text", ["Find what answers this, briefly: ", "@@all,@@none"])
def test_a_prompt_with_commas_is_one_value_and_names_of_prompts_are_several(text):
    assert parsed(f"model.query_prompt={text}").settings == {"model.query_prompt": text}
    options = parsed("model.query_prompt=auto,@fact,", "model.document_prompt=@fact")
    assert options.grids == {"model.query_prompt": ["auto", "@fact", ""]}
    assert options.settings == {"model.document_prompt": "@fact"}
