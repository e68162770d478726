"""The simulation beside published studies: its tests are those of scipy, its systems equal."""

import json

import numpy as np
import pytest
from scipy import stats

from tests.benchmarks import published_studies as studies


@pytest.fixture(scope="module")
def drawn() -> np.ndarray:
    shape = studies.SHAPES["RR, another shape"]
    return studies.differences(np.random.default_rng(3), 60, 40, shape)[:, 0]


@pytest.mark.parametrize("name", studies.SHAPES)
def test_two_systems_have_one_mean_and_perhaps_another_shape(name):
    d = studies.differences(np.random.default_rng(4), 40, 50_000, studies.SHAPES[name])
    assert d.mean() == pytest.approx(0, abs=4 * d.std() / np.sqrt(d.size))
    above, below = (d > 0).mean(), (d < 0).mean()
    assert (abs(above - below) > 0.02) == ("another" in name)


def test_the_tests_are_those_of_scipy(drawn):
    assert (drawn == 0).any()
    for d, t, w, s in zip(
        drawn, studies.t_p(drawn), studies.wilcoxon_p(drawn), studies.sign_p(drawn), strict=True
    ):
        assert t == pytest.approx(stats.ttest_1samp(d, 0).pvalue)
        own = stats.wilcoxon(d, zero_method="wilcox", correction=False, method="approx")
        assert w == pytest.approx(own.pvalue)
        above, below = int((d > 0).sum()), int((d < 0).sum())
        assert s == pytest.approx(stats.binomtest(above, above + below).pvalue)


def test_the_resampling_tests_are_close_to_scipys(drawn):
    p = studies.permutation_p(np.random.default_rng(5), drawn[:5])
    q = studies.bootstrap_p(np.random.default_rng(6), drawn[:5])
    for d, own, other in zip(drawn[:5], p, q, strict=True):
        exact = stats.permutation_test(
            (d,), np.mean, permutation_type="samples", n_resamples=4000, rng=7
        )
        assert own == pytest.approx(exact.pvalue, abs=0.06)
        assert other == pytest.approx(exact.pvalue, abs=0.12)


@pytest.mark.slow
def test_the_command_prints_and_writes_its_sections(tmp_path, capsys):
    file = tmp_path / "studies.json"
    studies.main(["--simulations", "20", "--json", str(file)])
    sections = json.loads(file.read_text())["sections"]
    assert [len(section["rows"]) for section in sections] == [2, 12, 24, 24]
    assert capsys.readouterr().out.count("\n## ") == 4
    [skewed] = [row for row in sections[1]["rows"] if row[:2] == ["another shape", 5000]]
    assert skewed[3] > 0.5 > skewed[2]  # Wilcoxon finds what the means do not have
