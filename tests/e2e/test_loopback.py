"""On one machine alone nothing of Ray listens on the network."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.long]
LISTENS = "0A"
START = """
import sys
from sweeps.ray_engine.cluster import connect, disconnect, ray
connect(num_workers=2)  # with a dashboard
ray.get(ray.remote(lambda: None).remote())
print("up", flush=True)
sys.stdin.read()
disconnect()
"""


def listening(pids: list[int]) -> dict[str, str]:
    """{address in hex, as Linux lists it: a program} of the ports that the processes listen on."""
    programs = {}
    for pid in pids:
        with suppress(OSError):  # it ended while we looked
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    programs[os.readlink(entry.path)] = name
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    sockets = {f"socket:[{line[9]}]": line[1] for line in lines if line[3] == LISTENS}
    return {sockets[link]: name for link, name in programs.items() if link in sockets}


def is_loopback(address: str) -> bool:
    """127.0.0.1, also as an IPv6 address, or ::1."""
    host = address.partition(":")[0]
    return host.endswith("0100007F") or host == "0" * 24 + "01000000"


def test_ray_of_one_machine_listens_on_loopback_alone(processes_below, monkeypatch):
    for name in ("RAY_ADDRESS", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    process = subprocess.Popen(
        [sys.executable, "-c", START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process:
        assert process.stdin and process.stdout
        while process.stdout.readline() != "up\n":
            assert process.poll() is None, "Ray does not start"
        found = listening([process.pid, *processes_below(process.pid)])
        process.stdin.close()
    assert len(found) >= 4, "the head, the node and their agents have ports"
    assert [name for address, name in found.items() if not is_loopback(address)] == []
