"""Secrets in what a failing trial says, and in what a user writes on the command line."""

import pytest

from sweeps.driver.command import main
from sweeps.engine.trial_task import End
from sweeps.store.trial_status import TrialStatus
from sweeps.window_stride import EXPERIMENT
from tests.sweeps.conftest import follow

REASON = "OSError: 403 for https://me:planted-one@host/x with key planted-two-in-the-environment"


def test_the_reason_of_a_failure_is_kept_without_its_secrets(
    records, plan_of, tmp_path, monkeypatch
):
    monkeypatch.setenv("SERVICE_API_KEY", "planted-two-in-the-environment")
    drive = follow(records, plan_of("chunking.window=48", "chunking.stride=32", "--num-seeds", "1"))
    first, second = drive.search.ahead
    for trial in (first, first, second):
        drive.started(trial)
        if trial is second:
            drive.ended(second, End(TrialStatus.DIVERGED, reason=REASON))
        else:
            end = End(TrialStatus.FAILED, reason=REASON, traceback=f"T\n{REASON}")
            drive.ended(first, end, again=False)
    texts = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    texts.append(drive.screen.out.getvalue().encode())
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
    assert "must hold no secrets" in message and "[redacted]" in message
    assert "planted" not in message and list(tmp_path.iterdir()) == []
