"""What an installed package does on its own: a comparison and, where torch is installed, a sweep.

`python tests/installed.py` in the environment of a wheel, from a folder that is no checkout."""

import random
import subprocess
import sys
import tempfile
from importlib.util import find_spec

import ranksweep


def main() -> None:
    draw = random.Random(1)
    qrels = {f"q{n}": {"d0": 1} for n in range(100)}

    def run(skill: float) -> dict[str, dict[str, float]]:
        return {q: {f"d{n}": draw.gauss(skill * (n == 0)) for n in range(20)} for q in qrels}

    systems = {"BM25": run(1.4), "MaxP": [run(2.0) for _ in range(3)]}
    compared = ranksweep.compare(systems, qrels, measures="nDCG@10", deterministic="BM25")
    assert compared.frame.shape[0] == 2, compared
    print(f"ranksweep {ranksweep.__version__}, Python {sys.version.split()[0]}: compare")
    if not all(map(find_spec, ("torch", "ray", "mlflow"))):
        print("no sweep: the extra `sweep` is not installed")
        return
    with tempfile.TemporaryDirectory() as storage:
        words = ["run", "window_stride", "--smoke-test", "--engine", "local"]
        words += ["--tracking-uri", "none", "--storage", storage]
        subprocess.run(
            [sys.executable, "-m", "sweeps", *words], check=True, stdout=subprocess.DEVNULL
        )
    print("run window_stride --smoke-test --engine local")


if __name__ == "__main__":
    main()
