import pytest
import torch
from sklearn.linear_model import RidgeClassifier
from sklearn.preprocessing import StandardScaler
from tests.probes.blobs import blobs, correlated

from reglet.probes import ridge_probe


@pytest.mark.parametrize(("n", "d", "classes"), [(200, 12, 4), (60, 200, 4), (200, 12, 2)])
@pytest.mark.parametrize("strength", [1e-3, 1.0])
def test_predicts_what_scikit_learn_does(n: int, d: int, classes: int, strength: float) -> None:
    x, y = correlated(n, d, classes=classes, spread=3.0)
    x_test, y_test = correlated(300, d, classes=classes, spread=3.0, seed=1)
    score = ridge_probe(x, y, x_test, y_test, strengths=[strength])
    scaler = StandardScaler().fit(x.double())
    theirs = RidgeClassifier(alpha=n * strength).fit(scaler.transform(x.double()), y)
    outputs = torch.from_numpy(theirs.decision_function(scaler.transform(x_test.double())))
    ours = score.outputs[:, 1] - score.outputs[:, 0] if classes == 2 else 2 * score.outputs - 1
    torch.testing.assert_close(ours, outputs, rtol=1e-6, atol=1e-8)
    assert score.accuracy == pytest.approx(theirs.score(scaler.transform(x_test.double()), y_test))


def test_strength_is_chosen_without_the_test_set() -> None:
    x, y = correlated(120, 80, spread=4.0)
    x_test, y_test = correlated(100, 80, spread=4.0, seed=1)
    honest, perverse = ridge_probe(x, y, x_test, y_test), ridge_probe(x, y, -x_test, (y_test + 1) % 4)
    assert honest.validation == perverse.validation
    assert honest.strength == max(honest.validation, key=honest.validation.__getitem__)
    assert len(set(honest.validation.values())) > 1


def test_equal_scores_go_to_the_stronger_penalty() -> None:
    x, y = blobs(100, 5, spread=0.01)
    assert ridge_probe(x, y, x, y, strengths=[1e-3, 1e-1, 1e-2]).strength == 1e-1


def test_bad_input_says_so() -> None:
    x, y = correlated(40, 3)
    with pytest.raises(ValueError, match="one class only"):
        ridge_probe(x, torch.zeros_like(y), x, y)
    with pytest.raises(ValueError, match="strengths must be a positive number"):
        ridge_probe(x, y, x, y, strengths=[0.0])
