import math

import numpy as np
import pytest
from scipy import stats

from reglet.diagnostics.paired import bootstrap_t, paired, seeds_needed, sign_test


@pytest.mark.parametrize("d", [[1, 2, 3, -1, 0], [1] * 7, [-1, -2, 3], [0.0, 0.0], list(range(-3, 9))])
def test_the_sign_test_is_scipys(d: list[float]) -> None:
    x = np.array(d, dtype=float)
    up, n = int((x > 0).sum()), int((x != 0).sum())
    want = stats.binomtest(up, n).pvalue if n else 1.0
    assert sign_test(x) == pytest.approx(want)


def test_two_runs_of_the_same_cannot_be_told() -> None:
    result = paired([0.5, 0.6, 0.7, 0.5, 0.4], [0.5, 0.6, 0.7, 0.5, 0.4])
    assert (result.difference, result.low, result.high, result.sign_p) == (0, 0, 0, 1)
    assert result.verdict == "cannot be told"
    assert result.seeds_needed is None


def test_of_noise_alone_one_in_twenty_is_called_an_effect() -> None:
    rng = np.random.default_rng(0)
    for n in (4, 5, 8):
        called = 0
        for _ in range(400):
            a, b = rng.normal(size=(2, n))
            called += paired(list(a), list(b)).verdict != "cannot be told"
        assert called / 400 < 0.09, "5 %, and three standard errors of 400 trials and what bootstrap-t exceeds it by"


def test_an_effect_is_found_and_has_the_right_sign() -> None:
    rng = np.random.default_rng(1)
    noise = 0.01 * rng.normal(size=6)
    base = [0.5] * 6
    up = paired(base, list(0.55 + noise))
    assert up.verdict == "helps"
    assert up.low < up.difference < up.high
    assert up.low > 0
    assert paired(list(0.55 + noise), base).verdict == "hurts"
    assert paired(base, list(0.55 + noise), larger_is_better=False).verdict == "hurts"


def test_three_seeds_decide_nothing() -> None:
    assert paired([0.0, 0.0, 0.0], [1.0, 1.1, 0.9]).verdict == "cannot be told"


def test_the_number_of_seeds_is_that_of_a_power_calculation() -> None:
    d = np.array([1.0, 2.0, 3.0, 4.0, -5.0, 2.0])
    n = seeds_needed(d)
    assert n is not None
    effect = abs(d.mean()) / d.std(ddof=1)

    def power(n: int) -> float:
        beyond = stats.t.ppf(0.975, n - 1)
        return float(stats.nct.sf(beyond, n - 1, effect * math.sqrt(n)))

    assert power(n) >= 0.79
    assert power(n - 4) < 0.8


def test_an_interval_by_hand() -> None:
    """n = 2: the resamples that vary are (d0, d1) and (d1, d0), both with m* = m, so t = 0 and the interval is m."""
    assert bootstrap_t(np.array([1.0, 3.0])) == (2.0, 2.0)


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 2.0]), ([math.nan], [1.0])])
def test_bad_input(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match=r"needed|finite"):
        paired(a, b)
