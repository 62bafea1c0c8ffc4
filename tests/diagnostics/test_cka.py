import numpy as np
import pytest
import torch
from torch import Tensor

from reglet.diagnostics import cka_matrix, linear_cka


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def naive(x: Tensor, y: Tensor) -> float:
    """HSIC of Gram matrices, with the centring matrix written out."""
    n = len(x)
    h = np.eye(n) - np.ones((n, n)) / n
    k, q = (h @ (z @ z.T).numpy() @ h for z in (x, y))
    return float(np.sum(k * q) / np.sqrt(np.sum(k * k) * np.sum(q * q)))


@pytest.mark.parametrize(("n", "d", "e"), [(50, 6, 9), (10, 30, 40), (10, 3, 40)])
def test_equals_the_definition(n: int, d: int, e: int) -> None:
    x = normal(n, d) + 2
    y = torch.cat([x[:, :2], normal(n, e, seed=1)], 1)
    assert linear_cka(x, y) == pytest.approx(naive(x, y))


def test_rotation_scale_and_shift_do_not_matter() -> None:
    x = normal(30, 8)
    q = torch.linalg.qr(normal(8, 8, seed=1)).Q
    assert linear_cka(x, 3 * x @ q + 5) == pytest.approx(1)
    assert linear_cka(x, x * torch.tensor([9.0] + 7 * [1.0])) < 0.9  # another metric is another representation


def naive_unbiased(k: np.ndarray, q: np.ndarray) -> float:
    """Song et al. eq. 3: sums over distinct indices."""
    n, rows = len(k), range(len(k))
    pairs = [(i, j) for i in rows for j in rows if i != j]
    first = sum(k[i, j] * q[i, j] for i, j in pairs) / (n * (n - 1))
    third = sum(k[i, j] * q[i, m] for i, j in pairs for m in rows if m not in (i, j)) / (n * (n - 1) * (n - 2))
    fourth = sum(k[i, j] * q[l, m] for i, j in pairs for l, m in pairs if len({i, j, l, m}) == 4)  # noqa: E741
    return float(first + fourth / (n * (n - 1) * (n - 2) * (n - 3)) - 2 * third)


def test_debiased_equals_sums_over_distinct_samples() -> None:
    x, y = normal(7, 3), normal(7, 4, seed=1)
    k, q = (x @ x.T).numpy(), (y @ y.T).numpy()  # the unbiased estimate does not depend on centring
    expected = naive_unbiased(k, q) / np.sqrt(naive_unbiased(k, k) * naive_unbiased(q, q))
    assert linear_cka(x, y, debiased=True) == pytest.approx(expected)


def test_debiased_sees_that_independent_features_are_unlike() -> None:
    x, y = normal(64, 512), normal(64, 512, seed=1)
    assert linear_cka(x, y) > 0.8  # 64 points in 512 dimensions look alike whatever they are
    assert abs(linear_cka(x, y, debiased=True)) < 0.05
    assert linear_cka(x, x, debiased=True) == pytest.approx(1)


def test_matrix_of_layers() -> None:
    xs, ys = [normal(20, 4), normal(20, 6, seed=1)], [normal(20, 5, seed=2), normal(20, 4), normal(20, 3, seed=4)]
    matrix = cka_matrix(xs, ys)
    assert matrix.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            assert float(matrix[i, j]) == pytest.approx(naive(xs[i], ys[j]))


def test_bad_input_says_so() -> None:
    with pytest.raises(ValueError, match="same samples, got 5 and 6"):
        cka_matrix([normal(5, 2)], [normal(6, 2)])
