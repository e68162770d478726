"""The message at the end of a sweep: sent once, without secrets, and never in the way."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from rank_core.errors import BadInput
from sweeps.driver import webhook
from sweeps.driver.command import main
from sweeps.driver.webhook import VARIABLE, announced, check_webhook
from sweeps.store.plan_description import manifest, write_description
from sweeps.store.trial_store import Store
from sweeps.store.trial_table import TrialTable
from sweeps.window_stride import EXPERIMENT

SMALL = ("chunking.window=48", "chunking.stride=32", "--num-seeds", "2")  # 2 cells x 2 seeds


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append((self.headers["Content-Type"], json.loads(body)))
        self.send_response(500 if self.path == "/broken" else 200)
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Silent."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), _Handler)
    server.bodies = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def sweep(plan_of, tmp_path):
    store = Store(str(tmp_path / "results"), "window_stride")
    store.open()
    plan, table = plan_of(*SMALL), TrialTable(store)
    table.begin(plan)
    table.plan(plan, set())
    write_description(store.folder, plan, manifest(plan, list(SMALL)))
    first, *_ = plan.trials()
    table.started(first)
    return store, table


def test_the_end_is_told_with_its_trials_and_its_answer(server, sweep, monkeypatch):
    store, table = sweep
    monkeypatch.setenv(VARIABLE, f"http://127.0.0.1:{server.server_port}/x")
    (store.folder / "report").mkdir()
    told = {"conclusions": ["MaxP is better; api_key=abcdefgh12345678.", "more"]}
    (store.folder / "report" / "results.json").write_text(json.dumps(told))
    assert announced(store, table, lambda: 3) == 3
    [(kind, body)] = server.bodies
    assert kind == "application/json"
    assert body["text"].startswith("window_stride on woods: finished with failed trials (")
    assert "1 running" in body["text"] and "of 4 trials). MaxP is better" in body["text"]
    assert body["end"] == "finished with failed trials" and body["where"] == store.uri
    assert body["trials"]["running"] == 1 and body["planned"] == 4
    assert "abcdefgh12345678" not in json.dumps(body)


def test_an_error_is_told_and_raised(server, sweep, monkeypatch):
    monkeypatch.setenv(VARIABLE, f"http://127.0.0.1:{server.server_port}/x")

    def drive() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        announced(*sweep, drive)
    assert server.bodies[0][1]["end"] == "stopped by KeyboardInterrupt"


def test_a_sweep_that_ends_before_its_plan_is_written_is_announced(server, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, f"http://127.0.0.1:{server.server_port}/x")
    store = Store(str(tmp_path / "results"), "window_stride")
    store.open()

    def drive() -> int:
        raise BadInput("the budget must hold one block of trials")

    with pytest.raises(BadInput):
        announced(store, TrialTable(store), drive)
    [(_, body)] = server.bodies
    assert "the budget" in body["text"] and body["where"] == store.uri


@pytest.mark.parametrize("path", ["/broken", "/nobody"])
def test_a_message_that_is_not_taken_costs_nothing(server, sweep, monkeypatch, capsys, path):
    monkeypatch.setattr(webhook, "SECONDS", 2.0)
    port = server.server_port
    if path == "/nobody":
        server.server_close()
    monkeypatch.setenv(VARIABLE, f"http://127.0.0.1:{port}{path}")
    assert announced(*sweep, lambda: 0) == 0
    assert "warning: the webhook failed" in capsys.readouterr().out


def test_without_the_variable_nothing_is_sent(sweep, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(webhook, "message", None)  # would be a TypeError
    check_webhook()
    assert announced(*sweep, lambda: 0) == 0


def test_an_address_that_is_none_is_refused_before_anything_else(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv(VARIABLE, "hooks.example.org/secret-part")
    with pytest.raises(BadInput, match="must be the URL of a webhook"):
        check_webhook()
    assert main(EXPERIMENT, ["--storage", str(tmp_path / "s"), "--dry-run"], doc="") == 2
    assert "secret-part" not in capsys.readouterr().err
