"""A published study with random readers and random cases: our paired test is its analysis.

Van Dyke et al. (1993) compared two kinds of magnetic resonance images for the detection of aortic
dissection: five readers rated 114 patients from 1 to 5 with both, 69 of them without a dissection
and 45 with one. The ratings are distributed with the R packages RJafroc (dataset02) and MRMCaov.
The measure is the area under the ROC curve. Its jackknife pseudo-values make it a mean over
patients (Dorfman, Berbaum and Metz 1992), so readers stand where training runs stand here, patients
where queries do, and both kinds of images are read by the same readers: paired seeds.
"""

import numpy as np
import pytest

from rank_core.stats.scopes import paired_scope_test

# A line per reader: 69 patients without a dissection, 45 with one.
SPIN_ECHO = """
122151111111411111111131311214111113121211233131133111111221111332111 \
555545554555434245555555154454553555115554451
232222222322522232222222422223222222222222222222222222222432232222222 \
535555542555442225555555243354552425225555352
222235112242422232221232411322112224121412112222223211211221151421212 \
545555555555542355555555252255552555225555552
111111311111111111112111211112111111111111111111331111111111111311111 \
555555555555555155555555554544553555125555555
351211112221211122113221111211211231221113332111211111111341231212113 \
525255551545452235555554144322151515115553552
"""
CINE = """
333222223213122222211111421312214323123122233111333113412421241442111 \
535555554555544335555555355355554455535555551
322222223222222122221222322222212212222231223222222222322322222222122 \
535555552555344245455545252355532425525555552
242222322211132222121121411512112122212221132111233113221232341242121 \
525555555555354145555555253355543555534555551
221111312111122111211111321212111122112111112121212211111212111323211 \
545555554555455555555555455445555555535555555
223122221222111222122212322321212222112121132122332122221222231233111 \
525455555455343335555555251332532545533555553
"""
HEALTHY = 69


def pseudo_values(ratings: str) -> np.ndarray:
    """The pseudo-values of the area under the curve, (readers, patients)."""
    rows = ratings.replace(" ", "").split()
    return np.array([_of_reader(np.array(list(row), dtype=int)) for row in rows])


def _of_reader(rating: np.ndarray) -> np.ndarray:
    healthy, ill = rating[:HEALTHY, None], rating[HEALTHY:]
    wins = (ill > healthy) + 0.5 * (ill == healthy)
    num_healthy, num_ill = wins.shape
    num = num_healthy + num_ill
    without_healthy = (wins.sum() - wins.sum(axis=1)) / ((num_healthy - 1) * num_ill)
    without_ill = (wins.sum() - wins.sum(axis=0)) / (num_healthy * (num_ill - 1))
    return num * wins.mean() - (num - 1) * np.append(without_healthy, without_ill)


def test_the_means_errors_and_p_are_those_of_the_published_analysis():
    """By the Obuchowski-Rockette program, whose output for this study comes with RJafroc."""
    cine, spin_echo = pseudo_values(CINE), pseudo_values(SPIN_ECHO)
    assert (spin_echo.mean(), cine.mean()) == pytest.approx((0.89703704, 0.94083736), abs=5e-9)
    test = paired_scope_test(cine, spin_echo)
    assert test.delta == pytest.approx(0.04380032, abs=5e-9)
    assert test.se_both == pytest.approx(0.02075, abs=5e-6)
    assert (test.delta / test.se_both) ** 2 == pytest.approx(4.46, abs=5e-3)
    assert test.se_queries == pytest.approx(0.01872, abs=5e-6)  # readers fixed
    assert (test.se_seeds, test.df_seeds) == pytest.approx((0.01485, 4), abs=5e-6)  # patients fixed
    assert test.p_seeds == pytest.approx(0.0420, abs=5e-5)
    # Published is .0517, by Hillis's 15.26 degrees of freedom. Satterthwaite's 13.96 give .0533,
    # Welch's second-order 12.11 the p of this package.
    assert test.welch.satterthwaite == pytest.approx(13.961, abs=5e-4)
    assert test.df_both == pytest.approx(12.106, abs=5e-4)
    assert test.p_both == pytest.approx(0.0560, abs=5e-5)
