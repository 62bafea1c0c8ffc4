"""Paired by image: closed forms, an oracle by hand, how often the interval is right, and bad input."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from reglet.diagnostics import rankme
from reglet.runs.by_image import _sign_flips, by_image, correct_images, mcnemar, statistic_by_image, tell
from reglet.runs.verdict import holm


def test_mcnemar_is_the_exact_binomial_test() -> None:
    for gained, lost in itertools.product(range(0, 30, 3), range(0, 30, 4)):
        if gained + lost:
            assert mcnemar(gained, lost) == pytest.approx(binomtest(gained, gained + lost, 0.5).pvalue, rel=1e-12)


def test_random_sign_flips_agree_with_mcnemar_on_zeros_and_ones() -> None:
    d = np.array([1.0] * 14 + [-1.0] * 5 + [0.0] * 40)
    assert _sign_flips(d, 0) == pytest.approx(mcnemar(14, 5), abs=4 * math.sqrt(0.06 * 0.94 / 9_999))


def test_sign_flips_of_few_images_agree_with_all_of_them() -> None:
    d = np.array([0.3, 0.1, -0.2, 0.5, 0.25, 0.4, -0.05, 0.15])
    every = [abs(np.dot(s, d)) for s in itertools.product((-1, 1), repeat=len(d))]
    exact = np.mean([value >= abs(d.sum()) - 1e-12 for value in every])
    assert _sign_flips(d, 1) == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 9_999) + 1e-4)


def test_the_interval_is_that_of_images_drawn_again() -> None:
    random = np.random.default_rng(3)
    a, b = random.random(60), random.random(60)
    d = b - a
    means = [d[random.integers(0, 60, 60)].mean() for _ in range(20_000)]
    seen = by_image(torch.from_numpy(a), torch.from_numpy(b), draws=20_000)
    assert seen.difference == pytest.approx(d.mean())
    assert (seen.low, seen.high) == pytest.approx(tuple(np.quantile(means, (0.025, 0.975))), abs=0.004)


def test_pairing_narrows_what_images_share() -> None:
    """Half of the images are hard for both: an interval of two independent shares would not see that."""
    base = torch.cat([torch.zeros(200), torch.ones(200)])
    candidate = base.clone()
    candidate[:12] = 1
    seen = by_image(base, candidate)
    alone = 2 * 1.96 * math.sqrt(2 * 0.25 / 400)
    assert seen.high - seen.low < alone / 2
    assert seen.told() == "better"
    assert by_image(candidate, base).told() == "worse"
    assert (seen.gained, seen.lost) == (12, 0)


def test_nothing_is_told_too_often_where_nothing_is() -> None:
    """200 pairs without a difference: 5 % of them would be 10.  A table of four, corrected, holds 5 % as a whole."""
    random = np.random.default_rng(0)
    wrong = tables = 0
    for i in range(200):
        rows = []
        for _ in range(4):
            a, b = (torch.from_numpy((random.random(150) < 0.7).astype(float)) for _ in range(2))
            rows.append(by_image(a, b, seed=i, draws=400))
        wrong += rows[0].told() != "cannot be told"
        tables += any(word != "cannot be told" for _, word in tell(rows))
    assert wrong <= 18
    assert tables <= 18


def test_the_spread_of_a_rank_is_that_of_new_images() -> None:
    """Delete-half against what happens when whole new sets of images are drawn."""
    scale = torch.linspace(1, 0.1, 10)

    def drawn(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(400, 10, generator=torch.Generator().manual_seed(seed))
        return x, x * scale

    def difference(seed: int) -> float:
        a, b = drawn(seed)
        return rankme(b) - rankme(a)

    truth = np.std([difference(seed) for seed in range(1, 120)])
    seen = statistic_by_image(rankme, *drawn(0), halves=200)
    assert 0.7 < (seen.high - seen.low) / (2 * 1.96 * truth) < 1.4
    assert seen.low < seen.difference < seen.high < 0
    assert seen.told() == "none"


def test_the_same_seed_says_the_same() -> None:
    a, b = torch.rand(50, dtype=torch.float64), torch.rand(50, dtype=torch.float64)
    assert by_image(a, b, seed=5) == by_image(a, b, seed=5)
    same = by_image(a, a)
    assert (same.low, same.high, same.p, same.told()) == (0, 0, 1, "cannot be told")


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03, 0.005]) == pytest.approx([0.06, 0.03, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_a_table_is_corrected_together() -> None:
    a, b = torch.zeros(100), torch.zeros(100)
    b[:6] = 1  # p = 1/32
    alone = by_image(a, b)
    assert alone.told() == "better"
    assert tell([alone, by_image(a, a)]) == [(0.0625, "cannot be told"), (1.0, "cannot be told")]


def test_correctness_from_scores_or_guesses() -> None:
    labels = torch.tensor([0, 1, 1])
    scores = torch.tensor([[0.2, 0.1], [0.3, 0.4], [0.9, 0.1]])
    assert correct_images(scores, labels).tolist() == correct_images(scores.argmax(1), labels).tolist() == [1, 1, 0]


def test_bad_input_says_what_was_wanted() -> None:
    with pytest.raises(ValueError, match="two scores for each image"):
        by_image(torch.zeros(3), torch.zeros(4))
    with pytest.raises(ValueError, match="two scores for each image"):
        by_image(torch.zeros(0), torch.zeros(0))
    with pytest.raises(ValueError, match="not finite"):
        by_image(torch.tensor([math.nan]), torch.zeros(1))
    with pytest.raises(ValueError, match="a guess for each label"):
        correct_images(torch.zeros(3, 2), torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match="same four or more images"):
        statistic_by_image(rankme, torch.zeros(5, 2), torch.zeros(6, 2))
    with pytest.raises(ValueError, match="counts of images"):
        mcnemar(-1, 2)
