"""The text of a sampler makes the same one again, or is refused."""

import pytest
from optuna.samplers import NSGAIISampler, QMCSampler, TPESampler

from rank_core.errors import BadInput
from sweeps.plan.samplers import check_sampler, sampler_of, text_of
from sweeps.plan.search_options import search_settings

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


class Mine(QMCSampler):
    pass


@pytest.mark.parametrize(
    ("sampler", "text"),
    [
        (QMCSampler(qmc_type="halton", seed=3), "QMCSampler(qmc_type='halton')"),
        (TPESampler(n_startup_trials=3, multivariate=True), "TPESampler(n_startup_trials=3, "
         "multivariate=True)"),
        (NSGAIISampler(), "NSGAIISampler()"),
    ],
)  # fmt: skip
def test_a_sampler_is_its_class_and_its_arguments(sampler, text):
    assert text_of(sampler) == text
    again = sampler_of(text, 7)
    assert type(again) is type(sampler) and text_of(again) == text
    found = search_settings({"name": text, "num_configs": 4}, ranges=True, num_seeds=1)
    assert (found.name, found.kind.proposes) == (text, True)


@pytest.mark.parametrize(
    "sampler", [TPESampler(gamma=lambda number: 2), NSGAIISampler(crossover_prob=0.5), Mine()]
)
def test_a_sampler_that_cannot_be_made_again_is_refused(sampler):
    with pytest.raises(BadInput, match=r"could not make this \w+ again.*Give its text"):
        text_of(sampler)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("QMCSampler(", "is its class"),
        ("QMCSampler(open('x'))", "named arguments"),
        ("QMCSampler(qmc_type=open)", "named arguments"),
        ("os.system('x')", "is its class"),
        ("QMCSamplr()", "did you mean QMCSampler"),
        ("QMCSampler(qmc_type='sobl')", "sobl"),
        ("QMCSampler(width=3)", "width"),
        ("QMCSampler(seed=3)", "--search-seed"),
    ],
)
def test_a_text_that_names_no_sampler_is_refused(text, message):
    with pytest.raises(BadInput, match=message):
        sampler_of(text, 0)


def test_a_sampler_whose_library_is_missing_is_refused(monkeypatch):
    def ask(*words, **options):
        raise ImportError("Tried to import 'cmaes'\nbut")

    monkeypatch.setattr("optuna.Study.ask", ask)
    with pytest.raises(BadInput, match=r"--search QMCSampler.*cmaes'$"):
        check_sampler("QMCSampler()")


def test_a_sampler_of_one_objective_is_refused_for_several():
    given = {"name": "CmaEsSampler()", "num_configs": 4}
    goals = {"objectives": "nDCG@10,tokens_per_document"}
    with pytest.raises(BadInput, match=r"CmaEsSampler\(\) seeks one objective, .* names 2"):
        search_settings(given | goals, ranges=True, num_seeds=1)
    for text in ("NSGAIISampler()", "RandomSampler()", "GridSampler(search_space={'x': [1]})"):
        search_settings(given | goals | {"name": text}, ranges=True, num_seeds=1)
