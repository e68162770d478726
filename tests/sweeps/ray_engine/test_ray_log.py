"""Ray's lines go to a file, ours to the terminal."""

import subprocess
import sys

SCRIPT = """
import logging, os, sys, threading
from pathlib import Path
from sweeps.ray_engine.ray_log import ray_lines_to

logging.basicConfig(format="%(message)s")
with ray_lines_to(Path(sys.argv[1])):
    os.write(2, b"of C++\\n")
    logging.warning("our log")
    print("our line", file=sys.stderr)
    print("our output")
    for target in (lambda: print("to stdout"), lambda: print("to stderr", file=sys.stderr)):
        listener = threading.Thread(target=target, name="ray_listen_error_messages")
        listener.start()
        listener.join()
    class Group:
        def __del__(self):
            raise ConnectionError("no answer of the GCS")
    Group()
print("after", file=sys.stderr)
logging.warning("log after")
"""


def test_lines_of_ray_go_to_a_file_and_ours_to_the_terminal(tmp_path):
    file = tmp_path / "ray.log"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(file)], capture_output=True, text=True, check=True
    )
    ours = ["our log", "our line", "after", "log after"]
    assert done.stderr.splitlines() == ours and done.stdout == "our output\n"
    theirs = file.read_text().splitlines()
    assert theirs[:3] == ["of C++", "to stdout", "to stderr"]
    assert "Group.__del__" in theirs[3] and theirs[-1] == "ConnectionError: no answer of the GCS"
