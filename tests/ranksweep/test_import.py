"""The packages are those that were installed, whatever stands beside a script."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("package", ["ranksweep", "rank_core", "sweeps"])
def test_a_folder_of_the_packages_name_beside_a_script_is_not_the_package(package, tmp_path):
    (tmp_path / package).mkdir()  # as a clone stands in a home folder
    script = tmp_path / "script.py"
    script.write_text(f"import {package}; print({package}.__file__)")
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert found.stdout.strip().endswith(f"{package}/__init__.py")
