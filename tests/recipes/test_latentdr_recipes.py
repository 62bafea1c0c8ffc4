"""The recipes of LatentDR and of SIM on few labels, at a size of seconds."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from recipes.efficientnet_lite import EfficientNetLite, fill
from recipes.generalize import ARMS, Labelled, Network, against_base, searched, train
from recipes.recipe import main
from torch import nn

from recipes import latentdr_batch_size, long_tail, long_tail_sgd, medical, pacs_latentdr, rotated_digits, spoken_digits
from recipes import sim_small_labels as few
from reglet.backbones import ConvNet
from reglet.data import load
from reglet.methods.domains import Domains
from reglet.runs import Run, read_summary

SMALL = {"steps": 2, "per_domain": 4, "lr": 1e-3}


@pytest.fixture(autouse=True)
def small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the tests have 16 px."""
    monkeypatch.setattr(few, "SIZE", 16)


def run(arm: str, fold: str = "", **changes: Any) -> Run:
    return Run(arm, 1, fold, {**SMALL, **changes})


@pytest.mark.parametrize("version", [0, 1, 2])
def test_efficientnet_is_timms(timm: ModuleType, version: int) -> None:
    torch.manual_seed(0)
    theirs = timm.create_model(f"tf_efficientnet_lite{version}", pretrained=False).eval()
    ours = fill(EfficientNetLite(version), theirs.state_dict())
    theirs.reset_classifier(0)
    x = torch.randn(2, 3, 65, 70)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x))


def labelled() -> Labelled:
    torch.manual_seed(0)
    y, domain = torch.arange(48) % 2, torch.arange(48) // 16
    return Labelled(torch.randn(48, 3, 8, 8) + y.view(-1, 1, 1, 1), y, domain, classes=2)


def trained(arm: str, **changes: Any) -> Domains:
    torch.manual_seed(0)
    net = ConvNet(widths=(8, 8), stride=2)
    network = Network(net, ["stages.0", "stages.1"], ["stages.0"])
    return train(run(arm, **{"steps": 3, "lr": 1e-2, **changes}), network, labelled(), torch.arange(48))


def test_every_arm_is_another_training() -> None:
    found = {}
    for arm in ARMS:
        domains = trained(arm)
        found[arm] = torch.cat([p.detach().flatten() for m in (domains.backbone, domains.head) for p in m.parameters()])
    assert not [(a, b) for a in found for b in found if a < b and torch.allclose(found[a], found[b], atol=1e-5)]


def test_training_learns_and_sim_leaves_no_hook() -> None:
    domains, data = trained("ERM + SIM", steps=40), labelled()
    assert (domains.eval().logits(data.x).argmax(1) == data.y).double().mean() > 0.9
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in domains.modules())


def test_searches_are_equal_and_half_rates_take_the_base_s() -> None:
    found = searched(("ERM", "ERM, half rate", "Mixup", "MixStyle", "MixStyle + SIM"), (1e-3, 1e-2))
    assert {arm: len(tries) for arm, tries in found["grid"].items()} == {"ERM": 2, "Mixup": 2, "MixStyle": 2}
    assert found["choice_of"] == {"ERM, half rate": "ERM", "MixStyle + SIM": "MixStyle"}
    assert [(p.arm, p.effect) for p in against_base({"ERM": 50.0, "X": 51.5, "Y": 50.0}, "")] == [("X", 1.5)]


@pytest.mark.slow
def test_rotated_digits_from_trials_to_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("ERM", "LatentDR SA", "LatentDR SA, half rate")
    small = replace(
        rotated_digits.RECIPE,
        arms={name: {} for name in (*names, rotated_digits.PIXELS)},
        folds=("30",),
        trial_folds=None,
        printed=against_base({"ERM": 62.9, "LatentDR SA": 65.7}, ""),
        **searched(names, (3e-3, 1e-2)),
    )
    assert main(small, [f"out={tmp_path}", "steps=30", "seeds=2", "jobs=1"]) == 0
    (claim,) = read_summary(tmp_path / "summary.json")["claims"]
    assert (claim["printed"], claim["verdict"]) == (2.8, "cannot show")
    assert "ERM above raw pixels" in claim["why"], "30 steps are too few, and the recipe says so"
    assert claim["baseline"]["score"] > 30  # of ten classes
    assert all(0 < share < 1 for share in claim["dose"]["share"])


def test_digits_are_rotated_anticlockwise_and_whole() -> None:
    x = torch.zeros(2, 1, 8, 8)
    x[:, :, 0, 3:5] = 1  # a mark at the top
    up, left = rotated_digits.rotated(x, torch.tensor([0.0, 90.0]))
    torch.testing.assert_close(up.rot90(1, (1, 2)), left)
    assert up[0, 2].argmax() in (5, 6)  # two rows are margin
    data = rotated_digits.load(Path())
    assert data.domain.bincount().tolist() == [300, 300, 300, 299, 299, 299]


def test_spoken(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "x.npz"
    n = np.arange(120)
    np.savez(path, images=rng.integers(0, 255, (120, 40, 80, 1), np.uint8), labels=n % 10, domain=n // 20)
    data = spoken_digits.load(path)
    assert data.x.shape == (120, 1, 20, 40)
    assert set(spoken_digits.RECIPE.measures) <= set(spoken_digits.compute(run("ERM", "lucas"), data))


def test_medical_trains_validates_and_tests_on_the_official_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in medical.SETS:
        x = np.zeros((40, 28, 28, 1), np.uint8)
        np.savez(tmp_path / f"{name}.npz", images=x, labels=np.arange(40) % 2, split=np.arange(40) // 16)
    seen = []

    def spy(domains: Domains, data: Labelled, index: torch.Tensor) -> object:
        seen.append(index.tolist())
        return see(domains, data, index)

    see = medical.see
    monkeypatch.setattr(medical, "see", spy)
    medical.compute(run("ERM", "breastmnist"), medical.load(tmp_path))
    assert seen == [list(range(32, 40)), list(range(16, 32))]


def test_long_tail() -> None:
    counts, y = torch.tensor([500, 100, 20, 19]), torch.tensor([0, 0, 1, 2, 3, 3])
    hits = torch.tensor([True, False, True, False, True, True])
    assert long_tail.by_size(hits, y, counts) == {"many": 50, "medium": 50, "few": 100}
    y = torch.arange(1600) % 4
    x = torch.randn(1600, 12, generator=torch.Generator().manual_seed(0)) + 2 * torch.eye(4, 12)[y]
    data = Labelled(x, y, (torch.arange(1600) >= 1400).long(), classes=4)
    settings = {**long_tail.RECIPE.settings, "dim": 8, "inner": 4}
    found = {
        arm: long_tail.compute(Run(arm, 1, "", {**settings, "steps": 40, "lr": 1e-2}), data)
        for arm in ("ERM", "LatentDR eq13", long_tail.PROBE)
    }
    assert all(len(scores["test"]) == long_tail.SIDE for scores in found.values())
    rare = [sum(found["ERM"][group]) for group in ("few", "many")]
    assert rare[0] > 0.5 * rare[1], "balanced softmax finds rare classes too"


def test_long_tail_of_a_trained_network(tmp_path: Path) -> None:
    rng, labels = np.random.default_rng(0), np.arange(2000) % 10
    images = rng.integers(0, 128, (2000, 16, 16, 3)) + rng.integers(0, 128, (10, 1, 1, 3))[labels]
    np.savez(
        tmp_path / "x.npz",
        images=images.astype(np.uint8),
        labels=labels.astype(np.uint8),
        split=np.arange(2000) // 1800,
    )
    data = long_tail_sgd.load(tmp_path / "x.npz")
    assert data.train.x.min() >= 0, "views are cut out of pixels"
    assert data.train.x.max() <= 1
    torch.testing.assert_close(data.train_seen.x.std(), torch.tensor(1.0), rtol=0.5, atol=0)
    settings = {**long_tail_sgd.RECIPE.settings, "steps": 60}
    found = {arm: long_tail_sgd.compute(Run(arm, 1, "", settings), data) for arm in long_tail_sgd.RECIPE.arms}
    assert len({scores["test"] for scores in found.values()}) == len(found), "every arm is another training"
    assert found["ERM"]["test"] > 50
    assert "share end" in found["LatentDR eq13, half rate"]


def test_batch_sizes_have_as_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(latentdr_batch_size.pacs_adapters, "compute", lambda one, data: seen.append(one))
    settings = latentdr_batch_size.RECIPE.settings
    for size in latentdr_batch_size.SIZES:
        latentdr_batch_size.compute(Run(size, 1, "photo", settings), None)
    assert {one.settings["steps"] for one in seen} == {400}
    assert {one.arm for one in seen} == {"LatentDR SA"}
    assert [one.settings["per_domain"] for one in seen] == [4, 16, 64]
    assert [one.settings["lr"] / settings["lr"] for one in seen] == pytest.approx([0.5, 1.0, 2.0])


def test_pacs_trains_its_last_stages_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    net = EfficientNetLite().eval()
    monkeypatch.setattr(pacs_latentdr, "imagenet", lambda: net)
    for name in pacs_latentdr.DOMAINS:
        x = np.random.default_rng(0).integers(0, 255, (14, 64, 64, 3), np.uint8)
        np.savez(tmp_path / f"pacs64_{name}.npz", images=x, labels=np.arange(14) % 7)
    made = pacs_latentdr.prepare(tmp_path, tmp_path / "out", {"data": "digest", "size": 128})
    data = pacs_latentdr.load(made)
    assert data.x.shape == (56, 192, 4, 4)
    assert data.domain.bincount().tolist() == [14] * 4
    before = {key: value.clone() for key, value in net.state_dict().items()}
    found = pacs_latentdr.compute(run("MixStyle + SIM", "photo"), data)
    assert set(pacs_latentdr.RECIPE.measures) <= set(found)
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())  # each run has its own copy
    assert not any(
        m.training for m in pacs_latentdr.network().body.train().modules() if "BatchNorm" in type(m).__name__
    )
    assert 0 <= pacs_latentdr.compute(run(pacs_latentdr.PROBE, "photo"), data)["test"] <= 100


FEW = {**few.RECIPE.settings, "labels": 40, "steps": 3, "batch": 20}


def test_arms_of_a_seed_are_paired(data: Path) -> None:
    """SIM with a vanishing weight is no SIM: same labels, start, batches and crops."""
    images = load(str(data))
    without, vanishing, large = (
        few.compute(Run("", 3, settings={**FEW, "weight": weight}), images) for weight in (few.OFF, "1e-30", "0.5")
    )
    # abs: the jitter is a difference of float32 losses near 2.3, which SIM's sums round differently by 1e-7.
    shared = without.keys() & vanishing.keys()  # the others are SIM's dose
    assert {"test", "jitter"} <= shared
    assert {k: without[k] for k in shared} == pytest.approx({k: vanishing[k] for k in shared}, rel=1e-5, abs=1e-6)
    assert large["R2 net.layer2.0"] != pytest.approx(without["R2 net.layer2.0"], rel=1e-5)


def test_every_form_of_sim_trains(data: Path) -> None:
    images = load(str(data))
    for changes in few.SIMS.values():
        assert 0 <= few.compute(Run("", 1, settings={**FEW, **changes}), images)["test"] <= 100
    trial = few.compute(Run("", 1, settings={**FEW, "trial": True}), images)
    assert trial.keys() == {"validation"}
    assert few.compute(Run("raw pixels", 1, settings=FEW), images)["test"] > 15


def test_spikes_by_hand() -> None:
    steady = few.roughness([2.0] * 50)
    assert (steady["spikes"], steady["jitter"], steady["largest_jump"]) == (0, 0, 1)
    # After 1, 1, 4 the average is 0.98 + 0.02 * 4 = 1.06: 3.1 is no spike, 3.3 would be.
    assert few.roughness([1.0, 1.0, 4.0, 3.1])["spikes"] == pytest.approx(1 / 3)
    assert few.roughness([1.0, 1.0, 4.0, 3.3])["spikes"] == pytest.approx(2 / 3)


def test_what_is_retained() -> None:
    class Blocks(nn.Module):
        """Images -> three blocks that keep everything, keep one of three channels, keep nothing."""

        def __init__(self) -> None:
            super().__init__()
            self.turn = nn.Conv2d(3, 3, 1)
            self.third = nn.Conv2d(3, 1, 1)
            with torch.no_grad():
                self.third.weight.copy_(torch.tensor([1.0, 0, 0]).view(1, 3, 1, 1))
            self.noise = nn.Dropout(1.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.noise(x) + self.turn(x) + self.third(x)

    x = torch.rand(400, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    model = Blocks()
    # Ridge 1e-3 on correlated outputs costs a little; channels are independent and equally strong, so one is a third.
    assert few.retained(model, "turn", x, ridge=1e-9) == pytest.approx(1, abs=1e-6)
    assert few.retained(model, "third", x) == pytest.approx(1 / 3, abs=0.02)
    assert few.retained(model, "noise", x) == pytest.approx(0, abs=0.01)
