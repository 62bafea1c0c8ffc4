"""Energy maps, PCA maps and their matching."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import Tensor

from reglet.diagnostics import as_colours, energy_maps, match_components, pca_maps


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_energy_is_the_sum_of_squares_between_its_least_and_most() -> None:
    maps = normal(3, 5, 4, 6)
    energy = maps.numpy().astype(np.float64) ** 2
    energy = energy.sum(1)
    for mine, theirs in zip(energy_maps(maps), energy, strict=True):
        np.testing.assert_allclose(mine, (theirs - theirs.min()) / (theirs.max() - theirs.min()), atol=1e-5)
    assert energy_maps(maps, size=(8, 12)).shape == (3, 8, 12)
    assert torch.equal(energy_maps(torch.ones(1, 2, 3, 3)), torch.zeros(1, 3, 3))


def test_components_equal_scikit_learn_up_to_sign() -> None:
    maps = normal(2, 6, 5, 4) * torch.linspace(3, 0.5, 6).view(1, -1, 1, 1)
    tokens = maps.permute(0, 2, 3, 1).reshape(-1, 6).numpy()
    theirs = PCA(3).fit_transform(tokens)  # on all frames together
    mine = pca_maps(maps).permute(0, 2, 3, 1).reshape(-1, 3).numpy()
    signs = np.sign((mine * theirs).sum(0))
    np.testing.assert_allclose(mine, theirs * signs, atol=1e-4)
    assert torch.equal(pca_maps(maps), pca_maps(maps.clone()))
    with pytest.raises(ValueError, match="no 7 components"):
        pca_maps(maps, components=7)


def test_matching_undoes_order_and_sign() -> None:
    reference = normal(2, 3, 6, 6)
    mixed = reference[:, [2, 0, 1]] * torch.tensor([-1.0, 1.0, -1.0]).view(1, 3, 1, 1) + 0.1 * normal(
        2, 3, 6, 6, seed=1
    )
    matched = match_components(mixed, reference)
    for k in range(3):
        r = np.corrcoef(matched[:, k].flatten(), reference[:, k].flatten())[0, 1]
        assert r > 0.95


def test_matching_is_the_best_assignment_and_not_greedy() -> None:
    a, b = torch.linalg.qr(normal(64, 2) - normal(64, 2).mean(0)).Q.T.reshape(2, 8, 8)
    a, b = a - a.mean(), b - b.mean()
    # correlations (reference rows): (.90 .80), (.85 .10): greedy takes .90 + .10, the best is .80 + .85
    reference = torch.stack([a, b])[None]
    ours = torch.stack([0.9 * a + 0.85 * b, 0.8 * a + 0.1 * b])[None]
    matched = match_components(ours, reference)
    assert torch.equal(matched[0, 0], ours[0, 1])
    assert torch.equal(matched[0, 1], ours[0, 0])


def test_matching_across_grids_and_with_a_constant_component() -> None:
    reference = torch.nn.functional.interpolate(normal(1, 3, 4, 4), size=(8, 8), mode="bilinear")
    ours = torch.nn.functional.interpolate(-reference[:, [1, 0, 2]], size=(16, 16), mode="bilinear")
    ours[:, 2] = 1.0
    matched = match_components(ours, reference)
    assert torch.equal(matched[:, 2], ours[:, 2])
    assert torch.equal(matched[:, :2], -ours[:, [1, 0]])


def test_colours_are_in_the_unit_range() -> None:
    maps = normal(2, 3, 4, 4)
    maps[:, 1] = 7.0
    colours = as_colours(maps, size=(8, 8))
    assert colours.shape == (2, 3, 8, 8)
    assert float(colours.min()) >= 0
    assert float(colours.max()) <= 1
    plain = as_colours(maps)
    assert plain[:, 0].amax((1, 2)).tolist() == [1.0, 1.0]
    assert plain[:, 1].abs().max() == 0
