import importlib
import sys

import pytest

from rank_core import own_code
from rank_core.errors import BadInput
from rank_core.own_code import is_reference, load, path_of, portable, source_hash, travelling

OURS = {"ours": "rank_core.errors:BadInput"}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes modules into a folder that is on the path, and forgets what was known of others."""
    before = set(sys.modules)

    def put(files, folder="."):
        for name, text in files.items():
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.syspath_prepend(tmp_path / folder)
        source_hash.cache_clear()
        own_code._is_own.cache_clear()
        own_code.announced.cache_clear()
        importlib.invalidate_caches()

    yield put
    own_code.announced.cache_clear()
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("my_pkg.my_module:MyRanker", True),
        ("maxp", False),
        ("ir:beir/nfcorpus", False),
        ("s3://bucket/x", False),
        ("my-pkg:f", False),
        ("a..b:c", False),
    ],
)
def test_a_reference_is_a_module_and_a_name(name, expected):
    assert is_reference(name) == expected


def test_a_name_is_looked_up_in_the_registry_then_as_a_reference_then_among_entry_points(write):
    write({"w-1.dist-info/entry_points.txt": "[ranksweep.models]\nmine = w_models:Mine\n"})
    assert path_of("model", "ours", OURS) == OURS["ours"]
    assert path_of("model", "a.b:C", OURS) == "a.b:C"
    assert path_of("model", "mine", OURS) == "w_models:Mine"
    message = r"unknown model 'min'; did you mean mine\? Known: mine, ours; .* module:name"
    with pytest.raises(BadInput, match=message):
        path_of("model", "min", OURS)
    # Every process knows a name of the package; of another one it needs the module.
    assert portable("model", "ours", OURS) == "ours"
    assert portable("model", "mine", OURS) == "w_models:Mine"
    assert portable("model", "late", OURS | {"late": "w_models:Late"}) == "w_models:Late"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("o_none:X", r"model o_none:X: no module o_none; install it"),
        ("o_bad:X", r"o_bad cannot be imported: .*o_bad\.py:2: SyntaxError"),
        ("o_needs:X", r"o_needs cannot be imported: .*o_needs\.py:1: .*No module named 'o_absent'"),
        ("o_raises:X", r"o_raises cannot be imported: .*o_raises\.py:3: ZeroDivisionError"),
        ("o_exits:X", r"o_exits cannot be imported: .*o_exits\.py:2: SystemExit: 3"),
        ("o_good:Y", r"unknown name in o_good 'Y'; known: X"),
        ("rank_core.o_none:X", r"no module rank_core.o_none"),
        ("__main__:X", r"import from __main__; name the file, as in \w+:X"),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_its_place(write, path, message):
    write(
        {
            "o_bad.py": "x = 1\ndef f(:\n",
            "o_needs.py": "import o_absent\n",
            "o_raises.py": "def f():\n    pass\nprint(1 / 0)\n",
            "o_exits.py": "import sys\nsys.exit(3)\n",
            "o_good.py": "class X: ...\n",
        }
    )
    with pytest.raises(BadInput, match=message):
        load("model", path)


SOURCES = {
    "h_model.py": "import torch\nfrom h_helper import f\nimport h_pkg.part\nclass X: ...\n",
    "h_helper.py": "def f(): ...\n",
    "h_pkg/__init__.py": "",
    "h_pkg/part.py": "from . import other\nfrom .deep import thing\n",
    "h_pkg/other.py": "",
    "h_pkg/deep/__init__.py": "thing = 1\n",
    "h_pkg/unused.py": "",
    "h_else.py": "",
}


def test_the_hash_follows_the_class_and_all_own_modules_that_it_imports(write):
    write(SOURCES)
    assert load("model", "h_model:X").__name__ == "X"
    first = source_hash("h_model:X")
    assert first != source_hash("h_model:f")
    changes = {}
    for name in SOURCES:
        write({name: SOURCES[name] + "# changed\n"})
        changes[name] = source_hash("h_model:X") != first
        write({name: SOURCES[name]})
        assert source_hash("h_model:X") == first
    read = [name for name, changed in changes.items() if changed]
    assert read == [name for name in SOURCES if name not in ("h_pkg/unused.py", "h_else.py")]
    # A line that moves from the end of a module to the start of the next is a change.
    write({"h_helper.py": SOURCES["h_helper.py"] + "# moved\n"})
    before = source_hash("h_model:X")
    write(
        {"h_helper.py": SOURCES["h_helper.py"], "h_model.py": "# moved\n" + SOURCES["h_model.py"]}
    )
    assert source_hash("h_model:X") != before


def test_modules_and_whole_packages_travel_and_what_is_installed_does_not(write, tmp_path):
    write(SOURCES)
    load("model", "h_model:X")
    names = ("h_helper.py", "h_model.py", "h_pkg")
    assert travelling(["h_model:X"]) == tuple(str(tmp_path.resolve() / name) for name in names)
    write({"h_inst/__init__.py": "import h_other\nX = 1\n", "h_other.py": ""}, "site-packages")
    load("model", "h_inst:X")
    assert travelling(["h_inst:X"]) == ()


def test_the_door_is_ours_as_the_library_is_and_does_not_travel(write, tmp_path):
    write({"h_door.py": "from ranksweep import Ranker\nimport rank_core\nclass X: ...\n"})
    assert travelling(["h_door:X"]) == (str(tmp_path.resolve() / "h_door.py"),)


def test_the_folder_of_a_command_joins_the_path_with_a_user_s_name_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.setattr(own_code, "_typed_in", [])
    (tmp_path / "t_here.py").write_text("class X: ...\n")
    own_code.see_modules_of(str(tmp_path))
    load("model", OURS["ours"], lambda one: True)
    with own_code.only_named(()), pytest.raises(BadInput, match="named by the data alone"):
        load("measure", "t_here:X")
    assert str(tmp_path) not in sys.path and "t_here" not in sys.modules
    with own_code.only_named(["t_here:X"]):
        assert load("measure", "t_here:X").__name__ == "X"
    assert sys.path[-1] == str(tmp_path)
    del sys.modules["t_here"]


def test_a_module_is_found_without_an_import_of_the_packages_above_it(write):
    write(
        {"f_pkg/__init__.py": "raise SystemExit", "f_pkg/inner/part.py": "", "f_bare/part.py": ""}
    )
    for name in ("f_pkg.inner.part", "f_bare.part"):
        assert own_code._file_of(name).name == "part.py"
    assert own_code._file_of("f_pkg.none") is None and own_code._file_of("f_none.part") is None
    assert not [name for name in sys.modules if name.startswith(("f_pkg", "f_bare"))]
