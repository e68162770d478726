"""Hundreds of odd inputs, drawn with a seed, in one process: each is refused with exit code 2 and
one message, or rightly accepted. No traceback, no hang, no file touched that is not its own.

`RANKSWEEP_ODD=5000` draws so many of each class. Run with `-s` it prints cases a class.
"""

import gzip
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rank_core.errors import shown
from rank_core.settings.config import setting_types
from sweeps.__main__ import main as sweeps_main
from sweeps.driver.command import main as sweep_main
from sweeps.plan.options import _parser
from sweeps.window_stride import EXPERIMENT

CASES = int(os.environ.get("RANKSWEEP_ODD", "40"))
SECONDS = 20  # after which a case counts as a hang
NEVER = ("nan", "inf", "-inf", "1e400", 5000 * "9", "")
"""Numbers that no setting and no flag can have."""
ODD = (
    *NEVER,
    *"0 -0 -1 1 2 0.5 1e-320 1e20 99999999999999999999 1_0 0x10 ٣ ½ ∞ true None [] {} ()".split(),
    *"1,1 1,,2 , 1..2 1.. .. nan..inf 2..1 a ../.. / /nowhere /dev/null /proc ~ ~nobody/x".split(),
    *"* {0} %s $HOME -- - = a=b | a|b http://x none nDCG@10 tiny-docs".split(),
    *(" 1", "1 ", 400 * "a ", 5000 * "a", "é\u0301", "\u202e", "\n", "\t"),
)
CLASSES: dict[str, Callable[..., None]] = {}
"""{class: draws and runs one case}"""


def case(function: Callable[..., None]) -> Callable[..., None]:
    CLASSES[function.__name__] = function
    return function


class Hang(BaseException):
    """A case that takes too long."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    def hang(signum: int, frame: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, hang)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def state(folder: Path) -> dict[str, object]:
    """{path: content or kind} of all that stands in a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


class Bench:
    """Where cases run: a folder of their own, and the small inputs beside it."""

    def __init__(self, rng: random.Random, folder: Path, inputs: list[str], capsys) -> None:
        self.rng, self.folder, self.inputs, self.capsys = rng, folder, inputs, capsys
        self.collection, self.backbone = Path(inputs[1]), Path(inputs[3])
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.finished = Path()  # the folder of a small sweep that has ended

    def odd(self) -> str:
        return self.rng.choice(ODD)

    def copy(self, source: Path, name: str) -> Path:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        return Path(shutil.copytree(source, self.folder / name))

    def damage(self, folder: Path, *patterns: str) -> Path:
        """One file of a folder, broken in some way."""
        paths = sorted(path for pattern in patterns for path in folder.rglob(pattern))
        path = self.rng.choice(paths)
        zipped = path.suffix == ".gz" and self.rng.random() < 0.7
        content = gzip.decompress(path.read_bytes()) if zipped else path.read_bytes()
        content = self.rng.choice(DAMAGES)(self.rng, content)
        path.write_bytes(gzip.compress(content) if zipped else content)
        return path

    def sweep(self, *words: str, hopeless: bool = False) -> None:
        """One command line of a sweep, as far as it goes without a launch."""
        flags = zip(self.inputs[::2], self.inputs[1::2], strict=True)
        named = {word.partition("=")[0] for word in words}
        given = [word for flag, value in flags if flag not in named for word in (flag, value)]
        storage = [] if "--storage" in words else ["--storage", "results"]
        argv = [*words, *given, *storage, "--dry-run"]
        argv += [] if any(word.startswith("--engine") for word in words) else ["--engine", "local"]
        self.run(lambda: sweep_main(EXPERIMENT, argv, doc=None), words, hopeless)

    def run(self, command: Callable[[], int], words, hopeless: bool = False, new=()) -> None:
        """One case; what is wrong with its end is noted. `new` may appear in the folder."""
        before = state(self.folder)
        try:
            with at_most(SECONDS):
                code: object = command()
        except SystemExit as end:
            code = end.code
        except Hang:
            code = "a hang"
        except Exception as error:
            code = f"{type(error).__name__}: {error}"
        _, err = self.capsys.readouterr()
        after = state(self.folder)
        touched = {
            path
            for path in before.keys() | after.keys()
            if before.get(path, ...) != after.get(path, ...)
        }
        said = f"{[shown(word) for word in words]} -> {shown(code)}: {err[-300:]}"
        if touched := {path for path in touched if not path.startswith(tuple(new) or "\0")}:
            self.wrong.append(f"touched {sorted(touched)[:3]}: {said}")
        if code not in (0, 2) or "Traceback" in err:
            self.wrong.append(said)
        elif code == 2 and (err.count("error: ") < 1 or max(map(len, err.split())) > 300):
            self.wrong.append(f"no message: {said}")
        elif code == 0 and hopeless:
            self.wrong.append(f"accepted: {said}")
        self.counts["accepted" if code == 0 else "refused"] += 1


def _lines(change: Callable[[random.Random, list[bytes]], object]) -> Callable[..., bytes]:
    def damage(rng: random.Random, content: bytes) -> bytes:
        lines = content.splitlines() or [b""]
        change(rng, lines)
        return b"\n".join(lines) + b"\n"

    return damage


def _field(rng: random.Random, lines: list[bytes]) -> None:
    at = rng.randrange(len(lines))
    fields = lines[at].split()
    if fields:
        word = rng.choice(ODD).encode(errors="surrogateescape")
        fields[rng.randrange(len(fields))] = word
    lines[at] = rng.choice([b" ", b"\t"]).join(fields)


DAMAGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    lambda rng, content: b"",
    lambda rng, content: content[: rng.randrange(len(content) + 1)],
    lambda rng, content: content + rng.randbytes(40),
    lambda rng, content: rng.randbytes(200),
    lambda rng, content: b"\xef\xbb\xbf" + content,
    lambda rng, content: content.replace(b"\n", b"\r\n"),
    lambda rng, content: content.replace(b"\n", b"\r"),
    lambda rng, content: content.replace(b"0", b"\0"),
    lambda rng, content: content.replace(b"1", b"1e400"),
    lambda rng, content: content.replace(b"1", b"NaN"),
    lambda rng, content: content.replace(b'"', b"'"),
    lambda rng, content: b"[]",
    lambda rng, content: b"{}",
    lambda rng, content: b"null",
    lambda rng, content: 2000 * b"[" + content,
    _lines(lambda rng, lines: lines.append(rng.choice(lines))),
    _lines(lambda rng, lines: lines.pop(rng.randrange(len(lines)))),
    _lines(lambda rng, lines: lines.insert(rng.randrange(len(lines)), b"")),
    _lines(lambda rng, lines: rng.shuffle(lines)),
    *3 * (_lines(_field),),
)


@case
def settings(bench: Bench) -> None:
    kinds = setting_types()
    name, value = bench.rng.choice(sorted(kinds)), bench.odd()
    number = kinds[name] in (int, float)
    if name in ("collection", "seed") or (name == "model.backbone" and value == "tiny-docs"):
        name = bench.rng.choice(("chunking.windw", "", "model", "chunking", "é"))
    bench.sweep(f"{name}={value}", hopeless=number and value in NEVER)


@case
def ranges(bench: Bench) -> None:
    ends = ("1", *"10 40 96 97 1e20 -5 nan inf 1e400 1e-320".split(), "", 400 * "9")
    low, high = bench.rng.choice(ends), bench.rng.choice(ends[2:])
    number = bench.rng.choice(("3", "3", "81", "100000", "0", "-1", "1e9", "99999999999"))
    name = bench.rng.choice(("chunking.window", "chunking.window", "chunking.overflow", "model.k"))
    search = bench.rng.choice(("random", "random", "tpe", "asha", "race", "grid"))
    words = f"{name}={low}..{high}{bench.rng.choice(('', '', ':log', ':lo'))}"
    never = {low, high} & {"nan", "inf", "1e400", "", "1e20", 400 * "9"} != set()
    flags = ("--search", search, "--num-configs", number, "--num-seeds", "3")
    bench.sweep(words, "chunking.stride=1", *flags, hopeless=never)


FLAGS = sorted(
    flag
    for action in _parser("x", "")._actions
    for flag in action.option_strings
    if flag.startswith("--") and action.nargs != 0
)


@case
def flags(bench: Bench) -> None:
    flag, value = bench.rng.choice(FLAGS), bench.odd()
    if flag in ("--storage", "--collection", "--tracking-uri"):  # classes of their own
        flag = "--alpha"
    search = next((name for name in ("asha", "race") if name in flag), "")
    more = ("--search", search) if search else ()
    texts = "--backbone --model --profile --search --engine --init-from".split()
    numeric = flag not in texts
    words = (f"{flag}={value}", *more, *bench.rng.choice(((), ("--num-seeds=3",), ("--confirm",))))
    bench.sweep(*words, hopeless=numeric and value in NEVER)


@case
def collections(bench: Bench) -> None:
    folder, value = str(bench.collection), bench.odd()
    forms = (
        "{v}", "{f}|{v}", "{f}|debias(seed={v})", "{f}|debias({v}=1)", "{f}|deep(rate={v})",
        "{f}|first-stage(by={v})", "{f}|first-stage(by=bm25,depth={v})", "{f}/{v}", "ir:{v}",
        "robust04-title/fold{v}", "robust04-title@{v}#s1", "{f}|far-relevant({v})",
        "{f}|shallow(queries={v})", "|{v}", "{f}|", "beir-{v}",
    )  # fmt: skip
    text = bench.rng.choice(forms).replace("{v}", value).replace("{f}", folder)
    bench.sweep(
        "--collection",
        text,
    )


@case
def collection_files(bench: Bench) -> None:
    folder = bench.copy(bench.collection, f"damaged{sum(bench.counts.values())}")
    bench.damage(folder, "docs.jsonl", "queries.tsv", "qrels.trec", "bm25.run")
    bench.sweep("--collection", str(folder))
    shutil.rmtree(folder)


@case
def storages(bench: Bench) -> None:
    value = bench.odd()
    forms = (
        "{v}", "{v}/x", "ftp://{v}", "zip://{v}", "http://{v}", "nosuch://{v}", "memory://{v}",
        "file://{v}", "{v}://x", "dir::{v}", "simplecache::{v}", "github://{v}", "filecache://{v}",
    )  # fmt: skip
    text = bench.rng.choice(forms).replace("{v}", value)
    bench.sweep("--storage", text, hopeless=not text)


@case
def tracking(bench: Bench) -> None:
    value = bench.odd()
    forms = (
        "{v}", "sqlite:///{v}", "sqlite:////proc/{v}", "sqlite:///{c}/docs.jsonl/{v}", "sqlite://{v}",
        "http://{v}", "http://[{v}", "http://x:{v}", "postgresql://{v}", "postgresql://u@h/{v}",
        "file://{v}", "{v}://x", "databricks", "uc:{v}", "mysql://u:{v}@h/d",
    )  # fmt: skip
    text = bench.rng.choice(forms).replace("{v}", value).replace("{c}", str(bench.collection))
    bench.sweep("--tracking-uri", text, hopeless=not text or "/proc/" in text)


@case
def compare(bench: Bench) -> None:
    folder = bench.copy(bench.collection, "runs")
    run, qrels = folder / "test/bm25.run", folder / "test/qrels.trec"
    shutil.copy(run, folder / "b.run")
    if bench.rng.random() < 0.5:
        bench.damage(folder, "b.run", "test/bm25.run", "test/qrels.trec")
    value = bench.odd()
    flag = bench.rng.choice(
        ("--margin", "--alpha", "--baseline", "--measures", "--deterministic", "--out", "--qrels")
    )
    more = bench.rng.choice(
        (
            [flag, value], [f"{flag}={value}"], ["--baseline", "a=a"], ["--baseline=a"] * 2,
            ["--out", str(run)], ["--out", "/proc/x"], [value], [f"c={value}"], ["--separate-runs"],
            ["--measures", "nDCG@10", "nDCG@10"], ["--all-pairs"], ["--margin", "0"], [],
        )
    )  # fmt: skip
    words = ["compare", f"a={run}", f"b={folder / 'b.run'}", "--qrels", str(qrels), *more]
    asked = [flag, value] == more or more == [f"{flag}={value}"]
    hopeless = asked and flag in ("--margin", "--alpha") and value in NEVER
    bench.run(lambda: sweeps_main(words), more, hopeless, new=_names(more))


def _names(words: list[str]) -> tuple[str, ...]:
    """What `--out` may make."""
    text = words[-1].removeprefix("--out=") if words and "--out" in words[0] else ""
    text = text.lstrip("/").partition("/")[0]
    return (text,) if text.strip() and text.strip() not in (".", "..") else ()


COMMANDS = {
    "design": ("--delta", "--alpha", "--power", "--family", "--gpu-hours", "--out", "--baseline"),
    "derive": ("--k", "--aggregators"),
    "sync": ("--tracking-uri",),
    "models": ("--profile",),
    "report": ("--bogus",),
    "status": ("--bogus",),
    "nonsense": ("--x",),
}


@case
def command_flags(bench: Bench) -> None:
    command = bench.rng.choice(sorted(COMMANDS))
    flag, value = bench.rng.choice(COMMANDS[command]), bench.odd()
    where = bench.rng.choice((str(bench.finished), str(bench.finished), bench.odd()))
    words = [command, *([] if command == "models" else [where])]
    words += ["--delta", ".01"] if command == "design" and flag != "--delta" else []
    words.append(f"{flag}={value}")
    never = value in NEVER and flag not in ("--profile", "--baseline", "--tracking-uri", "--plot")
    bench.run(lambda: sweeps_main(words), words, never)


@case
def sweep_files(bench: Bench) -> None:
    storage = bench.finished.parents[1]
    folder = bench.copy(storage, "sweep") / bench.finished.relative_to(storage)
    bench.damage(folder, "sweep.json")
    command = bench.rng.choice(("status", "design", "sync"))
    words = [command, str(folder), *(["--delta", ".01"] if command == "design" else [])]
    bench.run(lambda: sweeps_main(words), words, new=("sweep/",))


@pytest.fixture(scope="module")
def inputs_of(backbone_folder, collection_folder) -> list[str]:
    return ["--collection", str(collection_folder), "--backbone", str(backbone_folder)]


@pytest.fixture
def stopped_before_launch(monkeypatch) -> None:
    """What an accepted command would launch: it ends there."""

    def none(*given: object, **more: object) -> None:
        raise SystemExit(0)

    monkeypatch.setattr("sweeps.driver.sweep.forecast", none)
    monkeypatch.setattr("sweeps.scaling.connect", none)
    monkeypatch.setattr("sweeps.positional_bias.analyse", none)
    monkeypatch.setattr("sweeps.commands.mlflow_commands.send", none)


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_odd_input_is_refused_with_one_message_or_rightly_accepted(
    name, stopped_before_launch, smoke, inputs_of, tmp_path, capsys, monkeypatch
):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    bench = Bench(random.Random(f"13 {name}"), folder, inputs_of, capsys)
    bench.finished = smoke.folder
    others = {path: state(path) for path in (bench.collection, bench.backbone, smoke.folder)}
    begun = time.monotonic()
    for _ in range(CASES):
        CLASSES[name](bench)
    seconds = time.monotonic() - begun
    with capsys.disabled():
        print(f"\n{name:<17}{CASES:>5} cases {dict(bench.counts)} {seconds:.1f} s", end=" ")
    assert not bench.wrong, "\n".join(bench.wrong)
    assert {path: state(path) for path in others} == others
    assert bench.counts["refused"]
