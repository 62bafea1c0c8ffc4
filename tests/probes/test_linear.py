import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from tests.probes.blobs import blobs
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from reglet import check
from reglet.probes import linear_probe, logistic_regression, ridge_probe, standard
from reglet.probes.holdout import split


@pytest.mark.parametrize("strength", [1e-3, 1e-1, 10.0])
def test_equals_scikit_learn(strength: float) -> None:
    x, y = blobs(120, 6)
    w, b = logistic_regression(x, y, strength=strength, tolerance=1e-7)
    theirs = LogisticRegression(C=1 / (len(x) * strength), tol=1e-8, max_iter=5000).fit(x.double(), y)
    torch.testing.assert_close(w, torch.from_numpy(theirs.coef_), rtol=1e-3, atol=1e-4)  # two solvers, each at 1e-7
    # The bias is free of penalty, so a constant on all classes changes nothing: compare the contrasts.
    theirs_b = torch.from_numpy(theirs.intercept_)
    torch.testing.assert_close(b - b.mean(), theirs_b - theirs_b.mean(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("n", "d"), [(160, 8), (60, 200)])  # the second goes through the span of the samples
def test_score_equals_scikit_learn_on_standardised_features(n: int, d: int) -> None:
    x, y = blobs(n, d, spread=3.0)
    x = x * torch.logspace(-2, 2, d) + 5  # the scale of a feature must not matter
    x_test, y_test = blobs(200, d, spread=3.0, seed=1)
    x_test = x_test * torch.logspace(-2, 2, d) + 5
    score = linear_probe(x, y, x_test, y_test, strengths=[0.03])
    scaler = StandardScaler().fit(x.double())
    theirs = LogisticRegression(C=1 / (n * 0.03), tol=1e-8, max_iter=5000).fit(scaler.transform(x.double()), y)
    assert score.accuracy == pytest.approx(theirs.score(scaler.transform(x_test.double()), y_test), abs=0.005)  # a tie
    assert 0.3 < score.accuracy < 1


def test_strength_is_chosen_without_the_test_set() -> None:
    x, y = blobs(200, 20, spread=3.0)
    x_test, y_test = blobs(100, 20, spread=3.0, seed=1)
    honest = linear_probe(x, y, x_test, y_test)
    perverse = linear_probe(x, y, x_test, (y_test + 1) % 4)
    assert honest.validation == perverse.validation
    assert honest.strength == perverse.strength == max(honest.validation, key=honest.validation.__getitem__)
    assert len(set(honest.validation.values())) > 1


def test_equal_scores_go_to_the_stronger_penalty() -> None:
    x, y = blobs(100, 5, spread=0.01)
    assert linear_probe(x, y, x, y, strengths=[1e-3, 1e-1, 1e-2]).strength == 1e-1


def test_the_held_out_part_has_its_share_of_every_class() -> None:
    labels = torch.tensor([0] * 50 + [1] * 30 + [2] * 10)
    fit, held = split(labels, holdout=0.2, seed=0)
    assert sorted([*fit.tolist(), *held.tolist()]) == list(range(90))
    assert labels[held].bincount().tolist() == [10, 6, 2]
    assert not torch.equal(held, split(labels, holdout=0.2, seed=1)[1])


def test_constant_features_and_no_grad_are_fine() -> None:
    x, y = blobs(80, 5)
    x[:, 2] = 3.0
    with torch.no_grad():
        score = linear_probe(x, y, x, y)
    without = linear_probe(x[:, [0, 1, 3, 4]], y, x[:, [0, 1, 3, 4]], y)
    assert score.accuracy == without.accuracy > 0.5


def test_leaves_the_global_generator_alone() -> None:
    x, y = blobs(40, 3)
    before = torch.get_rng_state()
    linear_probe(x, y, x, y)
    assert torch.equal(torch.get_rng_state(), before)


def test_bad_input_says_so() -> None:
    x, y = blobs(40, 3)
    with pytest.raises(ValueError, match="strengths must be a"):
        linear_probe(x, y, x, y, strengths=[0.0])
    with pytest.raises(ValueError, match=r"holdout must be a probability, in \[0, 1\], got 2"):
        linear_probe(x, y, x, y, holdout=2.0)
    with pytest.raises(ValueError, match="leave 0 to choose on"):
        linear_probe(x[:4], y[:4], x, y)
    with pytest.raises(ValueError, match="1 of 120 test features are not finite"):
        linear_probe(x, y, torch.where(torch.arange(120).view(40, 3) == 5, torch.nan, x), y)
    with pytest.raises(ValueError, match="class numbers from 0; got -1"):
        linear_probe(x, y - 1, x, y)


class Peak(TorchDispatchMode):
    """The most memory, in bytes, that tensors which were made inside have had at a time."""

    live = bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {x.untyped_storage().data_ptr() for x in args if isinstance(x, Tensor)}
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, Tensor) and x.untyped_storage().data_ptr() not in given:
                self.live += (size := x.untyped_storage().nbytes())
                weakref.finalize(x, self._free, size)
        self.bytes = max(self.bytes, self.live)
        return out

    def _free(self, size: int) -> None:
        self.live -= size


EXACT: dict[str, Callable[..., Any]] = {"linear": linear_probe, "ridge": ridge_probe}


@pytest.mark.parametrize("name", EXACT)
def test_all_features_are_never_copied(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With parts of 128 samples, made anew each time: the same score, and never half of the features' memory."""
    x, y = blobs(6000, 40, spread=3.0)
    x_test, y_test = blobs(500, 40, spread=3.0, seed=1)
    want = EXACT[name](x, y, x_test, y_test, strengths=(0.1, 1.0))
    monkeypatch.setattr(standard, "AT_ONCE", 128 * 1024)
    monkeypatch.setattr(standard, "KEPT", 0)
    monkeypatch.setattr(check, "_AT_ONCE", 1 << 13)
    with Peak() as peak:
        got = EXACT[name](x, y, x_test, y_test, strengths=(0.1, 1.0))
    assert (got.accuracy, got.validation) == (want.accuracy, want.validation)
    torch.testing.assert_close(got[-1], want[-1], rtol=1e-3, atol=1e-4)  # both stop at a gradient of 1e-5
    assert peak.bytes < x.nbytes / 2


def test_a_standard_is_that_of_the_chosen_features() -> None:
    x, _ = blobs(100, 6)
    chosen = torch.arange(0, 100, 3)
    for some in (x, x.repeat(1, 20)):  # the second has more features than samples
        own, whole = standard.Standard(some, index=chosen), standard.Standard(some[chosen])
        torch.testing.assert_close(torch.cat(list(own.parts(some, index=chosen))), whole(some[chosen]))
