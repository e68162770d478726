"""A library that gives a CPU build of torch a fake CUDA device, and processes that use it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[3]


def compile_library(folder: Path) -> Path:
    """fake_cuda.cpp, compiled for this torch; needs g++."""
    source, path = Path(__file__).with_name("fake_cuda.cpp"), folder / "fake_cuda.so"
    home = Path(torch.__file__).parent
    headers = [f"-I{home}/include", f"-I{home}/include/torch/csrc/api/include"]
    libraries = [f"-L{home}/lib", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{home}/lib"]
    command = ["g++", "-shared", "-fPIC", "-O1", "-std=c++20", *headers, str(source), *libraries]
    subprocess.run([*command, "-o", str(path)], check=True)
    return path


def lines_of(library: Path, module: str, *words: str) -> list[dict[str, Any]]:
    """The lines of JSON that `python -m module words` prints in a process with a fake device."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        env=os.environ | {"LD_PRELOAD": str(library)},  # torch looks for a device once
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]
