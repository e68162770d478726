"""What a failing trial says may hold a secret (an address, a key it was refused with)."""

import io

import pandas as pd

from sweeps.failures import Failure
from sweeps.feed import Queue
from sweeps.ledger import Ledger
from sweeps.monitor import Monitor
from sweeps.recorder import Recorder
from sweeps.store import Store
from sweeps.tracking.outbox import Outbox

REASON = "OSError: 403 for https://me:planted-one@host/x with key planted-two-in-the-environment"


def test_the_reason_of_a_failure_is_kept_without_its_secrets(plan_of, tmp_path, monkeypatch):
    monkeypatch.setenv("SERVICE_API_KEY", "planted-two-in-the-environment")
    store = Store(str(tmp_path / "s"), "window_stride")
    store.open()
    plan = plan_of("chunking.window=48", "chunking.stride=32", "--num-seeds", "1")
    ledger = Ledger(store)
    first, second = ledger.plan(plan, store.finished())
    recorder = Recorder(Outbox(store.folder / "outbox", "window_stride-woods"), store, plan)
    said = io.StringIO()
    monitor = Monitor(ledger, recorder, Queue([first, second]), "nDCG@10", out=said)
    monitor.started(first)
    monitor.failed(first, Failure("storage", REASON), again=True)
    monitor.started(first)
    monitor.failed(first, Failure("error", REASON), again=False, traceback=f"Traceback\n{REASON}")
    monitor.started(second)
    monitor.news(second, {"status": "diverged", "reason": REASON})

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    texts = [path.read_bytes() for path in files if path.suffix != ".parquet"]
    tables = [pd.read_parquet(path) for path in files if path.suffix == ".parquet"]
    texts += [table.to_csv().encode() for table in tables] + [said.getvalue().encode()]
    assert sum(b"403 for https://[redacted]@host" in text for text in texts) >= 5
    assert [text for text in texts if b"planted" in text] == []
