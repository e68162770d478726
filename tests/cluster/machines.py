"""Machines that are namespaces of this one: own disk, processes, host name and network address.

Ray's launcher can then do to them what it does to real ones (ssh to port 22, `ray stop`, fixed
ports, files under `~` and `/tmp`), and all of it is gone when their first process ends.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOME = "/run/disk"  # of root, on every machine
SHARED = "/run/shared"  # one folder for all machines
TOOLS = ("unshare", "nsenter", "setpriv", "ip", "ssh", "sshd", "ssh-keygen", "rsync", "ps")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Arguments: name, disk, shared folder, then what must stay visible under the new /tmp.
BOOT = """
set -e
name=$1 disk=$2 shared=$3; shift 3
ip link set lo up
hostname "$name"
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd /run/disk /run/shared /run/kept
mount --bind "$disk" /run/disk
mount --bind "$shared" /run/shared
mount --bind "$disk/.machine/passwd" /etc/passwd
mount --bind "$disk/.machine/shadow" /etc/shadow
for path; do mkdir "/run/kept/${path##*/}"; mount --rbind "$path" "/run/kept/${path##*/}"; done
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /dev/shm
for path; do mkdir -p "$path"; mount --rbind "/run/kept/${path##*/}" "$path"; done
exec "$(command -v sshd)" -D -f /run/disk/.machine/sshd_config
"""

SSHD = """
HostKey /run/disk/.machine/host_key
AuthorizedKeysFile /run/disk/.machine/authorized_keys
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
"""


@cache
def missing() -> str:
    """Why this machine cannot be divided; empty where it can."""
    if os.geteuid() != 0:
        return "needs root, to make namespaces"
    absent = [tool for tool in TOOLS if shutil.which(tool, path=SYSTEM_PATH) is None]
    if absent:
        return f"needs {', '.join(absent)}"
    probe = "ip link add name probe type bridge && mount -t tmpfs tmpfs /run"
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--net", "--uts", "--fork", "sh", "-c", probe],
        capture_output=True,
        text=True,
    )
    return f"needs namespaces: {done.stderr.strip()}" if done.returncode else ""


@dataclass(frozen=True)
class Machine:
    """A running machine. `pid` is its first process, seen from here; `disk` its home, likewise."""

    pid: int
    address: str
    disk: Path

    def command(self, *words: str) -> list[str]:
        """The words as a command inside, at the root of the checkout, with a bare environment."""
        path = f"{Path(sys.executable).parent}:{SYSTEM_PATH}"
        user = [f"HOME={HOME}", "USER=root", "LOGNAME=root", "LANG=C.UTF-8", f"PATH={path}"]
        inside = ["nsenter", "--all", f"--target={self.pid}"]
        return [*inside, "env", "--ignore-environment", f"--chdir={ROOT}", *user, *words]

    def processes(self) -> dict[int, str]:
        """Command lines of all that runs on the machine, by process id as the machine sees it."""
        done = subprocess.run(
            self.command("ps", "-eo", "pid=,args="), capture_output=True, text=True, check=True
        )
        rows = (line.split(maxsplit=1) for line in done.stdout.splitlines())
        return {int(pid): arguments for pid, arguments in rows}

    def mount(self, source: str, target: str) -> None:
        """Puts a file of this machine in the place of another one, for its processes alone."""
        words = ["nsenter", "--mount", f"--target={self.pid}", "mount", "--bind", source, target]
        subprocess.run(words, check=True)

    @property
    def port(self) -> str:
        """Where it is plugged into the bridge of the first machine."""
        return f"port{int(self.address.rpartition('.')[2]) - 2}"


def link(first: Machine, machine: Machine, *, up: bool) -> None:
    """Plugs a machine into the network, or out: what is sent meanwhile is lost without a word."""
    _ip(first, f"link set {machine.port} {'master bridge' if up else 'nomaster'}")


def link_bytes(first: Machine, machine: Machine) -> int:
    """The bytes that have passed the link of a machine, in both directions."""
    words = ["nsenter", "--net", f"--target={first.pid}", "ip", "-json", "-stats", "link"]
    done = subprocess.run([*words, "show", machine.port], capture_output=True, check=True)
    [port] = json.loads(done.stdout)
    return sum(int(port["stats64"][way]["bytes"]) for way in ("rx", "tx"))


@contextmanager
def machines(folder: Path, shared: Path, *names: str) -> Iterator[list[Machine]]:
    """Machines on one network; root reaches each from each with the key `~/.ssh/ranksweep`."""
    (shared / "cache").mkdir(exist_ok=True)
    key = folder / "key"
    _make_key(key)
    with ExitStack() as stack:
        running = []
        for number, name in enumerate(names, start=1):
            disk = folder / name
            _format(disk, key)
            pid = stack.enter_context(_boot(name, disk, shared))
            running.append(Machine(pid, f"10.77.0.{number}", disk))
        _connect(running)
        yield running


def _make_key(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True)


def _format(disk: Path, key: Path) -> None:
    """Root's home, with an account database in which root has this home and no password."""
    own = disk / ".machine"
    own.mkdir(parents=True)
    # What one machine has built (the tiny backbone, tokens), the others need not build again.
    (disk / ".cache").symlink_to(f"{SHARED}/cache")
    (disk / ".ssh").mkdir(mode=0o700)
    shutil.copy(key, disk / ".ssh" / "ranksweep")
    shutil.copy(key.with_suffix(".pub"), own / "authorized_keys")
    (own / "sshd_config").write_text(SSHD)
    _make_key(own / "host_key")
    accounts = Path("/etc/passwd").read_text().splitlines()
    others = [line for line in accounts if not line.startswith("root:")]
    root = f"root:x:0:0:root:{HOME}:/bin/bash"
    (own / "passwd").write_text("\n".join([root, *others]) + "\n")
    (own / "shadow").write_text("root:*:19000:0:99999:7:::\n")


@contextmanager
def _boot(name: str, disk: Path, shared: Path) -> Iterator[int]:
    """Starts a machine; all its processes end with the context, or with this process."""
    seen = (ROOT, Path(sys.prefix), Path(sys.base_prefix))
    kept = {str(path) for path in seen if path.is_relative_to("/tmp")}
    spaces = ("--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--mount-proc")
    boot = ["sh", "-c", BOOT, "boot", name, str(disk), str(shared), *sorted(kept)]
    with (disk / ".machine" / "log").open("w") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", *spaces, "--kill-child", *boot],
            stdout=log,
            stderr=log,
            env={"PATH": SYSTEM_PATH},
        )
    try:
        yield _first_process(process, disk / ".machine" / "log")
    finally:
        process.kill()
        process.wait()


def _first_process(process: subprocess.Popen[bytes], log: Path) -> int:
    """The machine's process 1 once it is sshd, that is, when everything is mounted."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        for pid in children.read_text().split():
            if Path(f"/proc/{pid}/comm").read_text().strip() == "sshd":
                return int(pid)
        time.sleep(0.05)
    raise RuntimeError(f"a machine did not start: {log.read_text()}")


def _connect(running: list[Machine]) -> None:
    """A bridge on the first machine; the others plug into it and route everything there.

    Nothing lies behind that route, but without one Ray takes a node for unconnected and gives it
    the address 127.0.0.1.
    """
    first, *others = running
    _ip(first, "link add bridge type bridge")
    _ip(first, f"address add {first.address}/24 dev bridge")
    _ip(first, "link set bridge up")
    for number, machine in enumerate(others):
        _ip(first, f"link add port{number} type veth peer name eth0 netns {machine.pid}")
        _ip(first, f"link set port{number} master bridge up")
        _ip(machine, f"address add {machine.address}/24 dev eth0")
        _ip(machine, "link set eth0 up")
        _ip(machine, f"route add default via {first.address}")


def _ip(machine: Machine, words: str) -> None:
    subprocess.run(
        ["nsenter", "--net", f"--target={machine.pid}", "ip", *words.split()], check=True
    )
