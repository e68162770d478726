"""No system mixes devices, for any kind of backbone: all score and train a step on a fake GPU."""

import shutil

import pytest

from rank_core.encoders.backbone_types import TYPES
from rank_core.encoders.packed import OWN_ATTENTION
from rank_core.models import MODELS as SYSTEMS
from rank_core.models import model_class
from rank_core.models.ranker import Ranker
from tests.contracts.fake_cuda.library import compile_library, lines_of

NO_WEIGHTS = {"bm25", "bm25-rm3", "dense", "dense-cut", "random", "rankgpt"}
"""Systems that train nothing and are built apart: terms, vectors of an embedding model, a draw, and
a chat model behind a URL."""
MODELS = sorted(set(SYSTEMS) - NO_WEIGHTS)
KINDS = [f"maxp@{kind}" for kind in sorted(TYPES)]
COPIES = {
    "maxp@deberta-v2": {"modeling_deberta_v2.py"},  # transformers' own: distances of tokens
    "maxp@longt5": {"modeling_longt5.py"},  # transformers' own: its blocks
    "maxp@big_bird": {"modeling_big_bird.py"},  # transformers' own: the masks of its blocks
}
"""{model: files whose copies to the device its host waits for, a few for each encoder call}."""
WAITS = {
    "deeprank": {"word_vectors.py"},  # finds its matches on the device
    "maxp@longformer": {"modeling_longformer.py"},  # transformers' own: whether any token is global
}
"""{model: files that ask the device}."""
PLANTED = "firstp!"  # last: it stays broken for the rest of its process

pytestmark = [
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="the fake device needs g++"),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory, backbone):
    """{model: launches or error}."""
    library = compile_library(tmp_path_factory.mktemp("fake-cuda"))
    words = (str(backbone.folder), *MODELS, *KINDS, PLANTED)
    lines = lines_of(library, "tests.contracts.fake_cuda.steps", *words)
    return {line.pop("model"): line for line in lines}


def test_every_other_system_has_weights():
    kinds = {name: model_class(name) for name in SYSTEMS}
    assert {name for name, kind in kinds.items() if not issubclass(kind, Ranker)} == NO_WEIGHTS


@pytest.mark.parametrize("name", [*MODELS, *KINDS])
def test_every_model_and_every_kind_of_backbone_stays_on_one_device(name, told):
    assert "error" not in told[name], told[name]
    assert told[name]["training"] > told[name]["scoring"] > 0


@pytest.mark.parametrize("name", [*MODELS, *KINDS])
def test_no_host_waits_for_the_device_or_a_copy_to_it(name, told):
    for kind, known in (("copies", COPIES), ("asked", WAITS)):
        places = [line.partition(": ")[2] for line in told[name][kind]]
        assert {place.partition(":")[0] for place in places} == known.get(name, set()), places


@pytest.mark.parametrize("name", MODELS)
def test_the_best_weights_are_kept_on_the_host(name, told):
    assert told[name]["best"] == ["cpu"]


@pytest.mark.parametrize("name", KINDS)
def test_kinds_that_can_read_flat_rows_do_so_on_a_gpu(name, told):
    can = name.partition("@")[2] not in OWN_ATTENTION
    assert (told[name]["flash"] > 0) == can


def test_a_planted_mix_of_devices_is_found(told):
    assert "devices" in told[PLANTED]["error"]
