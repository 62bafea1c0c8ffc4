import math

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from reglet.diagnostics import loss_accuracy_correlation


@pytest.mark.parametrize("seed", range(3))
def test_equals_scipy_ties_included(seed: int) -> None:
    rng = np.random.default_rng(seed)
    loss = np.round(rng.normal(size=30), 1)
    accuracy = np.round(-loss + rng.normal(size=30), 1)
    r = loss_accuracy_correlation(list(loss), list(accuracy))
    assert r.pearson == pytest.approx(pearsonr(loss, accuracy).statistic)
    assert r.spearman == pytest.approx(spearmanr(loss, accuracy).statistic)


def test_what_does_not_vary_correlates_with_nothing() -> None:
    r = loss_accuracy_correlation([1.0, 2.0, 3.0], [0.5, 0.5, 0.5])
    assert math.isnan(r.pearson)
    assert math.isnan(r.spearman)
    with pytest.raises(ValueError, match=r"\(3,\) and \(2,\)"):
        loss_accuracy_correlation([1.0, 2.0, 3.0], [0.5, 0.5])
