"""What the words of a command line mean."""

from typing import Any

import pytest

from rank_core.errors import BadInput
from sweeps.plan.options import Options, parse


def parsed(*words: str) -> Options:
    return parse(words, prog="window_stride.py", description="What?")


def test_nothing_given_means_three_seeds_one_worker_and_results():
    options = parsed()
    assert options.seeds == (1, 2, 3)
    assert (options.num_workers, options.cpus_per_worker, options.gpus_per_worker) == (1, 1, None)
    assert (options.storage, options.tracking_uri) == ("results", None)
    assert not options.dry_run and not options.smoke_test
    assert options.settings == {} and options.grids == {}


@pytest.mark.parametrize(
    "words, seeds",
    [
        (["--num-seeds", "2"], (1, 2)),
        (["--seeds", "7"], (7,)),
        (["--seeds", "3,1,2"], (3, 1, 2)),
        (["--seeds=-1,4"], (-1, 4)),
        (["--smoke-test"], (1, 2)),
        (["--smoke-test", "--num-seeds", "5"], (1, 2, 3, 4, 5)),
    ],
)
def test_seeds_are_listed_or_counted_and_a_smoke_test_has_two(words, seeds):
    assert parsed(*words).seeds == seeds


def test_a_confirmation_takes_fresh_seeds_unless_some_are_given():
    assert (parsed("--confirm").seeds, parsed("--confirm").num_seeds) == ((), None)
    assert (parsed("--confirm", "--num-seeds", "5").num_seeds) == 5
    assert parsed("--confirm", "--seeds", "8,9").seeds == (8, 9)
    with pytest.raises(BadInput, match=r"--num-seeds >= 1 must hold, got 0"):
        parsed("--confirm", "--num-seeds", "0")


@pytest.mark.parametrize(
    "words",
    [
        ["--backbone", "tiny"],
        ["--model", "sump"],
        ["--smoke-test"],
        ["training.max_steps=3"],
        ["chunking.window=48,64"],
    ],
)
def test_a_confirmation_refuses_settings_of_its_own(words):
    named = words[0].partition("=")[0]
    law = "--confirm uses all settings of the finished sweep .* --storage, --seeds, .* got "
    with pytest.raises(BadInput, match=law + named):
        parsed("--confirm", *words)
    running = (
        "--storage x --engine ray --seeds 8 --num-workers 2 --cpus-per-worker 2 --gpus-per-worker 0"
    )
    assert parsed("--confirm", *running.split(), "--tracking-uri", "none", "--dry-run").confirm


def test_settings_stand_before_between_and_after_flags():
    options = parsed("model.dropout=0", "--num-seeds", "1", "chunking.window=48,64", "--dry-run")
    assert options.settings == {"model.dropout": 0.0}
    assert options.grids == {"chunking.window": [48, 64]}
    assert options.seeds == (1,) and options.dry_run


def test_several_measures_are_one_value_and_no_grid():
    options = parsed("evaluation.measures=nDCG@10,AP")
    assert options.settings == {"evaluation.measures": ("nDCG@10", "AP")} and options.grids == {}


def test_a_value_may_hold_an_equals_sign():
    assert parsed("evaluation.measures=AP(rel=2)").settings == {
        "evaluation.measures": ("AP(rel=2)",)
    }


@pytest.mark.parametrize(
    "words, value",
    [
        (("--collection", "woods"), lambda options: options.collection),
        (("--backbone", "woods"), lambda options: options.backbone),
        (("collection=woods",), lambda options: options.settings["collection"]),
        (("model.backbone=woods",), lambda options: options.settings["model.backbone"]),
    ],
)
def test_folders_become_absolute_because_trials_run_elsewhere(
    words: Any, value: Any, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert value(parsed(*words)) == "woods"
    (tmp_path / "woods").mkdir()
    assert value(parsed(*words)) == str(tmp_path / "woods")


@pytest.mark.parametrize("share", ["0", "0.25", "1", "2"])
def test_a_worker_takes_no_gpu_a_share_of_one_or_whole_ones(share):
    assert parsed("--gpus-per-worker", share).gpus_per_worker == float(share)


@pytest.mark.parametrize(
    "flag", ["--num-workers", "--num-seeds", "--seeds", "--storage", "--model", "--backbone"]
)
def test_a_flag_that_contradicts_itself_is_refused(flag):
    with pytest.raises(BadInput, match=f"a flag is given once, got {flag} twice"):
        parsed(flag, "2", f"{flag}=3")


def test_help_shows_the_question_and_every_flag(capsys):
    with pytest.raises(SystemExit) as stop:
        parsed("--help")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "What?" in text
    flags = (
        "collection backbone model seeds num-seeds storage tracking-uri alpha engine num-workers "
        "cpus-per-worker gpus-per-worker dry-run smoke-test confirm"
    )
    assert [flag for flag in flags.split() if f"--{flag}" not in text] == []


@pytest.mark.parametrize("alpha", ["0", "1", "-0.05", "nan"])
def test_alpha_is_a_share(alpha):
    with pytest.raises(BadInput, match="0 < --alpha < 1 must hold"):
        parsed("--alpha", alpha)


def test_ray_runs_the_trials_unless_the_local_engine_is_asked_for():
    assert (parsed().engine, parsed("--engine", "local").engine) == ("ray", "local")
    with pytest.raises(BadInput, match="--engine ray starts several workers"):
        parsed("--engine", "local", "--num-workers", "2")
    with pytest.raises(BadInput, match="unknown engine 'rai'; did you mean ray"):
        parsed("--engine", "rai")


def test_alpha_is_five_per_cent_unless_said():
    assert (parsed().alpha, parsed("--alpha", ".01").alpha) == (0.05, 0.01)


def test_files_become_absolute_because_trials_run_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.run").write_text("")
    (tmp_path / "trial").mkdir()
    options = parsed("training.negatives_from=one.run,two.run", "training.teacher=one.run")
    assert options.grids == {}, "several files are one value and no grid"
    assert options.settings["training.negatives_from"] == (f"{tmp_path}/one.run", "two.run")
    assert options.settings["training.teacher"] == str(tmp_path / "one.run")
    assert parsed("--init-from", "trial").init_from == str(tmp_path / "trial")
    assert parsed("training.init_from=trial").settings["training.init_from"].startswith("/")
    assert parsed().init_from is None
    (tmp_path / "maxp-abc-seed3").mkdir()
    told = '{"cell": "maxp-abc", "seed": 3}'
    (tmp_path / "maxp-abc-seed3" / "result.json").write_text(told)
    assert parsed("--init-from", "maxp-abc").init_from == str(tmp_path / "maxp-abc")


def test_a_profile_is_a_known_one_and_clean_unless_said():
    assert (parsed().profile, parsed("--profile", "cedr2019").profile) == ("clean", "cedr2019")
    with pytest.raises(BadInput, match="unknown profile 'cedr'; did you mean cedr2019"):
        parsed("--profile", "cedr")


@pytest.mark.parametrize("flag", ["--profile", "--init-from"])
def test_a_confirmation_takes_neither_a_profile_nor_weights(flag):
    with pytest.raises(BadInput, match=f"--confirm uses all .* got {flag}"):
        parsed("--confirm", flag, "cedr2019")


def test_checkpoints_come_every_minute_unless_it_is_said_otherwise():
    assert (parsed().checkpoint_minutes, parsed().checkpoint_gib) == (1.0, 0.0)
    options = parsed("--checkpoint-minutes", "0", "--checkpoint-gib", "2.5")
    assert (options.checkpoint_minutes, options.checkpoint_gib) == (0.0, 2.5)


@pytest.mark.parametrize("value", ["-1", "nan", "inf"])
@pytest.mark.parametrize("flag", ["--checkpoint-minutes", "--checkpoint-gib", "--weights-gib"])
def test_a_cadence_is_a_number_of_minutes_and_a_quota_one_of_gibibytes(flag, value):
    with pytest.raises(BadInput, match=f"{flag} >= 0 must hold, got"):
        parsed(f"{flag}={value}")


@pytest.mark.parametrize(
    ("words", "share"),
    [
        ([], 1.0),
        (["--gpus-per-worker", "0.25"], 0.25),
        (["--gpus-per-worker", "2"], 1.0),
        (["--gpus-per-worker", "0"], 1.0),  # of none
    ],
)
def test_a_worker_may_fill_the_share_of_a_gpu_that_it_reserves(words, share):
    assert parsed(*words).gpu_share == share


def test_experiments_have_a_prefix_of_the_flag_the_environment_or_ours(monkeypatch):
    assert parsed().experiment_prefix == "rank"
    monkeypatch.setenv("RANKSWEEP_EXPERIMENT_PREFIX", "lab")
    assert parsed().experiment_prefix == "lab"
    assert parsed("--experiment-prefix", "team/long docs").experiment_prefix == "team/long docs"
    assert parsed("--confirm", "--experiment-prefix", "team").experiment_prefix == "team"
    for wrong in ("", "/team", "team/", "a//b", "../x", "a'b"):
        with pytest.raises(BadInput, match="--experiment-prefix must be letters"):
            parsed("--experiment-prefix", wrong)


def test_names_of_fields_need_a_collection_beside_them():
    with pytest.raises(BadInput, match=r'in a file write collection = "DIR\|fields\(THEIRS=OURS'):
        parse(["--fields", "a=text"], prog="x.py", description="")
