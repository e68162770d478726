"""The appendix of docs/statistics.md: its worked example, recomputed from the page and by the
package."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from rank_core.stats.moderation import fitted_prior
from rank_core.stats.multiplicity import effective_number
from rank_core.stats.scopes import infer

PAGE = (Path(__file__).parents[3] / "docs" / "statistics.md").read_text(encoding="utf-8")
APPENDIX = PAGE[PAGE.index("## Formulas") :]


def example() -> dict:
    """The names that the page's code defines; it uses scipy alone."""
    code = re.search(r"```python\n(.*?)```", APPENDIX, re.DOTALL).group(1)
    assert "rank_core" not in code
    names: dict = {}
    exec(code, names)
    return names


def test_the_page_s_own_code_gives_the_numbers_of_the_package():
    found = example()
    six = {name: found[name] for name in ("delta", "V_q", "Q", "V_s", "V_e", "S")}
    test = infer(
        delta=six["delta"],
        variance_queries=six["V_q"],
        variance_seeds=(six["V_s"],),
        variance_error=(six["V_e"],),
        num_seeds=(six["S"],),
        num_queries=six["Q"],
    )
    assert found["p"] == pytest.approx(float(test.p_both), rel=1e-9)
    assert (found["u"], found["a"], found["b"]) == pytest.approx(
        (test.welch.first, test.welch.square, test.welch.cubic)
    )
    half = stats.t.isf(0.025, test.df_both) * test.se_both
    assert found["interval"] == pytest.approx((six["delta"] - half, six["delta"] + half))


def test_the_numbers_that_the_page_names_are_those_of_its_code():
    found = example()
    words = APPENDIX[APPENDIX.index("**Six numbers by hand.**") : APPENDIX.index("```python")]
    named = [float(number) for number in re.findall(r"-?\d*\.\d+(?:e-\d+)?", words)]
    bend = found["b"] - found["u"] ** 2
    critical = stats.t.ppf(0.975, found["df"](stats.norm.ppf(0.975)))
    of_code = [found["V"], found["V"] ** 0.5, found["T"], found["u"], found["a"], found["b"], bend]
    of_code += [weight for weight, _ in found["parts"]]
    of_code += [found["df"](stats.norm.ppf(0.975)), critical, *found["interval"], found["z"]]
    of_code += [found["df"](found["z"]), found["p"], stats.norm.ppf(0.975)]
    for value in of_code:
        assert any(number == pytest.approx(value, rel=2e-3) for number in named), value


def test_the_prior_solves_the_page_s_equations():
    rng = np.random.default_rng(3)
    f = np.array([2.0, 2, 4, 4, 2, 9, 2, 4])
    s2 = rng.chisquare(f) / f * np.exp([-3, 2, 1, -2, 3, 0, -1, 2])
    prior = fitted_prior(s2, f)
    e = np.log(s2) - special.digamma(f / 2) + np.log(f / 2)
    right = e.var(ddof=1) - special.polygamma(1, f / 2).mean()
    assert special.polygamma(1, prior.df / 2) == pytest.approx(right, rel=1e-10)
    expected = np.exp(e.mean() + special.digamma(prior.df / 2) - np.log(prior.df / 2))
    assert prior.variance == pytest.approx(expected)


def test_the_effective_number_that_the_page_names():
    assert "for K = 4, R = .5 and p = .01 it is 3.49" in " ".join(APPENDIX.split())
    R = 0.5 * np.ones((4, 4)) + 0.5 * np.eye(4)
    assert float(effective_number(0.01, R)) == pytest.approx(3.49, rel=0.01)
