import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.tasks.trained import train
from torch import Tensor, nn

from reglet.engine.guard import NonFiniteError
from reglet.method import Batch
from reglet.tasks.translation import TASK, TranslationConfig, TwoDomains, frechet_distance
from reglet.tasks.translation.cut import CUT, verdicts
from reglet.tasks.translation.data import digits, split
from reglet.tasks.translation.score import content, random_conv, scores, symmetric_root


def gaussian(mean: Tensor, factor: Tensor, n: int) -> Tensor:
    """Samples whose mean and covariance factor factor^T are exact, not drawn."""
    d = len(mean)
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x - x.mean(0)
    x = x @ torch.linalg.inv(torch.linalg.cholesky(torch.cov(x.T))).T
    return mean + x @ factor.T


def test_frechet_of_gaussians_is_the_closed_form() -> None:
    m_a, m_b = torch.tensor([0.0, 1.0, -1.0]).double(), torch.tensor([2.0, 0.0, 0.0]).double()
    s_a, s_b = torch.tensor([1.0, 2.0, 3.0]).double(), torch.tensor([2.0, 2.0, 0.5]).double()
    # covariances that commute: |m|^2 + sum (s_a - s_b)^2
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q
    a, b = gaussian(m_a, turn * s_a, 50), gaussian(m_b, turn * s_b, 40)
    expected = ((m_a - m_b) ** 2).sum() + ((s_a - s_b) ** 2).sum()
    assert frechet_distance(a, b) == pytest.approx(float(expected), rel=1e-9)
    assert frechet_distance(b, a) == pytest.approx(float(expected), rel=1e-9)
    assert frechet_distance(a, a) == pytest.approx(0, abs=1e-9)


def test_frechet_of_covariances_that_do_not_commute() -> None:
    """Two dimensions have a formula of their own: tr (AB)^1/2 = sqrt(tr AB + 2 sqrt(det AB))."""
    f_a, f_b = torch.tensor([[1.0, 0.0], [0.7, 0.4]]).double(), torch.tensor([[0.3, 0.9], [0.0, 2.0]]).double()
    a, b = gaussian(torch.zeros(2).double(), f_a, 30), gaussian(torch.zeros(2).double(), f_b, 30)
    c_a, c_b = f_a @ f_a.T, f_b @ f_b.T
    assert not torch.allclose(c_a @ c_b, c_b @ c_a)
    root = ((c_a @ c_b).trace() + 2 * torch.linalg.det(c_a @ c_b).sqrt()).sqrt()
    assert frechet_distance(a, b) == pytest.approx(float(c_a.trace() + c_b.trace() - 2 * root), rel=1e-9)


def test_a_root_squares_to_the_matrix_also_where_it_is_singular() -> None:
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    c = x @ x.T
    root = symmetric_root(c)
    torch.testing.assert_close(root @ root, c)
    with pytest.raises(ValueError, match="two samples at least, got 1 and 3"):
        frechet_distance(torch.zeros(1, 2), torch.zeros(3, 2))


def test_content_knows_a_picture_by_its_edges_and_not_by_its_colours() -> None:
    dark, _ = digits()
    x = dark[:40].float() / 127.5 - 1
    assert content(-0.5 * x, x) == 1
    assert content(x.roll(1, 0), x) == 0
    assert content(x[:1].expand(40, -1, -1, -1), x) == pytest.approx(1 / 40)


def test_copying_bridges_nothing_and_the_encoder_is_the_same_always() -> None:
    data = split(*digits())
    before = torch.random.get_rng_state()
    encoder = random_conv(3)
    assert torch.equal(before, torch.random.get_rng_state())
    found = scores(nn.Identity(), data, encoder, name="randomconv")
    assert found["bridged"] == 0
    assert found["content"] == 1
    assert found == scores(nn.Identity(), data, random_conv(3), name="randomconv")


@pytest.fixture(scope="module")
def colours() -> TwoDomains:
    """Squares anywhere: white on black, red on blue."""
    generator = torch.Generator().manual_seed(0)
    x = torch.zeros(120, 3, 16, 16, dtype=torch.uint8)
    for image, (i, j) in zip(x, torch.randint(1, 11, (120, 2), generator=generator).tolist(), strict=True):
        image[:, i : i + 4, j : j + 4] = 255
    red = x[60:].clone()
    red[:, 1] = 0
    red[:, 2] = 255 - red[:, 0]
    return split(x[:60], red)


CONFIG = TranslationConfig(sim="auto", width=8, depth=1, batch=4, steps=40, places=16, lr=3e-3)


@pytest.mark.parametrize(("nce", "sim"), [("always", False), ("never", True), ("always", True), ("never", False)])
def test_every_arm_learns_a_colour(colours: TwoDomains, nce: str, sim: bool) -> None:
    outcome = train(TASK, replace(CONFIG, nce=nce), colours, seed=0, sim=sim)
    assert outcome.scores["bridged"] > 0.7
    if nce == "always":
        assert outcome.scores["content"] > 0.5  # chance is 1/12
    assert set(outcome.scores) == {"bridged", "frechet_randomconv", "content"}
    assert bool(outcome.blocks) == sim
    assert isinstance(outcome.method, CUT)


def test_arms_of_the_configuration(colours: TwoDomains) -> None:
    for nce, sim, expected in (
        ("without_sim", "", True),
        ("without_sim", "auto", False),
        ("always", "auto", True),
        ("never", "", False),
    ):
        method = TASK.setup(TranslationConfig(sim=sim, nce=nce, width=4, depth=1), colours).method
        assert (method.mlp is not None) == expected


def test_a_pair_differs_by_sim_alone(colours: TwoDomains) -> None:
    """SIM of weight 0 changes no bit, with PatchNCE beside it or without; SIM of some weight does."""

    def trained(nce: str, weight: float, *, sim: bool) -> Tensor:
        config = replace(CONFIG, nce=nce, sim_weight=str(weight), steps=3)
        outcome = train(TASK, config, colours, seed=2, sim=sim)
        return torch.cat([p.detach().flatten() for p in outcome.method.parameters()])

    for nce in ("always", "never"):
        without = trained(nce, 1.0, sim=False)
        assert torch.equal(trained(nce, 0.0, sim=True), without)
        assert not torch.equal(trained(nce, 1.0, sim=True), without)
    both = [trained(nce, 0.0, sim=False) for nce in ("always", "never")]
    assert not torch.equal(*(weights[: min(map(len, both))] for weights in both))


def test_the_critic_wants_ones_for_real_and_zeros_for_made() -> None:
    mean = nn.Flatten()
    assert float(verdicts(mean, torch.zeros(2, 1, 2, 2), torch.ones(2, 1, 2, 2))) == 0
    assert float(verdicts(mean, torch.full((2, 1, 2, 2), 2.0), torch.ones(2, 1, 2, 2))) == 2
    assert float(verdicts(mean, torch.zeros(2, 1, 2, 2), torch.zeros(2, 1, 2, 2))) == 0.5


def test_neither_network_is_reached_by_the_terms_of_the_other(colours: TwoDomains) -> None:
    method = TASK.setup(replace(CONFIG, sim="", nce="always"), colours).method
    batch = Batch([colours.a[:4], colours.b[:4]], n_global=2)
    terms = method(batch)
    parts = {"critic": method.critic, "adversarial": method.generator, "nce": method.generator}
    for name, part in parts.items():
        got = torch.autograd.grad(terms[name], list(method.parameters()), retain_graph=True, allow_unused=True)
        reached = {id(p) for p, g in zip(method.parameters(), got, strict=True) if g is not None}
        own = {id(p) for p in part.parameters()} | (
            {id(p) for p in method.mlp.parameters()} if name == "nce" else set()
        )
        assert reached
        assert reached <= own, name


def test_a_loss_that_is_not_finite_is_refused(colours: TwoDomains) -> None:
    broken = colours._replace(b=torch.full_like(colours.b, torch.nan))
    with pytest.raises(NonFiniteError, match=r"step 0: critic = nan"):
        train(TASK, replace(CONFIG, steps=2), broken)


def test_folder_and_archive_give_the_same_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (40, 16, 16, 3), np.uint8)
    domain = np.where(np.arange(40) < 20, "photo", "sketch")
    for i, (image, name) in enumerate(zip(images, domain, strict=True)):
        folder = tmp_path / "x" / ("a" if name == "photo" else "b")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{i:02}.png")
    np.savez(tmp_path / "x.npz", images=images, domain=domain)
    by_folder, by_archive = (TASK.load(TranslationConfig(data=str(tmp_path / x))) for x in ("x", "x.npz"))
    for one, other in zip(by_folder, by_archive, strict=True):
        assert torch.equal(one, other)
    assert [len(x) for x in by_archive] == [16, 16, 4, 4]
    small = TASK.load(TranslationConfig(data=str(tmp_path / "x.npz"), size=20))
    assert small.a.shape[1:] == (3, 20, 20)
    assert float(small.a.min()) >= -1.001  # bilinear, so nothing beyond the range but rounding


def archive(path: Path, shape: tuple[int, ...], domain: list[int]) -> str:
    np.savez(path / "x.npz", images=np.zeros(shape, np.uint8), domain=np.array(domain))
    return str(path / "x.npz")


def test_bad_data_are_refused(tmp_path: Path) -> None:
    def load(data: str, size: int = 0) -> TwoDomains:
        return TASK.load(TranslationConfig(data=data, size=size))

    with pytest.raises(ValueError, match="no data at 'nowhere'"):
        load("nowhere")
    with pytest.raises(ValueError, match="got 12 x 12"):
        load(archive(tmp_path, (40, 12, 12, 3), [0, 1] * 20))
    with pytest.raises(ValueError, match="got 8 x 8"):
        load("", size=8)
    with pytest.raises(ValueError, match=r"between two domains.*images of 1"):
        load(archive(tmp_path, (40, 16, 16, 3), [0] * 40))
    with pytest.raises(ValueError, match="images of 3"):
        load(archive(tmp_path, (40, 16, 16, 3), [0, 1, 2, 1] * 10))
    with pytest.raises(ValueError, match="domain b has 4 images, and at least 10"):
        load(archive(tmp_path, (40, 16, 16, 3), [0] * 36 + [1] * 4))
    np.savez(tmp_path / "x.npz", images=np.zeros((40, 16, 16, 3), np.uint8))
    with pytest.raises(ValueError, match="has no `domain`"):
        load(str(tmp_path / "x.npz"))
    (tmp_path / "a").mkdir()
    with pytest.raises(ValueError, match="no folder b/"):
        load(str(tmp_path))
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match="has no images"):
        load(str(tmp_path))
    with pytest.raises(ValueError, match="of one size"):
        split(torch.zeros(20, 3, 16, 16).byte(), torch.zeros(20, 1, 16, 16).byte())


def test_bad_settings_are_refused() -> None:
    for given, says in (
        ({"nce": "sometimes"}, "nce is one of without_sim"),
        ({"model": "cyclegan"}, "model is one of cut"),
        ({"places": 1}, "places must be at least 2"),
        ({"weight_decay": 0.1}, "no weight decay"),
    ):
        with pytest.raises(ValueError, match=says):
            TranslationConfig(**given)


def test_the_distance_bears_the_name_of_its_encoder(tmp_path: Path, colours: TwoDomains) -> None:
    from reglet.backbones import build
    from reglet.export import export

    export(build("convnet", size=16), tmp_path, name="convnet", size=16, in_channels=3, card={})
    assert json.loads((tmp_path / "card.json").read_text())["architecture"]["name"] == "convnet"
    found = train(TASK, replace(CONFIG, encoder=str(tmp_path), steps=1), colours, seed=0, sim=False).scores
    assert "frechet_convnet" in found
    assert "frechet_randomconv" not in found
