"""Hundreds of odd inputs, drawn with a seed, in one process: each is refused with exit code 2 and
one message, or rightly accepted. No traceback, no hang, no file touched that is not its own.

`RANKSWEEP_ODD=5000` draws so many of each class.
"""

import gzip
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rank_core.errors import shown
from rank_core.settings.config import setting_types
from sweeps.__main__ import main as sweeps_main
from sweeps.launch.command import main as sweep_main
from sweeps.plan.options import sweep_parser
from sweeps.window_stride import EXPERIMENT
from tests.sweeps.conftest import inputs_words
from tests.sweeps.report.ranked_sweep import write_ranked_sweep

__all__ = ["inputs_words"]

CASES = int(os.environ.get("RANKSWEEP_ODD", "40"))
NEVER = ("nan", "inf", "-inf", "1e400", 5000 * "9", "")
"""Numbers that no setting and no flag can have."""
ODD = (
    *NEVER,
    *"0 -0 -1 1 2 0.5 1e-320 1e20 99999999999999999999 1_0 0x10 ٣ ½ ∞ true None [] {} ()".split(),
    *"1,1 1,,2 , 1..2 1.. .. nan..inf 2..1 a ../.. / /nowhere /dev/null /proc ~ ~nobody/x".split(),
    *"* {0} %s $HOME -- - = a=b | a|b http://x none nDCG@10 tiny-docs".split(),
    *(" 1", "1 ", 400 * "a ", 5000 * "a", "é\u0301", "\u202e", "\n", "\t"),
)
ADDRESSES = {
    "--collection": (
        "{v}", "{f}|{v}", "{f}|debias(seed={v})", "{f}|debias({v}=1)", "{f}|deep(rate={v})",
        "{f}|first-stage(by={v})", "{f}|first-stage(by=bm25,depth={v})", "{f}/{v}", "ir:{v}",
        "robust04-title/fold{v}", "robust04-title@{v}#s1", "{f}|far-relevant({v})",
        "{f}|shallow(queries={v})", "|{v}", "{f}|", "beir-{v}",
    ),
    "--storage": (
        "{v}", "{v}/x", "ftp://{v}", "zip://{v}", "http://{v}", "nosuch://{v}", "memory://{v}",
        "file://{v}", "{v}://x", "dir::{v}", "simplecache::{v}", "github://{v}", "filecache://{v}",
    ),
    "--tracking-uri": (
        "{v}", "sqlite:///{v}", "sqlite:////proc/{v}", "sqlite:///{f}/docs.jsonl/{v}", "{v}://x",
        "http://{v}", "http://[{v}", "http://x:{v}", "postgresql://{v}", "postgresql://u@h/{v}",
        "file://{v}", "sqlite://{v}", "databricks", "uc:{v}", "mysql://u:{v}@h/d",
    ),
}  # fmt: skip
"""{flag: forms of its value}; {v} is an odd text, {f} the folder of a collection."""
FLAGS = sorted(
    flag
    for action in sweep_parser("x", "")._actions
    for flag in action.option_strings
    if flag.startswith("--") and action.nargs != 0 and flag not in ADDRESSES
)
COMMANDS = {
    "design": ("--delta", "--alpha", "--power", "--family", "--gpu-hours", "--out", "--baseline"),
    "derive": ("--k", "--aggregators"),
    "sync": ("--tracking-uri",),
    "models": ("--profile",),
    "report": ("--bogus",),
    "status": ("--bogus",),
    "nonsense": ("--x",),
}


CLASSES = (
    *("settings", "ranges", "flags", "addresses", "collection_files", "compare"),
    *("command_flags", "sweep_files"),
)


def _lines(change: Callable[[random.Random, list[bytes]], object]) -> Callable[..., bytes]:
    def damage(rng: random.Random, content: bytes) -> bytes:
        lines = content.splitlines() or [b""]
        change(rng, lines)
        return b"\n".join(lines) + b"\n"

    return damage


def _field(rng: random.Random, lines: list[bytes]) -> None:
    at = rng.randrange(len(lines))
    if fields := lines[at].split():
        word = rng.choice(ODD).encode(errors="surrogateescape")
        fields[rng.randrange(len(fields))] = word
    lines[at] = rng.choice([b" ", b"\t"]).join(fields)


REPLACED = {b"\n": (b"\r\n", b"\r"), b"0": (b"\0",), b"1": (b"1e400", b"NaN"), b'"': (b"'",)}
DAMAGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    *(lambda rng, content, new=new: new for new in (b"", b"[]", b"{}", b"null")),
    *(
        lambda rng, content, old=old, new=new: content.replace(old, new)
        for old, texts in REPLACED.items()
        for new in texts
    ),
    lambda rng, content: content[: rng.randrange(len(content) + 1)],
    lambda rng, content: content + rng.randbytes(40),
    lambda rng, content: rng.randbytes(200),
    lambda rng, content: b"\xef\xbb\xbf" + content,
    lambda rng, content: 2000 * b"[" + content,
    _lines(lambda rng, lines: lines.append(rng.choice(lines))),
    _lines(lambda rng, lines: lines.pop(rng.randrange(len(lines)))),
    _lines(lambda rng, lines: lines.insert(rng.randrange(len(lines)), b"")),
    _lines(lambda rng, lines: rng.shuffle(lines)),
    *3 * (_lines(_field),),
)


def state(folder: Path) -> dict[str, bytes | None]:
    """{path: content} of all that stands in a folder, None for a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


class Bench:
    """Where cases run: a folder of their own, and the small inputs and a finished sweep beside it.
    The methods of `CLASSES` draw and run a case."""

    def __init__(self, seed: str, folder: Path, inputs: list[str], finished: Path, capsys) -> None:
        self.rng, self.folder = random.Random(seed), folder
        self.inputs, self.capsys = inputs, capsys
        self.collection, self.finished = Path(inputs[1]), finished
        self.refused, self.wrong = 0, list[str]()

    def odd(self) -> str:
        return self.rng.choice(ODD)

    def damaged(self, source: Path, *patterns: str) -> Path:
        """A copy of a folder, one file of it broken in some way."""
        for older in self.folder.glob("copy*"):
            shutil.rmtree(older)
        copy = self.folder / f"copy{self.rng.random()}"  # what was read is remembered by its path
        shutil.copytree(source, copy)
        path = self.rng.choice(sorted(path for one in patterns for path in copy.rglob(one)))
        zipped = path.suffix == ".gz" and self.rng.random() < 0.7
        content = gzip.decompress(path.read_bytes()) if zipped else path.read_bytes()
        content = self.rng.choice(DAMAGES)(self.rng, content)
        path.write_bytes(gzip.compress(content) if zipped else content)
        return copy

    def sweep(self, *words: str, hopeless: bool = False) -> None:
        """One command line of a sweep, as far as it goes without a launch."""
        flags = zip(self.inputs[::2], self.inputs[1::2], strict=True)
        given = {**dict(flags), "--storage": "results", "--engine": "local"}
        named = {word.partition("=")[0] for word in words}
        more = [word for flag, own in given.items() if flag not in named for word in (flag, own)]
        argv = [*words, *more, "--dry-run"]
        self.run(lambda: sweep_main(EXPERIMENT, argv, doc=None), words, hopeless)

    def run(self, command: Callable[[], int], words, hopeless: bool = False, new=()) -> None:
        """One case; what is wrong with its end is noted. `new` may appear in the folder."""
        before = state(self.folder)
        try:
            code: object = command()
        except SystemExit as end:
            code = end.code
        except Exception as error:
            code = f"{type(error).__name__}: {error}"
        _, err = self.capsys.readouterr()
        said = f"{[shown(word) for word in words]} -> {shown(code)}: {err[-300:]}"
        touched = {path for path, _ in before.items() ^ state(self.folder).items()}
        if touched := {path for path in touched if not path.startswith(tuple(new) or "\0")}:
            self.wrong.append(f"touched {sorted(touched)[:3]}: {said}")
        if code not in (0, 2) or "Traceback" in err:
            self.wrong.append(said)
        elif code == 2 and (err.count("error: ") < 1 or max(map(len, err.split())) > 300):
            self.wrong.append(f"no message: {said}")
        elif code == 0 and hopeless:
            self.wrong.append(f"accepted: {said}")
        self.refused += code == 2

    def settings(self) -> None:
        kinds = setting_types()
        name, value = self.rng.choice(sorted(kinds)), self.odd()
        number = kinds[name] in (int, float)
        if name in ("collection", "seed") or (name == "model.backbone" and value == "tiny-docs"):
            name = self.rng.choice(("chunking.windw", "", "model", "chunking", "é"))
        self.sweep(f"{name}={value}", hopeless=number and value in NEVER)

    def ranges(self) -> None:
        ends = ("1", *"10 40 96 97 1e20 -5 nan inf 1e400 1e-320".split(), "", 400 * "9")
        low, high = self.rng.choice(ends), self.rng.choice(ends[2:])
        number = self.rng.choice(("3", "3", "81", "100000", "0", "-1", "1e9", "99999999999"))
        name = self.rng.choice(("chunking.window", "chunking.overflow", "model.k"))
        search = self.rng.choice(("random", "random", "tpe", "asha", "race", "grid"))
        words = f"{name}={low}..{high}{self.rng.choice(('', '', ':log', ':lo'))}"
        never = {low, high} & {"nan", "inf", "1e400", "", "1e20", 400 * "9"} != set()
        flags = ("--search", search, "--num-configs", number, "--num-seeds", "3")
        self.sweep(words, "chunking.stride=1", *flags, hopeless=never)

    def flags(self) -> None:
        flag, value = self.rng.choice(FLAGS), self.odd()
        search = next((name for name in ("asha", "race") if name in flag), "")
        more = ("--search", search) if search else ()
        texts = "--backbone --model --profile --search --engine --init-from".split()
        more += self.rng.choice(((), ("--num-seeds=3",), ("--confirm",)))
        self.sweep(f"{flag}={value}", *more, hopeless=flag not in texts and value in NEVER)

    def addresses(self) -> None:
        for flag, forms in ADDRESSES.items():
            text = self.rng.choice(forms).replace("{v}", self.odd())
            text = text.replace("{f}", str(self.collection))
            never = flag != "--collection" and (not text or "sqlite:////proc/" in text)
            self.sweep(flag, text, hopeless=never)

    def collection_files(self) -> None:
        files = ("docs.jsonl", "queries.tsv", "qrels.trec", "bm25.run")
        self.sweep("--collection", str(self.damaged(self.collection, *files)))

    def compare(self) -> None:
        folder = self.collection / "test"
        if self.rng.random() < 0.5:
            folder = self.damaged(folder, "bm25.run", "qrels.trec")
        for copied in ("a.run", "b.run"):
            shutil.copy(folder / "bm25.run", self.folder / copied)
        flags = "--margin --alpha --baseline --measures --deterministic --out --qrels".split()
        flag, value = self.rng.choice(flags), self.odd()
        more = self.rng.choice(
            (
                [flag, value], [f"{flag}={value}"], ["--baseline", "a=a"], ["--baseline=a"] * 2,
                ["--out", "a.run"], ["--out", "/proc/x"], [value], [f"c={value}"],
                ["--separate-runs"], ["--measures", "nDCG@10", "nDCG@10"], ["--all-pairs"],
                ["--margin", "0"], [],
            )
        )  # fmt: skip
        words = ["compare", "a=a.run", "b=b.run", "--qrels", str(folder / "qrels.trec"), *more]
        asked = more in ([flag, value], [f"{flag}={value}"])
        hopeless = asked and flag in ("--margin", "--alpha") and value in NEVER
        to = more[-1].removeprefix("--out=") if more and "--out" in more[0] else ""
        to = to.lstrip("/").partition("/")[0].strip()  # what `--out` may make
        new = (to,) if to.strip(".") else ()
        self.run(lambda: sweeps_main(words), more, hopeless, new)

    def command_flags(self) -> None:
        command = self.rng.choice(sorted(COMMANDS))
        flag, value = self.rng.choice(COMMANDS[command]), self.odd()
        where = self.rng.choice((str(self.finished), str(self.finished), self.odd()))
        words = [command, *([] if command == "models" else [where])]
        words += ["--delta", ".01"] if command == "design" and flag != "--delta" else []
        words.append(f"{flag}={value}")
        texts = ("--profile", "--baseline", "--tracking-uri")
        never = value in NEVER and flag not in texts
        self.run(lambda: sweeps_main(words), words, never)

    def sweep_files(self) -> None:
        folder = self.damaged(self.finished, "sweep.json")
        command = self.rng.choice(("status", "design", "sync"))
        words = [command, str(folder), *(["--delta", ".01"] if command == "design" else [])]
        self.run(lambda: sweeps_main(words), words, new=("copy",))


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    tracked = {"experiment": "woods", "tracking_uri": "sqlite:///mlflow.db"}
    return write_ranked_sweep(tmp_path_factory.mktemp("finished") / "woods", **tracked)


@pytest.fixture
def stopped_before_launch(monkeypatch) -> None:
    """What an accepted command would launch: it ends there."""

    def none(*given: object, **more: object) -> None:
        raise SystemExit(0)

    monkeypatch.setattr("sweeps.launch.sweep.forecast", none)
    monkeypatch.setattr("sweeps.commands.mlflow_commands.send", none)


@pytest.mark.slow
@pytest.mark.timeout(300)  # for a hang
@pytest.mark.parametrize("name", CLASSES)
def test_odd_input_is_refused_with_one_message_or_rightly_accepted(
    name, stopped_before_launch, finished, inputs_words, tmp_path, capsys, monkeypatch
):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    bench = Bench(f"13 {name}", folder, inputs_words, finished, capsys)
    places = [Path(inputs_words[1]), Path(inputs_words[3]), finished]
    before = [state(path) for path in places]
    for _ in range(CASES):
        getattr(bench, name)()
    assert not bench.wrong, "\n".join(bench.wrong)
    assert [state(path) for path in places] == before
    assert bench.refused
