"""View losses on series: what is read, that training learns, that collapse is seen, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tasks.trained import train

from reglet.losses import SMILoss, VISRegLoss
from reglet.method import Batch
from reglet.networks.conv1d import ConvNet1d
from reglet.tasks.series_ssl import TASK
from reglet.tasks.series_ssl.config import SeriesSSLConfig
from reglet.tasks.series_ssl.score import knn_distance, score
from reglet.tasks.series_ssl.series import Series
from reglet.tasks.series_ssl.task import Invariance, loss_of


def clips(path: Path) -> str:
    """Five shapes over time: what the class is, a gain, noise or a crop hardly changes."""
    rng = np.random.default_rng(0)
    y, t = np.arange(200) % 5, np.arange(32)
    waves = np.stack([np.sin(2 * np.pi * t * (1 + c) / 32 + rng.uniform(0, 6)) for c in y])
    x = waves[:, None] * rng.normal(1, 0.2, (200, 6, 1)) + rng.standard_normal((200, 6, 32))
    np.savez(path, features=x.astype(np.float32), labels=y, split=np.arange(200) // 150)
    return str(path)


def machines(path: Path, **changes: np.ndarray) -> str:
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {}
    for name in ("a", "b"):
        points = np.sin(np.arange(1200)[:, None] / np.arange(3, 7)) + 0.1 * rng.standard_normal((1200, 4))
        labels = np.zeros(600, np.uint8)
        labels[200:230] = 1
        points[800:830] += 4
        arrays |= {f"{name}_train": points[:600], f"{name}_test": points[600:], f"{name}_labels": labels}
    np.savez(path, **(arrays | changes))
    return str(path)


def test_machines_are_windows() -> None:
    data = TASK.load(SeriesSSLConfig(window=50))
    assert data.watched
    assert data.train.shape[1:] == (6, 50)
    assert len(data.test) == 3000 // 50
    assert 0 < int(data.y_test.sum()) < len(data.y_test)


def test_windows_hold_the_points_and_their_labels(tmp_path: Path) -> None:
    path = machines(tmp_path / "m.npz")
    data = TASK.load(SeriesSSLConfig(data=path, window=64))
    with np.load(path) as archive:
        train = np.concatenate([archive["a_train"], archive["b_train"]])
        test, labels = archive["b_test"], archive["b_labels"]
    scaled = (test - train.mean(0)) / train.std(0)
    mine = data.group_test == 1
    # ten windows: nine side by side, and the last one ends with the series
    starts = [*range(0, 576, 64), 536]
    assert data.y_test[mine].tolist() == [int(labels[s : s + 64].any()) for s in starts]
    for window, s in zip(data.test[mine], starts, strict=True):
        np.testing.assert_allclose(window.numpy(), scaled[s : s + 64].T, atol=1e-4)
    assert len(data.train) == 2 * (1 + (600 - 64) // 32)
    assert data.group_train.tolist() == [0] * 17 + [1] * 17


def test_clips_are_read_as_of_the_audio_task(tmp_path: Path) -> None:
    data = TASK.load(SeriesSSLConfig(data=clips(tmp_path / "c.npz")))
    assert not data.watched
    assert data.train.shape == (150, 6, 32)
    assert sorted(set(data.y_test.tolist())) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("loss", ["visreg", "smi"])
def test_training_learns_and_the_regularizer_keeps_the_rank(tmp_path: Path, loss: str) -> None:
    path = clips(tmp_path / "c.npz")
    kinds = {name: SeriesSSLConfig(data=path, loss=name, steps=40, batch=64) for name in (loss, "none", "random")}
    data = TASK.load(kinds[loss])
    found = {name: train(TASK, config, data, seed=0, sim=False).scores for name, config in kinds.items()}
    assert found[loss]["score"] > found["random"]["score"] + 0.1
    assert found[loss]["rank"] > found["none"]["rank"] + 2


def test_random_is_the_network_as_it_starts() -> None:
    config = SeriesSSLConfig(loss="random")
    data = TASK.load(config)
    outcome = train(TASK, config, data, seed=3, sim=False)
    torch.manual_seed(3)
    net = ConvNet1d(channels=6)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), outcome.method.backbone.parameters(), strict=True))


def test_sim_works_too_and_starts_from_the_same() -> None:
    config = SeriesSSLConfig(sim="auto", steps=4, batch=16)
    data = TASK.load(config)
    state = torch.get_rng_state()
    plain, twice, sim = (train(TASK, config, data, seed=0, sim=on) for on in (False, False, True))
    assert torch.equal(torch.get_rng_state(), state)
    assert sim.blocks == ["stages.1", "stages.2"]
    weights = [torch.cat([p.flatten() for p in o.method.parameters()]) for o in (plain, twice, sim)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    zero = SeriesSSLConfig(sim="auto", sim_weight="0", steps=4, batch=16)
    same = torch.cat([p.flatten() for p in train(TASK, zero, data, seed=0, sim=True).method.parameters()])
    torch.testing.assert_close(same, weights[0], atol=1e-5, rtol=1e-4)  # heads add zeros to the clipped norm
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in sim.method.modules())


def test_losses_by_name() -> None:
    assert isinstance(loss_of(SeriesSSLConfig()), VISRegLoss)
    assert isinstance(loss_of(SeriesSSLConfig(loss="smi")), SMILoss)
    z = torch.randn(2, 5, 3)
    # each view to the middle of both: half of the gap, squared
    torch.testing.assert_close(Invariance()(z), ((z[0] - z[1]) / 2).square().mean())


@pytest.mark.parametrize("loss", ["visreg", "sigreg"])
def test_the_regularizer_of_a_prediction_keeps_the_rank(tmp_path: Path, loss: str) -> None:
    path = clips(tmp_path / "c.npz")
    own = {"data": path, "objective": "predict", "steps": 40, "batch": 64}
    kinds = {name: SeriesSSLConfig(**own, loss=name) for name in (loss, "none", "random")}
    data = TASK.load(kinds[loss])
    found = {name: train(TASK, config, data, seed=0, sim=False).scores for name, config in kinds.items()}
    assert found[loss]["rank"] > found["none"]["rank"] + 1
    views = train(TASK, SeriesSSLConfig(data=path, loss="random"), data, seed=0, sim=False)
    assert found["random"] == views.scores, "both objectives start from the same network"


def test_of_machines_the_error_of_a_prediction_is_a_score() -> None:
    config = SeriesSSLConfig(objective="predict", steps=30, batch=16, frame=8)
    data = TASK.load(config)
    found = train(TASK, config, data, seed=0, sim=False)
    assert set(found.scores) == {"score", "rank", "surprise"}
    method = found.method.eval()
    with torch.no_grad():
        wrong = method.surprise(Batch([data.test]))
    truth = data.y_test.bool()
    above = (wrong[truth][:, None] > wrong[~truth][None]).float().mean().item()  # AUROC, of one machine
    assert found.scores["surprise"] == pytest.approx(above, abs=1e-6)


def test_knn_distance() -> None:
    bank, x = torch.randn(50, 7), torch.randn(9, 7)
    expected = [sorted(float((b - a).norm()) for b in bank)[:4] for a in x]
    torch.testing.assert_close(knn_distance(bank, x, k=4), torch.tensor(expected).mean(1))
    with pytest.raises(ValueError, match="neighbours=51 are more than the 50"):
        knn_distance(bank, x, k=51)


def test_every_machine_is_compared_with_itself() -> None:
    """A window that is normal for one machine is far from the normal of the other."""
    bank = torch.cat([torch.zeros(6, 2), torch.full((6, 2), 10.0)])
    test = torch.tensor([[0.1, 0.0], [10.0, 10.0], [10.1, 10.0], [0.0, 0.0]])
    group = torch.tensor([0] * 6 + [1] * 6)
    where, y = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    data = Series(bank[:, :, None], test[:, :, None], torch.zeros(12).long(), y, group, where, watched=True)
    assert score(bank, test, data, neighbours=3) == 1.0
    together = data._replace(group_train=torch.zeros(12).long(), group_test=torch.zeros(4).long())
    assert score(bank, test, together, neighbours=3) < 1.0


@pytest.mark.parametrize(
    ("says", "options"),
    [
        ("loss with objective=views is one of", {"loss": "vicreg"}),
        ("loss with objective=predict is one of", {"loss": "smi", "objective": "predict"}),
        ("objective is one of views, predict", {"objective": "guess"}),
        ("frame must be at least 2", {"frame": 1}),
        ("a weight is a number", {"weight": "much"}),
        ("model is one of", {"model": "tdnn"}),
        ("window must be at least 8", {"window": 4}),
        ("lam is a share", {"lam": 1.5}),
        ("trains nothing", {"loss": "random", "sim": "auto"}),
        ("crop must be a range", {"crop": 0.0}),
        ("gain must be a number from 1", {"gain": 0.9}),
        ("time must be a number in", {"time_mask": 1.0}),
    ],
)
def test_bad_configurations(says: str, options: dict) -> None:
    with pytest.raises(ValueError, match=says):
        SeriesSSLConfig(**options)


def test_bad_data(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no data at"):
        TASK.load(SeriesSSLConfig(data=str(tmp_path / "none.npz")))
    normal = {f"{m}_labels": np.zeros(600, np.uint8) for m in "ab"}
    with pytest.raises(ValueError, match="none of the test points of a are anomalous"):
        TASK.load(SeriesSSLConfig(data=machines(tmp_path / "m.npz", **normal)))
    with pytest.raises(ValueError, match="600 points, fewer than window=700"):
        TASK.load(SeriesSSLConfig(data=machines(tmp_path / "m.npz"), window=700))
    with pytest.raises(ValueError, match="no machine has windows of 600 points"):
        TASK.load(SeriesSSLConfig(data=machines(tmp_path / "m.npz"), window=600))
    np.savez(tmp_path / "f.npz", features=np.ones((4, 3, 9)), labels=[0, 1, 0, 1], fold=[1, 1, 2, 2])
    with pytest.raises(ValueError, match="no fold 3"):
        TASK.load(SeriesSSLConfig(data=str(tmp_path / "f.npz"), fold=3))
