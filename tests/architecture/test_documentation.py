"""README.md and docs/ against the repository: links, files, code blocks, names, lengths."""

import ast
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from rank_core.settings.config import setting_types
from sweeps.store.trial_status import TrialStatus

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "AGENTS.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
TEXTS = {path: path.read_text(encoding="utf-8") for path in PAGES}
README = TEXTS[ROOT / "README.md"]
BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```", re.M | re.S)
# Of a changelog only the present is held to what is there now.
CURRENT = {path: text for path, text in TEXTS.items() if path.name != "CHANGELOG.md"}


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 125


def test_the_first_lines_of_python_need_no_torch_and_print_what_the_page_shows(tmp_path):
    [(_, code, shown)] = [block for block in with_output(README) if block[0] == "python"]
    assert len(code.split("\n\n")) <= 6 and len([*filter(None, code.splitlines())]) <= 12
    heavy = "[m for m in ('torch', 'transformers', 'ray', 'mlflow') if m in sys.modules]"
    assert_prints("python", f"{code}\nimport sys\nassert not {heavy}, {heavy}\n", shown, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["tutorial-runs.md"])
def test_the_blocks_of_a_tutorial_print_what_it_shows(page, tmp_path):
    """Of the tutorials whose commands take seconds and read no file that is not theirs."""
    for block in with_output(TEXTS[ROOT / "docs" / page]):
        assert_prints(*block, tmp_path)


def with_output(text: str) -> list[tuple[str, str, str]]:
    """(language, code, the output shown below it or "") of each block that runs."""
    return re.findall(r"```(python|bash)\n(.*?)```\n+(?:```text\n(.*?)```)?", text, re.DOTALL)


def assert_prints(language: str, code: str, shown: str, folder: Path) -> None:
    """A block ends without an error and prints what is shown; dots are lines left out."""
    code = (
        code.replace("ranksweep ", f"{sys.executable} -m sweeps ") if language == "bash" else code
    )
    shell = [sys.executable] if language == "python" else ["bash", "-e"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*shell, "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    pattern = re.escape(shown.rstrip()).replace(re.escape("\n...\n"), "\n(?:.*\n)+?")
    assert re.fullmatch(pattern, done.stdout.rstrip()) or not shown, done.stdout


def test_a_result_that_stands_on_two_pages_is_the_same():
    [table] = re.findall(r"^```text\n(system .*?)```", README, re.M | re.S)
    assert table in TEXTS[ROOT / "docs" / "getting-started.md"]


def test_every_link_leads_to_a_file_and_a_heading():
    wrong = []
    for path, text in TEXTS.items():
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", BLOCK.sub("", text)):
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            if not target.exists() or (anchor and anchor not in anchors(target)):
                wrong.append(f"{path.name}: {link}")
    assert wrong == []


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", TEXTS[path]), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_index_and_in_the_navigation_of_the_site():
    index, site = TEXTS[ROOT / "docs" / "README.md"], (ROOT / "mkdocs.yml").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"({page})" not in index} == set()
    assert {page for page in pages if f": {page}\n" not in site} == set()


@pytest.mark.parametrize("module", ["rank_core", "sweeps", "ranksweep"])
def test_every_public_name_is_in_the_api_reference(module):
    """By the object, which may stand there under another name."""
    described = re.findall(r"^::: (\S+)$", TEXTS[ROOT / "docs" / "api-reference.md"], re.M)
    assert "ranksweep.pt.Reranker" in described  # it needs PyTerrier
    objects = {id(named(path)) for path in described if path != "ranksweep.pt.Reranker"}
    package = importlib.import_module(module)
    names = [name for name in getattr(package, "__all__", []) if name != "__version__"]
    assert [name for name in names if id(getattr(package, name)) not in objects] == []


def named(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_workflows_have_few_rights_and_fixed_actions():
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] in ({}, {"contents": "read"})
        targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
        for job in workflow["jobs"].values():
            matrix = job.get("strategy", {}).get("matrix", {}).get("include", [{}])
            assert job["timeout-minutes"] and job.get("permissions", {}).keys() <= {"contents"}
            for step in job["steps"]:
                assert re.fullmatch(
                    r"[\w-]+/[\w-]+@[0-9a-f]{40}", step.get("uses", "a/b@" + "0" * 40)
                )
                for row in matrix:
                    command = step.get("run", "make lint")
                    for name, value in row.items():
                        command = command.replace(f"${{{{ matrix.{name} }}}}", value)
                    assert command.split()[0] == "make" and command.split()[1] in targets


def test_every_file_that_is_named_exists():
    names = "|".join(("rank_core", "sweeps", "tests", "cluster", "docs", "ranksweep"))
    named = {
        (page.name, file)
        for page, text in CURRENT.items()
        for file in re.findall(rf"`((?:{names})/[\w./-]+?\.(?:py|md|yaml|sh|txt|toml))`", text)
    }
    assert [(page, file) for page, file in named if not (ROOT / file).exists()] == []
    assert len(named) > 10


AFTER_A_RELEASE = {"CONTRIBUTING.md": "the step behind `twine upload`"}
BY_NAME = re.compile(
    r"""\b(?:uvx|(?:pip3?|pipx|uv|poetry|conda)\b[^\n`&;|]*\b(?:install|add|run))\b[^\n`&;|]*?\s["']?
    ranksweep(?:\[[\w,-]*\])?(?:[=<>~!]=?[\w.*]+)?["']?(?!\s*@)(?=\s|$|[`;&|)])""",
    re.VERBOSE,
)


@pytest.mark.parametrize(
    ("line", "by_name"),
    [
        ("pip install ranksweep", True),
        ("python -m pip install -U 'ranksweep[sweep]==0.3.0'", True),
        ("uv add ranksweep", True),
        ("`uvx ranksweep doctor`", True),
        ("pip install .", False),
        ('pip install "ranksweep[sweep] @ https://host/commit.tar.gz"', False),
        ("pip install git+https://host/ranksweep@0123", False),
        ("pip install ranksweep.whl && ranksweep --version", False),
    ],
)
def test_an_installation_by_name_is_seen(line, by_name):
    assert bool(BY_NAME.search(line)) == by_name


def test_nothing_installs_by_the_name_of_the_package():
    """It has no release: whoever takes the name on an index would run code."""
    endings = {".md", ".py", ".yml", ".yaml", ".toml", ".sh", ".txt", ".ipynb", ".html", ".cff"}
    tops = ("rank_core", "sweeps", "ranksweep", "cluster", "docs", ".github")
    files = [path for top in tops for path in (ROOT / top).rglob("*") if path.suffix in endings]
    files += [path for path in ROOT.iterdir() if path.is_file() and path.name != "CHANGELOG.md"]
    found = {
        path.name: line.strip()
        for path in files
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if BY_NAME.search(line)
    }
    assert found.keys() == AFTER_A_RELEASE.keys(), found


def test_code_blocks_are_of_their_language():
    for path, text in TEXTS.items():
        for language, code in BLOCK.findall(text):
            if language == "python":
                ast.parse(code, f"{path.name}:\n{code}")
            elif language == "toml":
                tomllib.loads(code)
            elif language == "json":
                json.loads(code)
            else:
                assert language in ("bash", "text", "ini"), f"{path.name}: ```{language}"


def test_the_file_map_names_every_room_and_nothing_else():
    block = TEXTS[ROOT / "docs" / "architecture.md"].partition("## File map")[2].split("```")[1]
    named, stack = set(), []
    for line in block.splitlines()[1:]:
        name = line.split()[0]
        stack = [*stack[: (len(line) - len(line.lstrip())) // 2], name]
        named.add("".join(stack))
    assert [name for name in named if not (ROOT / name).exists()] == []
    rooms = {
        f"{top}/{room.name}/"
        for top in ("rank_core", "sweeps")
        for room in (ROOT / top).iterdir()
        if (room / "__init__.py").exists()
    }
    assert rooms | {"ranksweep/", "cluster/", "docs/", "tests/"} <= named


def test_names_of_settings_and_statuses_are_known():
    text = "\n".join(CURRENT.values())
    sections = "model|chunking|training|evaluation|chat"
    settings = {*re.findall(rf"`((?:{sections})\.\w+)[=`]", text)}
    assert settings - {*setting_types()} <= {"chunking.json", "model.safetensors"}  # files
    statuses = TEXTS[ROOT / "docs" / "results.md"].partition("| status |")[2].partition("\n\n")[0]
    rows = {name for row in re.findall(r"^\| (`.*?) \|", statuses, re.M) for name in words(row)}
    assert rows == {str(status) for status in TrialStatus}


def words(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_the_changelog_begins_with_this_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", TEXTS[ROOT / "CHANGELOG.md"], re.M)
    assert versions[0] == project["version"]
    assert {*re.findall(r"version[- ](\d+\.\d+\.\d+)", README)} == {project["version"]}
