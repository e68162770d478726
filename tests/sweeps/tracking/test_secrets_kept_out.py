"""Secrets in what a failing trial says, and in what a user writes on the command line."""

import pytest

from rank_core.errors import BadInput
from sweeps.commands.mlflow_commands import sync
from sweeps.engine.trial_task import End
from sweeps.launch.command import main, refuse_secrets
from sweeps.store.sweep_file import Cell, read_sweep_file, update_sweep_file
from sweeps.store.trial_status import TrialStatus
from sweeps.window_stride import EXPERIMENT
from tests.sweeps.conftest import follow
from tests.sweeps.tracking.made_sweep import MadeSweep

REASON = "OSError: 403 for https://me:planted-one@host/x with key planted-two-in-the-environment"


def test_the_reason_of_a_failure_is_kept_without_its_secrets(
    records, plan_of, tmp_path, monkeypatch
):
    monkeypatch.setenv("SERVICE_API_KEY", "planted-two-in-the-environment")
    events = follow(
        records, plan_of("chunking.window=48", "chunking.stride=32", "--num-seeds", "1")
    )
    first, second = events.search.ahead
    for trial in (first, first, second):
        events.started(trial)
        if trial is second:
            events.ended(second, End(TrialStatus.DIVERGED, reason=REASON))
        else:
            end = End(TrialStatus.FAILED, reason=REASON, traceback=f"T\n{REASON}")
            events.ended(first, end, again=False)
    texts = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    texts.append(events.screen.out.getvalue().encode())
    unbroken = [b" ".join(text.split()) for text in texts]  # as before lines had a width
    assert sum(b"403 for https://[redacted]@host" in text for text in unbroken) >= 3
    assert [text for text in texts if b"planted" in text] == []


@pytest.mark.parametrize(
    "words",
    [
        ["chat.base_url=https://me:planted@host/v1"],
        ["chat.base_url=http://a/v1,https://me:planted@host/v1"],
        ["--storage", "https://host/bucket?token=planted"],
        ["--storage", "s3://planted-id:planted-key@bucket/rank", "--confirm"],
        ["--collection", "https://planted@host/collection"],
    ],
)
def test_a_secret_on_the_command_line_is_refused_before_anything_is_written(
    words, inputs_words, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    inputs = [] if {"--collection", "--confirm"} & set(words) else inputs_words
    assert main(EXPERIMENT, [*inputs, *words], doc=None) == 2
    message = capsys.readouterr().err
    assert "must not contain secrets" in message and "[redacted]" in message
    assert "planted" not in message and list(tmp_path.iterdir()) == []


def test_a_secret_in_a_setting_is_refused_without_showing_it():
    refuse_secrets({"collection": "woods", "chat.base_url": "http://127.0.0.1:8000/v1"})
    with pytest.raises(BadInput, match=r"chat\.base_url") as refused:
        refuse_secrets({"chat.base_url": "https://me:hunter2@host/v1"})
    assert "hunter2" not in str(refused.value)


def test_no_text_of_a_sweeps_description_is_written_with_a_secret(monkeypatch, tmp_path):
    monkeypatch.setenv("SERVICE_API_KEY", "planted-in-the-environment")
    address = "https://me:planted@host/x"
    texts = {
        "command": f"ranksweep run a --hf-token planted --tracking-uri {address}",
        "directory": "/data/planted-in-the-environment/x",
        "tracking_uri": address,
        "stopped": f"by an error: OSError: {address}",
        "tags": {"mlflow.source.name": f"{address}.py", "access_token": "planted"},
    }
    cell = Cell("c1", config={"chat.base_url": address, "my_token": "planted"})
    sweep = MadeSweep(tmp_path, cells=(cell,), **texts)
    update_sweep_file(sweep.records, stopped=texts["stopped"])
    content = sweep.records.read_file("sweep.json")
    assert b"planted" not in content and content.count(b"[redacted]") == 10
    assert read_sweep_file(sweep.records).cells[0].config["my_token"] == "[redacted]"


def test_the_place_that_runs_were_sent_to_is_printed_without_its_password(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("sweeps.commands.mlflow_commands.send", lambda *given: 2)
    sweep, uri = MadeSweep(tmp_path), "postgresql://me:planted@db/mlflow"
    assert sync([sweep.records.uri, "--tracking-uri", uri]) == 0
    assert capsys.readouterr().out == "2 runs sent to postgresql://[redacted]@db/mlflow\n"


def test_a_line_of_a_reason_has_no_part_of_a_secret_of_several_lines(records, plan_of, monkeypatch):
    monkeypatch.setenv("TLS_PRIVATE_KEY", "planted-first\nplanted-second")
    events = follow(
        records, plan_of("chunking.window=48", "chunking.stride=32", "--num-seeds", "1")
    )
    trial = events.search.ahead[0]
    events.started(trial)
    events.ended(trial, End(TrialStatus.DIVERGED, reason="loss planted-first\nplanted-second"))
    assert "planted" not in events.screen.out.getvalue()
    assert records.state(trial.name).reason == "loss [redacted]"
