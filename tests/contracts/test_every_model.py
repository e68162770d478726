"""Laws that hold for every entry of `MODELS`, so also for one that is added tomorrow: those of
`rank_core.testing`, which a model from outside keeps as well, and what is known of ours."""

import pytest

from rank_core.errors import BadInput
from rank_core.models import MODELS as SYSTEMS
from rank_core.models import list_rankers, model_class, parade
from rank_core.models.key_blocks import LEARNED
from rank_core.models.list_rankers import ListRanker
from rank_core.models.parade import ParadeAvg
from rank_core.models.qds import PATTERNS
from rank_core.models.ranker import Ranker
from rank_core.models.ranking_system import GROUPS, RankingSystem
from rank_core.settings.config import Chunking
from rank_core.testing.author import left_to_do, num_parameters, over_bert_base
from rank_core.testing.laws import tokens
from rank_core.testing.test_model import *  # noqa: F403
from rank_core.testing.test_model import KnownExceptions, made
from sweeps.plan.profiles import PROFILES
from tests.contracts.small_backbones import write_backbone

MODELS = {name: kind for name in SYSTEMS if issubclass(kind := model_class(name), Ranker)}
KNOWN = {
    # Chunk scores are summed, with their rounding errors.
    "sump": KnownExceptions(rounding=1e-1),
    # Large random weights over chunk vectors enlarge their rounding, a bi-encoder's scale its own.
    "bi-encoder": KnownExceptions(rounding=0.5, draws=False, judge="bi-encoder"),
    "late-interaction": KnownExceptions(judge="late-interaction"),
    "mores": KnownExceptions(rounding=0.08),
    "parade-transformer-pretrained": KnownExceptions(rounding=0.03),
    "parade-transformer-query": KnownExceptions(rounding=0.06),
    # Kernels use small differences, and rounding may move a count across a bin's edge.
    "cedr-knrm": KnownExceptions(rounding=0.05),
    "tkl": KnownExceptions(rounding=0.05),
    "cedr-drmm": KnownExceptions(rounding=1.0),
    "cedr-pacrr": KnownExceptions(spread=0.005),
    "co-pacrr": KnownExceptions(spread=0.004, rounds=False),
    "deeprank": KnownExceptions(spread=0.02, rounds=False),
}


QUIRKS = {
    quirk: f"{name} quirks={','.join(quirks)}"
    for profile in PROFILES.values()
    for name, quirks in profile.quirks.items()
    for quirk in quirks
}
"""A state with each quirk; all of them: tests/rank_core/models/test_by_hand.py."""
SELECTORS = ("tfidf", "random", "first-last-sampled", *LEARNED)
STATES = [
    *(f"keyb selector={selector}" for selector in SELECTORS),
    "keyb-parade k=3 selector=learned-shared",
    *(f"idcm stage={stage}" for stage in ("passages", "student")),
    *(f"qds selector={pattern}" for pattern in PATTERNS),
    *(f"parade-transformer-{kind} aggregator=ELECTRA" for kind in ("pretrained", "query")),
    "parade-late-interaction aggregator=ELECTRA interaction=BERT",
    "late-interaction maxsim=window",
    *sorted({*QUIRKS.values()}),
]
"""Models in other states than their default one."""
LONG_TEXTS = {f"d{size}": tokens(size, size) for size in (0, 1, 64, 130, 255, 300)}
"""Documents that key blocks and the student select from: 122 tokens or less are read whole."""
OF_STATES = ("test_a_score_does_not", "test_inputs_at")
"""The beginnings of the names of laws for all states."""
OF_TRAINED_STATES = ("test_a_gradient_reaches", "test_the_fast_path")
"""Those of laws for states whose scores train: the student's do not."""


def pytest_generate_tests(metafunc):
    """The laws that were imported above run on every model, and some, which are slow, on states."""
    if "subject" in metafunc.fixturenames:
        law = metafunc.function.__name__
        states = STATES if law.startswith(OF_STATES + OF_TRAINED_STATES) else []
        if law.startswith(OF_TRAINED_STATES):
            states = [state for state in states if "student" not in state]
        slow = [pytest.param(state, marks=pytest.mark.slow) for state in states]
        metafunc.parametrize("name", [*sorted(MODELS), *slow], scope="module")


@pytest.fixture(scope="module")
def seconds(tmp_path_factory):
    """Second encoders of another width than the backbone's: one embeds in 12 dimensions."""
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in ("bert", "electra")}
    for kind, folder in folders.items():
        write_backbone(kind, folder)
    return folders


@pytest.fixture(scope="module")
def subject(name, backbone, seconds):
    """A model, over long documents where its state is about what it selects."""
    for kind, folder in seconds.items():
        name = name.replace(kind.upper(), str(folder))
    if " " in name and name.startswith(("keyb", "idcm")):
        return made(name, backbone, Chunking(40, 30, max_document_tokens=400), LONG_TEXTS)
    return made(name, backbone)


@pytest.fixture
def known(name):
    default = KnownExceptions(spread=1e-3, rounding=0.1) if " " in name else KnownExceptions()
    return KNOWN.get(name, KNOWN.get(name.partition(" ")[0], default))


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_every_system_has_a_paper_a_family_and_a_label_of_its_own(name):
    kind = model_class(name)
    for text in (kind.label, kind.paper, kind.family):
        assert isinstance(text, str) and text.strip()
    assert [other for other in SYSTEMS if model_class(other).label == kind.label] == [name]


@pytest.mark.parametrize("name", sorted(MODELS))
def test_nothing_is_left_to_do_for_a_model_of_ours(name):
    assert [*left_to_do(name)] == []


def test_check_says_what_is_left_to_do(monkeypatch):
    class Hasty(ParadeAvg):
        label, paper, rates = "Hasty", "nobody 2030", ("backbone", "head", "aggregator")
        one_chunk_is_first = False

    monkeypatch.setattr(parade, "Hasty", Hasty, raising=False)
    monkeypatch.setitem(SYSTEMS, "hasty", "rank_core.models.parade:Hasty")
    docstring, citation, name, rate = left_to_do("hasty")
    assert "docstring" in docstring and "title and venue of nobody 2030" in citation
    assert name.startswith("`one_chunk_is_first` is read") and "`one_chunk_is_firstp`?" in name
    assert "'aggregator'" in rate and "training.aggregator_learning_rate" in rate


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_what_is_set_on_a_class_is_a_fact_of_a_group(name):
    facts = {fact for group in GROUPS.values() for fact in group.__annotations__}
    identity = {"label", "paper", "family", "citation", "by_chunks", "keeps_chunk_scores"}
    for base in model_class(name).__mro__:
        if issubclass(base, RankingSystem) and base.__module__ not in (
            RankingSystem.__module__, Ranker.__module__, ListRanker.__module__
        ):  # fmt: skip
            plain = {key for key, value in vars(base).items() if is_plain(key, value)}
            assert plain - facts <= identity, base


def is_plain(name, value):
    """True for an attribute that is neither a method, nor private, nor a published constant."""
    return not (name.startswith("_") or name.isupper() or callable(value)
                or isinstance(value, (classmethod, staticmethod, property)))  # fmt: skip


@pytest.mark.parametrize("value", [None, " ", 3])
@pytest.mark.parametrize(
    ("base", "field"), [(Ranker, "label"), (Ranker, "paper"), (ListRanker, "family")]
)
def test_a_system_without_one_of_these_texts_is_refused_by_name(base, field, value, monkeypatch):
    texts = {"label": "Nameless", "paper": "nobody", "family": "baselines", field: value}
    if value is None and not hasattr(base, field):
        del texts[field]
    monkeypatch.setattr(list_rankers, "Nameless", type("Nameless", (base,), texts), raising=False)
    monkeypatch.setitem(SYSTEMS, "nameless", "rank_core.models.list_rankers:Nameless")
    with pytest.raises(
        BadInput, match=rf"model nameless: Nameless\.{field} must be a non-empty text"
    ):
        model_class("nameless")


# Published for BERT-base with its pooler, which ranking does not use and we do not build:
# 109,482,240 for BERT and 769 for the head.
POOLER = 768 * 768 + 768
ONE_SCORE = 109_483_009 - POOLER
# The published RAND-L2 aggregator is a whole 2-layer BertModel beside C and SEP (2 x 768); chunk
# vectors enter it as embeddings, so its word table and its pooler are dead weight we do not build.
WORD_TABLE = 30_522 * 768
TK_LAYERS = 2 * (4 * (768 * 768 + 768) + 768 * 300 + 300 + 300 * 768 + 768 + 4 * 768)
# A random aggregator: 512 positions, 2 segments and a norm, then layers of 4 square maps, a
# feed-forward block of 3072 and 2 norms.
EMBEDDED = (512 + 2 + 2) * 768
LAYER = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
SIZES = {
    "parade-attn": ONE_SCORE + 768,  # one vector
    "parade-transformer": 148_088_065 - POOLER - WORD_TABLE - POOLER,
    "parade-transformer-l3": 148_088_065 - POOLER - WORD_TABLE - POOLER + LAYER,
    # Two random layers where no second encoder is named; C and SEP beside each.
    "parade-transformer-pretrained": ONE_SCORE + EMBEDDED + 2 * LAYER + 2 * 768,
    "parade-transformer-query": ONE_SCORE + EMBEDDED + 2 * LAYER + 2 * 768,
    "parade-late-interaction": ONE_SCORE + 2 * (EMBEDDED + 2 * LAYER + 2 * 768),
    "parade-cnn": ONE_SCORE + 2 * 768 * 768 + 768,  # one filter of width 2
    "keyb-parade": 148_088_065 - POOLER - WORD_TABLE - POOLER,
    "idcm": ONE_SCORE + 3,  # the weights of the three best chunks
    "qds": ONE_SCORE + 2 * POOLER,  # two layers between [CLS] and the head
    "bi-encoder": ONE_SCORE - 769 + 1,  # the scale of a cosine instead of a head
    "late-interaction": ONE_SCORE - 769 + 128 * 768,  # a projection of tokens
    # Two layers with a second attention each.
    "mores": ONE_SCORE + 2 * (LAYER + 4 * (768 * 768 + 768) + 2 * 768),
    "cedr-knrm": 109_483_174 - POOLER,
    "cedr-drmm": 109_486_806 - POOLER,
    "cedr-pacrr": 109_520_001 - POOLER,
    # 32 hidden numbers of three vectors and a bias, and 32 -> 1.
    "neural-model1": ONE_SCORE - 769 + 3 * 768 * 32 + 32 + 33,
    # These have the word table instead of BERT. TK: two layers of four projections, 768 -> 300 ->
    # 768 and two norms, a mixing weight and 11 kernels; TKL also one number of a vector, three
    # saturations of two numbers and the weights of 15 windows.
    "tk": WORD_TABLE + TK_LAYERS + 1 + 11,
    "tkl": WORD_TABLE + TK_LAYERS + 1 + 11 + 768 + 9 + 15,
    # Filters of 2 and 3 tokens, a weight per vector, and 32 tokens x 49 features -> 100 -> 10 -> 1.
    "co-pacrr": WORD_TABLE + 32 * (4 + 9) + 64 + 768 + 32 * 49 * 100 + 100 + 1_010 + 10,
    # Three numbers of a vector, 4 maps of 3 x 3 x 3, a GRU of 3 over 5 numbers, and 3 -> 1.
    "deeprank": WORD_TABLE + 3 * 768 + 4 * 27 + 4 + 3 * (3 * 5 + 3 * 3 + 6) + 4,
}


def test_a_model_over_bert_base_has_the_published_number_of_parameters(backbone):
    """Also FirstP's where neither its class nor the table above says another one."""
    for name, kind in MODELS.items():
        expected = kind.num_parameters or SIZES.get(name, ONE_SCORE)
        assert num_parameters(over_bert_base(name, backbone)) == expected, name
