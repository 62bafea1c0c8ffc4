import math

import numpy as np
import pytest
from scipy import stats

from reglet.runs import Interval, difference, interval, paired, seeds_needed


def test_the_interval_and_its_p_value_are_students() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 5))
    want = stats.ttest_rel(a, b)
    low, high = want.confidence_interval(0.95)
    found = difference(dict(enumerate(a)), {**dict(enumerate(b)), 7: 5.0})
    assert (found.low, found.high, found.n) == pytest.approx((low, high, 5))
    assert found.p() == pytest.approx(want.pvalue)
    assert found.p(0.7) == pytest.approx(stats.ttest_1samp(a - b, 0.7).pvalue)
    assert found.error == pytest.approx(stats.sem(a - b))


@pytest.mark.parametrize("n", [3, 5, 10])
def test_it_misses_the_mean_as_often_as_the_table_says(n: int) -> None:
    """Of 4,000 samples; three standard errors of 5 % are 1."""
    rng = np.random.default_rng(n)
    accuracies = (rng.binomial(12, 0.5, (4000, n)) - rng.binomial(12, 0.5, (4000, n))) / 300
    for samples in (rng.normal(size=(4000, n)), accuracies):
        missed = np.mean([not (seen := interval(list(x))).low <= 0 <= seen.high for x in samples])
        assert 0.035 < missed < 0.062


def test_one_seed_tells_nothing_and_equal_ones_all() -> None:
    assert (interval([3.0]).low, interval([3.0]).high, interval([3.0]).p()) == (-math.inf, math.inf, 1.0)
    same = interval([0.3, 0.1 + 0.2, 0.3])
    assert (same.low, same.high) == (same.mean, same.mean)
    assert (same.p(), same.p(same.mean)) == (0.0, 1.0)


def test_two_runs_of_the_same_cannot_be_told() -> None:
    result = paired([0.5, 0.6, 0.7, 0.5, 0.4], [0.5, 0.6, 0.7, 0.5, 0.4])
    assert (result.difference, result.low, result.high, result.p) == (0, 0, 0, 1)
    assert (result.verdict, result.seeds_needed) == ("cannot be told", None)


def test_an_effect_is_found_and_has_the_right_sign() -> None:
    base, more = [0.5] * 6, list(0.55 + 0.01 * np.random.default_rng(1).normal(size=6))
    assert paired(base, more).verdict == "helps"
    assert paired(more, base).verdict == "hurts"
    assert paired(base, more, larger_is_better=False).verdict == "hurts"


def test_three_seeds_decide_nothing() -> None:
    assert paired([0.0, 0.0, 0.0], [1.0, 1.1, 0.9]).verdict == "cannot be told"


@pytest.mark.parametrize(("effect", "level"), [(1.0, 0.05), (0.3, 0.05), (0.3, 0.005), (5.0, 0.05)])
def test_the_seeds_needed_have_the_power_and_one_less_has_not(effect: float, level: float) -> None:
    seen = interval([1.0, 2.0, 3.0, 4.0, -5.0, 2.0])
    spread = seen.error * math.sqrt(6)
    n = seeds_needed(seen, effect * spread, level=level)
    assert n is not None

    def power(n: int) -> float:
        return float(stats.nct.sf(stats.t.ppf(1 - level / 2, n - 1), n - 1, effect * math.sqrt(n)))

    assert power(n) >= 0.8
    assert n == 4 or power(n - 1) < 0.8


def test_no_number_of_seeds_finds_nothing() -> None:
    assert seeds_needed(Interval(0.0, -1.0, 1.0, 5), 1e-4) is None
    assert seeds_needed(interval([1.0]), 1.0) is None


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 2.0]), ([math.nan], [1.0])])
def test_bad_input(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match=r"needed|finite"):
        paired(a, b)
