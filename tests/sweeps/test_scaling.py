"""Speed-up over workers: the arithmetic by hand, the law that is checked, and a run on two."""

import json
import math
import os
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import ray
from mlflow import MlflowClient

from rank_core.secrets import REDACTED
from rank_core.settings.config import NO_PART_OF_A_CELL
from sweeps import scaling
from sweeps.launch import sweep as launch
from sweeps.ray_engine.cluster import Resources
from sweeps.ray_engine.timing import Timing
from sweeps.ray_engine.train_group import GroupFailed, Timed, parts_of_steps, timed_marks
from sweeps.speedup.kept import Kept, identity
from sweeps.speedup.report import (
    RATIOS,
    advice,
    mixed_devices,
    scaling_plot,
    scaling_rows,
    tables,
    tables_text,
)
from sweeps.store.inventory import take_inventory
from sweeps.store.lock import only_driver
from sweeps.store.records import Records
from sweeps.store.storage import Storage
from sweeps.tracking.cleaning import leftovers
from sweeps.tracking.client import mlflow_uri
from sweeps.tracking.group_runs import GroupRuns
from sweeps.tracking.thread import MlflowThread
from tests.rank_core.settings.test_config import changed
from tests.s3_server import s3_bucket

ONE = Timing(1, (1.0, 0.5), (2.0, 1.0, 4.0), (100.0, 90.0, 300.0))
FOUR = Timing(4, (1.0, 0.50009), (5.0, 7.0, 1.0), (400.0, 500.0, 300.0))
OTHER = replace(FOUR, losses=(1.0, 0.5002))


def test_rates_are_medians_and_efficiency_is_a_share_of_the_ideal():
    one, four = scaling_rows([ONE, FOUR]).itertuples()
    assert (one.steps_per_second, one.documents_per_second) == pytest.approx((2, 100))
    assert (one.training_speedup, one.training_efficiency, one.loss_difference) == (1, 1, 0)
    found = (four.num_workers, four.steps_per_second, four.documents_per_second)
    assert found == pytest.approx((4, 5, 400))
    assert (four.training_speedup, four.training_efficiency) == pytest.approx((2.5, 0.625))
    assert (four.validation_speedup, four.validation_efficiency) == pytest.approx((4, 1))
    assert four.loss_difference == pytest.approx(9e-5)


def test_intervals_are_over_processes():
    """By hand: logarithms 0 and ln 4 of one worker, ln 8 and ln 32 of four: means ln 2 and ln 16,
    each of variance (ln 4)^2 / 2, so that the standard error is ln 4 / sqrt 2, on two degrees of
    freedom."""
    of = [(1, 1.0), (1, 4.0), (4, 8.0), (4, 32.0)]
    one, four = scaling_rows([Timing(n, (1.0,), (x,), (x,)) for n, x in of]).itertuples()
    assert four.training_speedup == pytest.approx(8) and math.isnan(one.training_low)
    half = 4.302653 * math.log(4) / math.sqrt(2)
    assert math.log(four.training_high / 8) == pytest.approx(half, rel=1e-6)
    assert math.log(four.validation_low / 8) == pytest.approx(-half, rel=1e-6)
    assert (four.processes, one.processes) == (2, 2)


def test_a_step_is_split_by_when_each_worker_begins_to_add_up():
    """Two workers, two steps: each sum ends for both at once, so that the one that begins it last
    has the time of the sum itself, and what the other one has more is waiting."""
    first = [(0.1, 1.0, 0.5), (0.3, 1.0, 0.1)]
    second = [(0.0, 1.4, 0.2), (0.0, 1.0, 0.4)]
    data, compute, all_reduce, waiting = parts_of_steps([first, second])
    assert (data, compute) == pytest.approx((0.1, 1.1))
    assert (all_reduce, waiting) == pytest.approx((0.15, 0.15))
    assert parts_of_steps([[], []]) == () and parts_of_steps([first])[3] == 0


HALVES = {"precision": "bfloat16", "operations": lambda row: 1e6 * row}


def h100s(number, **changes):
    parts = (0.1, 0.6, 0.1, 0.2)
    own = Timing(
        *(number, (1.0,), (float(number),), (1.0,)),
        devices=("NVIDIA H100 80GB HBM3",) * number,
        tokens_per_second=(2e6 * number,),
        **{"learned": 0.5, "row": 10.0, "parts": parts, "batch_size": 4},
    )
    return replace(own, **changes)


def test_the_share_of_a_gpus_rate_is_left_out_where_it_is_not_known():
    """By hand: 2 M tokens/s a GPU, 10 M operations each, of which half have a backward pass of
    twice as many: 4e13 of the 989e12 of an H100."""
    one, two = scaling_rows([h100s(1), h100s(2)], **HALVES).itertuples()
    assert (one.mfu, two.mfu) == pytest.approx((4e13 / 989e12,) * 2)
    assert two.tokens_per_second == pytest.approx(4e6)
    for unknown in ({**HALVES, "precision": "float32"}, {**HALVES, "operations": None}):
        assert math.isnan(scaling_rows([h100s(1)], **unknown)["mfu"][0])
    other = h100s(1, devices=("NVIDIA L40S",))
    assert math.isnan(scaling_rows([other], **HALVES)["mfu"][0])
    mixed = h100s(2, devices=("NVIDIA H100 PCIe", "NVIDIA A100-SXM4-80GB"))
    assert math.isnan(scaling_rows([h100s(1), mixed], **HALVES)["mfu"][1])


def test_the_second_table_has_the_parts_of_a_step_and_weak_scaling():
    weak = [h100s(2, steps_per_second=(rate,), batch_size=8) for rate in (0.81, 1.0)]
    rows = scaling_rows([h100s(1), h100s(1), h100s(2), h100s(2)], weak=weak, **HALVES)
    heading, _, one, two = (line.split() for line in tables_text(rows).splitlines()[-4:])
    assert heading[-4:] == ["all-reduce", "waiting", "weak", "scaling"]
    assert one[:4] == ["1", "2,000,000", "4%", "1,000"] and one[5:9] == ["10%", "60%", "10%", "20%"]
    assert (one[-1], two[9]) == ("—", "90%")
    assert 0 < rows["weak_low"][1] < 0.9 < rows["weak_high"][1]
    assert len(tables(rows)) == 2 and len(tables(scaling_rows([ONE, FOUR]))) == 1


def test_the_hours_are_those_of_all_devices():
    """By hand: 1 h and 3 h of one core, 2 h of four; where one is not known, none is."""
    hours = [(1, 1.0, 1.0), (1, 3.0, 1.0), (4, 2.0, 4.0)]
    timings = [
        Timing(n, (1.0,), (1.0,), (1.0,), seconds=3600 * h, cores=cores, parts=(1.0, 1.0, 1.0, 1.0))
        for n, h, cores in hours
    ]
    rows = scaling_rows(timings)
    assert [*rows["core_hours"]] == [2, 8] and rows["gpu_hours"].isna().all()
    assert "core-hours" in tables_text(rows) and "GPU-hours" not in tables_text(rows)
    assert math.isnan(scaling_rows([*timings, replace(FOUR, losses=(1.0,))])["core_hours"][1])


def test_the_epoch_that_waits_for_each_part_counts_for_nothing_on_a_gpu():
    marks = [(5, 1.0, 1.0, 50), (10, 2.0, 2.0, 100), (15, 9.0, 3.0, 150)]
    assert timed_marks(marks, waits=True) == marks[:2]
    assert timed_marks(marks, waits=False) == marks
    assert timed_marks(marks[:2], waits=True) == marks[:2]  # no other one is timed


@pytest.mark.parametrize(
    ("repeats", "words"),
    [([1, 1], "1 repeat for each"), ([3, 3], "3 repeats for each"), ([3, 1], "1-3 repeats for")],
)
def test_the_page_says_what_was_measured(repeats, words, pretended, tmp_path):
    ends = {1: repeats[0], 2: repeats[1]}

    def timed(config, resources):
        n = resources.num_workers
        ends[n] -= 1
        if ends[n] < 0:
            raise GroupFailed("node lost")
        rate = 1.0 + 0.1 * ends[n]
        timing = Timing(n, (1.0,), (rate,), (rate,), num_steps=25)
        return Timed(timing, "float32", {})

    pretended({}, "--num-workers", "1,2", "--repeats", str(repeats[0]), then=timed)
    page = (tmp_path / "scaling" / "scaling.html").read_text()
    assert words in page
    assert "of the measured training: 25 steps with the validations" in page


def test_weak_scaling_is_measured_beside_the_same_batch(pretended):
    batches = []

    def timed(config, resources):
        n, batch = resources.num_workers, config.training.batch_size
        batches.append((n, batch))
        losses = (1.0 / batch,)  # another batch has other losses
        return Timed(h100s(n, losses=losses, batch_size=batch), "float32", {})

    words = ("--num-workers", "1,2,4", "training.batch_size=4", "--weak")
    code, rows = pretended({}, *words, then=timed)
    assert code == 0 and batches == [(1, 4), (2, 4), (4, 4), (2, 8), (4, 16)]
    assert [row["weak_efficiency"] for row in rows] == [None, 2.0, 4.0]
    pretended({}, *words, then=timed)
    assert len(batches) == 5  # all are kept


@pytest.mark.parametrize("kinds", [("A100",), ("A100", "A100"), ("H100", "A100")])
def test_workers_on_unlike_devices_are_named(kinds):
    timings = [Timing(n, (1.0,), (1.0,), (1.0,), devices=kinds[:n]) for n in (1, 2)]
    told = mixed_devices(scaling_rows(timings))
    assert told == "" if len({*kinds}) == 1 else "A100 and H100: the speed-ups mix" in told


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        (((1.0, 1.01), (0.9, 0.91)), "one worker a trial"),
        (((1.0, 1.01), (1.6, 1.61)), "2 workers for a single"),
        (((1.0, 1.01), (1.6,)), "nothing to advise: an interval"),
        (((1.0,), (0.9,)), "nothing to advise: an interval"),
        (((1.0, 1.01), (1.1, 1.11), (9.0,)), "2 workers for a single"),
        (((1.0, 1.01),), "one worker alone"),
    ],
)
def test_the_advice_is_the_fastest_number_of_workers_with_an_interval(rates, words):
    timings = [
        Timing(n, (1.0,), (rate,), (1.0,)) for n, own in enumerate(rates, start=1) for rate in own
    ]
    assert advice(scaling_rows(timings)).startswith(words)


def test_a_speed_up_within_the_scatter_of_processes_is_no_advice():
    of = [(1, 1.0), (1, 4.0), (2, 2.1), (2, 2.2)]
    rows = scaling_rows([Timing(n, (1.0,), (x,), (x,)) for n, x in of])
    assert rows["training_low"][1] < 1 < rows["training_speedup"][1]
    assert advice(rows).startswith("one worker a trial: more are not shown to be faster")


def test_the_plot_has_the_speed_ups_of_the_table():
    """Whose rates are means over processes, and not the median of all epochs."""
    of = [(1, (1.0, 1.0, 2.0)), (1, (4.0,)), (2, (3.0,)), (2, (12.0, 13.0, 12.5))]
    timings = [Timing(n, (1.0,), rates, rates) for n, rates in of]
    rows = scaling_rows(timings)
    _, training, *_ = scaling_plot(timings, rows).figure.axes[0].lines
    assert list(training.get_ydata()) == pytest.approx([1, (3 * 12.5) ** 0.5 / 2])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num-workers", "1,x"], "--num-workers"),
        (["--num-workers", "2,4"], "--num-workers"),
        (["--num-workers", "0,1"], "--num-workers"),
        (["--num-workers", "1,32"], "training.batch_size=16"),
        (["--gpus-per-worker", ".5"], "GPU"),
        (["--num-workers", "1,2", "--gpus-per-worker", ".5"], "GPU"),
        (["--gpus-per-worker", "2"], "--gpus-per-worker"),
        (["--seeds", "1,2"], "--seeds"),
        (["--repeats", "0"], "--repeats"),
        (["--repeats", "two"], "--repeats"),
        (["--model", "bm25"], "bm25"),
        (["training.num_epochs=1"], "num_epochs"),
        (["training.epoch_steps=0"], "training.epoch_steps"),
        (["training.lr=1"], "training.lr"),
        (["--engine", "local"], "--engine"),
    ],
)
def test_wrong_input_is_one_message_and_starts_nothing(
    words, message, collection_folder, backbone_folder, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scaling, "connected", lambda *_: pytest.fail("Ray was started"))
    inputs = ["--collection", str(collection_folder), "--backbone", str(backbone_folder)]
    assert scaling.main([*inputs, *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("error: ") and len(error.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def pretended(collection_folder, backbone_folder, tmp_path, monkeypatch):
    """The command where `timings` stands for Ray: what groups find by their number of workers."""

    def run(
        timings, *words, precision="float32", storage=str(tmp_path), then=None, collection=None
    ):
        def timed(config, resources):
            if resources.num_workers not in timings:
                raise GroupFailed("rank 1: out of memory")
            return Timed(timings[resources.num_workers], precision, {})

        def resources(options):
            return Resources(options.num_workers, cpus=1, gpus=0, threads=1, slots=1)

        monkeypatch.setattr(scaling, "connected", lambda num_workers, code: nullcontext())
        monkeypatch.setattr(scaling, "trial_resources", resources)
        monkeypatch.setattr(scaling, "timed", then or timed)
        collection = collection or collection_folder
        inputs = ["--collection", str(collection), "--backbone", str(backbone_folder)]
        words = [*words, *([] if "--tracking-uri" in words else ["--tracking-uri", "none"])]
        words = [*words, *([] if "--repeats" in words else ["--repeats", "1"])]
        code = scaling.main([*inputs, "--storage", storage, *words])
        content = Storage(storage).read("scaling/scaling.json")
        return code, json.loads(content)["rows"] if content else []

    return run


@pytest.mark.parametrize(
    ("timings", "words", "precision", "code", "written"),
    [
        ({1: ONE, 4: FOUR}, [], "float32", 0, [1, 4]),
        ({1: ONE, 4: OTHER}, [], "float32", 3, [1, 4]),
        ({1: ONE, 4: OTHER}, [], "bfloat16", 0, [1, 4]),
        ({1: ONE, 4: OTHER}, ["model.dropout=0.1"], "float32", 0, [1, 4]),
        ({1: ONE}, [], "float32", 3, [1]),
        ({4: FOUR}, [], "float32", 3, []),
    ],
)
def test_what_was_found_is_written_and_the_exit_code_tells_the_rest(
    pretended, capsys, timings, words, precision, code, written
):
    found, rows = pretended(timings, "--num-workers", "4,1", *words, precision=precision)
    assert found == code
    assert [row["num_workers"] for row in rows] == written
    said = capsys.readouterr().out
    assert ("out of memory" in said) == (len(timings) == 1)
    whole = len(timings) == 2
    assert ("equal those of one worker" in said) == (whole and timings[4] is FOUR)
    assert ("DIFFER" in said) == (whole and code == 3)
    assert max(len(line) for line in said.splitlines() if "/" not in line) <= 100


def test_a_group_that_failed_is_on_the_page_with_its_reason(pretended, tmp_path):
    assert pretended({1: ONE}, "--num-workers", "1,4", "--repeats", "2")[0] == 3
    page = (tmp_path / "scaling" / "scaling.html").read_text()
    assert "Failed: 4 workers (rank 1: out of memory)." in page
    assert "One worker alone: nothing to advise." in page and "not faster" not in page
    [failed] = json.loads((tmp_path / "scaling" / "scaling.json").read_text())["failed"]
    about = {"num_workers": 4, "batch_size": 16, "repeat": 1}
    assert failed == {**about, "reason": "rank 1: out of memory"}


def test_an_interrupted_command_goes_on_with_the_groups_that_are_missing(
    pretended, tmp_path, capsys
):
    measured = []

    def interrupted_at(number):
        def timed(config, resources):
            if len(measured) == number:
                raise KeyboardInterrupt
            measured.append(resources.num_workers)
            timing = Timing(
                resources.num_workers, (1.0,), (len(measured),), (1.0,), ("a",), ("A100",)
            )
            return Timed(timing, "float32", {"torch": "2"})

        return timed

    words = ("--num-workers", "1,2", "--repeats", "2")
    assert pretended({}, *words, then=interrupted_at(3))[0] == 130
    assert "what each group measured is kept" in capsys.readouterr().err
    code, rows = pretended({}, *words, then=interrupted_at(9))
    assert code == 0 and measured == [1, 2, 1, 2]
    assert [row["processes"] for row in rows] == [2, 2] and rows[0]["devices"] == "A100"
    page = (tmp_path / "scaling" / "scaling.html").read_text()
    assert "One worker a trial" in page and "Losses: equal those of one worker" in page
    said = capsys.readouterr().out
    assert said.count("by an earlier command") == 3 and said.count("running ") == 1
    damaged, other, *_ = sorted((tmp_path / "scaling" / "groups").iterdir())
    damaged.write_text(damaged.read_text()[:-20])
    other.write_text("{}")
    pretended({}, *words, then=interrupted_at(9))
    assert len(measured) == 6  # both again
    del measured[4:]
    pretended({}, *words, "training.batch_size=8", then=interrupted_at(9))
    assert measured == [1, 2, 1, 2] * 2  # another setting is measured anew
    del measured[4:]
    pretended({}, *words, "evaluation.batch_tokens=2000", then=interrupted_at(9))
    assert measured == [1, 2, 1, 2] * 2  # also one that changes the speed alone
    pretended({}, "--num-workers", "1,2", "--repeats", "3", then=interrupted_at(10))
    assert measured == [1, 2, 1, 2] * 2 + [1, 2]


@pytest.mark.parametrize("setting", ["seed", *NO_PART_OF_A_CELL])
def test_a_setting_outside_the_name_of_a_cell_is_another_measurement(setting, tmp_path):
    """Such as the tokens of a micro-batch: they change no result, and the speed."""
    records = Records(Storage(str(tmp_path)), "scaling")
    configs = changed(setting)
    names = {Kept(records, identity("cell", config, {})).name({}, 1) for config in configs}
    assert len(names) == 2


def runs_of(uri, sweep="scaling"):
    """{name: run} of the experiment of a storage."""
    client = MlflowClient(mlflow_uri(uri))
    [experiment] = [one for one in client.search_experiments() if one.name == sweep]
    return {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}


def of_two(config, resources):
    n, batch = resources.num_workers, config.training.batch_size
    own = h100s(n, losses=(1.0 / batch,), steps_per_second=(1.5 if n > 1 else 1.0,))
    return Timed(replace(own, batch_size=batch), "float32", {"torch": "2"})


def test_each_group_is_a_run_of_mlflow_and_none_is_sent_twice(
    pretended, tmp_path, monkeypatch, capsys, collection_folder
):
    """The first command's server is away, which costs its measurement nothing; the second one
    measures nothing and sends all; a third one sends nothing."""
    monkeypatch.setattr(launch, "DRAIN_SECONDS", 0.5)
    monkeypatch.setenv("COLLECTION_TOKEN", "/".join(collection_folder.parts[-2:]))
    words = ("--num-workers", "1,2", "--weak", "training.batch_size=4", "--tracking-uri")
    assert pretended({}, *words, "http://me:hidden@127.0.0.1:9", then=of_two)[0] == 0
    text = capsys.readouterr()
    assert "MLflow is missing 3 measurements" in text.out and "The same command" in text.out
    assert "hidden" not in text.out + text.err
    monkeypatch.setattr(launch, "DRAIN_SECONDS", 60)
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert pretended({}, *words, uri)[0] == 0
    runs = runs_of(uri)
    label = next(iter(runs.values())).data.tags["config"].rpartition(",")[0] if runs else ""
    names = {f"{label}, {n} #1" for n in ("1 worker", "2 workers")}
    weak = f"{label}, 2 workers with 8 groups a step #1"
    assert {*runs} == {*names, weak, "report"}
    two = runs[f"{label}, 2 workers #1"]
    assert two.data.params.items() >= {("num_workers", "2"), ("training.batch_size", "4")}
    assert REDACTED in two.data.params["collection"] and two.data.tags["version.torch"] == "2"
    metrics = two.data.metrics
    assert metrics["training_speedup"] == 1.5 and metrics["training_efficiency"] == 0.75
    assert metrics["tokens_per_second"] == pytest.approx(4e6) and metrics["compute_seconds"] == 0.6
    assert "training_low" not in metrics and "weak_efficiency" not in metrics
    assert runs[weak].data.metrics["weak_efficiency"] == 1.5
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert leftovers(Storage(str(tmp_path))) == []  # runs that no trial has lost
    ended = {name: run.info.end_time for name, run in runs.items()}
    assert pretended({}, *words, uri)[0] == 0
    assert {name: run.info.end_time for name, run in runs_of(uri).items()} == ended


def test_a_run_has_one_value_of_each_metric_and_keeps_its_params(
    pretended, tmp_path, collection_folder
):
    """The group of one worker fails in the second repeat, so that there is no speed-up beside it;
    a second command measures it, and a third one reads the collection from another folder."""
    uri, calls = f"sqlite:///{tmp_path / 'mlflow.db'}", []

    def timed(config, resources):
        calls.append(resources.num_workers)
        if len(calls) == 3:
            raise GroupFailed("node lost")
        found = of_two(config, resources)
        rate = (2.0 if len(calls) < 3 else 1.0) * found.timing.steps_per_second[0]
        return replace(found, timing=replace(found.timing, steps_per_second=(rate,)))

    def sent():
        runs = {name.rpartition(", ")[2]: run for name, run in runs_of(uri).items()}
        history = MlflowClient(mlflow_uri(uri)).get_metric_history
        two = runs["2 workers #2"]
        assert two.info.status == "FINISHED"
        values = {
            name: [p.value for p in history(two.info.run_id, name)] for name in two.data.metrics
        }
        return values, two.data.params["collection"], two.info.end_time

    words = ("--num-workers", "1,2", "--repeats", "2", "--tracking-uri", uri)
    assert pretended({}, *words, then=timed)[0] == 3 and calls == [1, 2, 1, 2]
    values = sent()[0]
    assert values["steps_per_second"] == [1.5]
    assert not values.keys() & {*RATIOS, "weak_efficiency"}
    assert pretended({}, *words, then=timed)[0] == 0 and calls == [1, 2, 1, 2, 1]
    second = sent()
    assert second[0]["training_speedup"] == [1.5] and {*map(len, second[0].values())} == {1}
    moved = tmp_path / "moved"
    shutil.copytree(collection_folder, moved)
    assert pretended({}, *words, collection=moved, then=timed)[0] == 0
    assert len(calls) == 5 and sent() == second


def test_a_report_of_an_earlier_command_is_sent_without_secrets(tmp_path, monkeypatch):
    """Which was written before the variable was set, and is there while the next one measures."""
    monkeypatch.setenv("COLLECTION_TOKEN", "hunter2hunter2")
    records = Records(Storage(str(tmp_path)), "scaling")
    records.write_file("scaling.json", b'{"settings": {"collection": "/hunter2hunter2/c"}}')
    records.write_file("scaling.png", b"\x89PNG")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    thread = MlflowThread(records, uri, "scaling", GroupRuns)
    thread.start()
    assert thread.close() == ""
    folder = Path(urlsplit(runs_of(uri)["report"].info.artifact_uri).path, "report")
    sent = json.loads((folder / "scaling.json").read_text())
    assert sent == {"settings": {"collection": f"/{REDACTED}/c"}}
    assert (folder / "scaling.png").read_bytes() == b"\x89PNG"


def test_two_commands_do_not_measure_the_same_at_once(pretended, tmp_path, capsys):
    (tmp_path / "trials" / "orphan-seed1").mkdir(parents=True)
    (tmp_path / "trials" / "orphan-seed1" / "result.json").write_text("{}")
    storage = Storage(str(tmp_path))
    with only_driver(Records(storage, "scaling")):
        inventory = take_inventory(storage)
        inventory.check_removable()  # a measurement uses no trial
        assert inventory.sweeps == () and len(inventory.orphans) == 1
        assert inventory.others["scaling"] > 0
        assert pretended({1: ONE, 4: FOUR}, "--num-workers", "1,4") == (2, [])
    assert "is driven by" in capsys.readouterr().err
    assert pretended({1: ONE, 4: FOUR}, "--num-workers", "1,4")[0] == 0
    assert not (tmp_path / "scaling" / "driver.json").exists()


def test_the_page_says_where_the_workers_were(pretended, tmp_path):
    four = replace(FOUR, nodes=("gpu-a", "gpu-a", "gpu-b", "gpu-b"), devices=("<H100>",) * 4)
    assert pretended({1: ONE, 4: four}, "--num-workers", "1,4")[0] == 0
    page = (tmp_path / "scaling" / "scaling.html").read_text()
    assert "2 on gpu-a, 2 on gpu-b" in page
    assert "&lt;H100&gt;" in page and "<H100>" not in page


def test_without_a_number_as_many_workers_as_fit_and_have_a_group(pretended, capsys):
    one = Timing(1, (1.0,), (1.0,), (1.0,))
    timings = {n: replace(one, num_workers=n) for n in (1, 2, 4, 8)}
    code, rows = pretended(timings, "training.batch_size=6")
    assert code == 0 and [row["num_workers"] for row in rows] == [1, 2, 4]


@pytest.mark.slow
def test_the_files_are_written_into_a_remote_storage(pretended, tmp_path, monkeypatch):
    pytest.importorskip("s3fs", minversion="2026.1")
    pytest.importorskip("moto")
    monkeypatch.chdir(tmp_path)
    with s3_bucket():
        code, rows = pretended({1: ONE, 4: FOUR}, "--num-workers", "1,4", storage="s3://bucket/x")
        assert code == 0 and [row["num_workers"] for row in rows] == [1, 4]
        assert Storage("s3://bucket/x").read("scaling/scaling.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two workers need two cores")
def test_two_workers_train_like_one_and_the_files_say_how_fast(run_script, tmp_path):
    done = run_script(
        scaling.__file__, "--smoke-test", "--num-workers", "1,2", "training.max_steps=0"
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "equal those of one worker" in done.stdout
    content = json.loads((tmp_path / "results" / "scaling" / "scaling.json").read_text())
    one, two = content["timings"]
    assert (one["num_workers"], two["num_workers"]) == (1, 2)
    assert len(one["losses"]) == 2 and len(set(one["losses"])) == 2
    assert two["losses"] == pytest.approx(one["losses"], abs=1e-4)
    for timing in (one, two):
        assert len(timing["steps_per_second"]) == 1 and timing["steps_per_second"][0] > 0
        assert len(timing["documents_per_second"]) == 1
        assert len(timing["parts"]) == 4 and sum(timing["parts"]) > 0
        assert timing["tokens_per_second"][0] > 0 and 0 < timing["learned"] <= 1
    assert one["parts"][3] == 0 and "all-reduce" in done.stdout
    assert content["precision"] == "float32"


def test_what_the_cluster_cannot_hold_is_refused(inputs_words, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scaling, "connected", lambda num_workers, code: nullcontext())
    node = {"Alive": True, "NodeID": "a", "Resources": {"CPU": 2.0}}
    monkeypatch.setattr(ray, "nodes", lambda: [node])
    out = ("--storage", str(tmp_path / "results"))
    words = ("--num-workers", "1,3", "training.batch_size=512", *out)
    assert scaling.main([*inputs_words, *words]) == 2
    told = capsys.readouterr().err
    assert "the cluster has 2 CPU" in told and "--num-workers" in told
    assert not (tmp_path / "results").exists()
