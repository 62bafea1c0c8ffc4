"""The LatentDR recipes at a size of seconds, and what they share."""

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from recipes.contest import Contest, by_seed, chosen, ordering, summarise
from recipes.efficientnet_lite0 import EfficientNetLite0, fill
from recipes.generalize import ARMS, Labelled, Network, Training, fit

from recipes import latentdr_batch_size, long_tail, medical, pacs_latentdr, rotated_digits, spoken_digits
from reglet.backbones import ConvNet

RUN = Training("ERM", "a", 0, 1e-3, 2, 4, "")


def result(arm: str, case: str, seed: int, test: float, **more: float) -> dict:
    return {"run": vars(replace(RUN, arm=arm, case=case, seed=seed)), "test": test, **more}


def test_efficientnet_is_timms(timm: ModuleType) -> None:
    torch.manual_seed(0)
    theirs = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    ours = fill(EfficientNetLite0(), theirs.state_dict())
    theirs.reset_classifier(0)
    x = torch.randn(2, 3, 65, 70)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x))


def labelled() -> Labelled:
    torch.manual_seed(0)
    y, domain = torch.arange(48) % 2, torch.arange(48) // 16
    return Labelled(torch.randn(48, 3, 8, 8) + y.view(-1, 1, 1, 1), y, domain, classes=2)


def trained(arm: str, *, steps: int = 3) -> torch.Tensor:
    torch.manual_seed(0)
    net = ConvNet(widths=(8, 8), stride=2)
    head = fit(
        replace(RUN, arm=arm, steps=steps, lr=1e-2),
        Network(net, net.dim, ["stages.0", "stages.1"], ["stages.0"]),
        labelled(),
        torch.arange(48),
    )
    return torch.cat([p.detach().flatten() for p in (*net.parameters(), *head.parameters())])


def test_every_arm_is_another_training() -> None:
    found = {arm: trained(arm) for arm in ARMS}
    same = {(a, b) for a in found for b in found if a < b and torch.allclose(found[a], found[b], atol=1e-3)}
    # Adam does not see a factor of its loss, save in its epsilon
    assert same == {("ERM", "ERM, 3 x loss")}


def test_training_learns_and_leaves_no_hook() -> None:
    torch.manual_seed(0)
    net = ConvNet(widths=(8, 8), stride=2)
    network = Network(net, net.dim, ["stages.0", "stages.1"], ["stages.0"])
    data = labelled()
    head = fit(replace(RUN, arm="MixStyle + SIM", steps=40, lr=1e-2), network, data, torch.arange(48))
    assert (head(net.eval()(data.x)).argmax(1) == data.y).double().mean() > 0.9
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


def test_rate_is_that_of_the_best_validation() -> None:
    rows = [(1e-3, 50.0), (1e-2, 60.0), (1e-3, 70.0), (1e-2, 62.0)]
    trials = [{"run": vars(replace(RUN, lr=lr)), "validation": v} for lr, v in rows]
    assert chosen(trials) == 1e-2


def test_rows_are_paired_by_seed_over_cases() -> None:
    contest = Contest(["ERM", "X"], ["a", "b"], [1e-3], {"ERM": 1.0, "X": 2.0}, measures=("test",))
    found = [result("ERM", case, seed, 10 * seed + (case == "b")) for case in "ab" for seed in range(3)]
    found += [result("X", case, seed, 10 * seed + 5 + seed % 2 + (case == "b")) for case in "ab" for seed in range(3)]
    erm, x = summarise(found, contest)
    assert by_seed(found, "ERM", "test") == {0: 0.5, 1: 10.5, 2: 20.5}
    assert erm["cases"] == {"a": 10, "b": 11}
    assert x["difference"]["test"][0] == pytest.approx(5 + 1 / 3)
    assert x["difference"]["test"][1] == pytest.approx(4.302653 / 3, rel=1e-5)  # t(2) s / sqrt(3), s = 1 / sqrt(3)
    assert by_seed(found[1:], "ERM", "test") == {1: 10.5, 2: 20.5}  # seed 0 lacks a case


def test_the_verdict_on_an_ordering() -> None:
    def verdict(by_arm: dict[str, list[float]]) -> str:
        found = [result(arm, "a", seed, v) for arm, values in by_arm.items() for seed, v in enumerate(values)]
        printed = {arm: float(i) for i, arm in enumerate("ABC")}
        return ordering(found, Contest(list("ABC"), ["a"], [], printed, measures=("test",)))

    assert "3 have its order here (3 beyond" in verdict({"A": [1, 1.1, 0.9], "B": [5, 5, 5.2], "C": [9, 9.1, 9]})
    against = verdict({"A": [9, 9.1, 9], "B": [5, 5, 5.2], "C": [1, 1.1, 0.9]})
    assert "0 have its order" in against
    assert against.endswith("its ordering does not hold here.")
    assert verdict({"A": [1, 9, 5], "B": [6, 1, 9], "C": [9, 4, 3]}).endswith("is not resolved here.")


@pytest.fixture
def two_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rotated_digits, spoken_digits, medical, long_tail):
        less = replace(module.CONTEST, arms=["ERM", "LatentDR SA"], cases=module.CONTEST.cases[:1])
        monkeypatch.setattr(module, "CONTEST", less)


@pytest.mark.slow
@pytest.mark.usefixtures("two_arms")
def test_rotated_digits_from_trials_to_table(tmp_path: Path) -> None:
    words = ["--out", str(tmp_path), "--steps", "30", "--seeds", "2", "--workers", "1"]
    assert rotated_digits.main(words) == 0
    found = json.loads((tmp_path / "summary.json").read_text())
    assert found["facts"]["runs"] == 2 + 2 * 2
    assert [row["arm"] for row in found["rows"]] == ["ERM", "LatentDR SA"]
    assert found["rows"][0]["mean"]["test"][0] > 30  # of ten classes
    assert found["rows"][0]["difference"]["test"] == [0, 0]
    assert "its ordering" in (tmp_path / "summary.md").read_text()


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
    found = spoken_digits.compute(replace(RUN, case="lucas"), data)
    assert set(spoken_digits.CONTEST.measures) <= set(found)


def test_medical_trains_validates_and_tests_on_the_official_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in medical.SETS:
        x = np.zeros((40, 28, 28, 1), np.uint8)
        np.savez(tmp_path / f"{name}.npz", images=x, labels=np.arange(40) % 2, split=np.arange(40) // 16)
    seen = []

    def spy(net: object, head: object, data: Labelled, index: torch.Tensor) -> object:
        seen.append(index.tolist())
        return see(net, head, data, index)

    see = medical.see
    monkeypatch.setattr(medical, "see", spy)
    medical.compute(replace(RUN, case="breastmnist"), medical.load(tmp_path))
    assert seen == [list(range(32, 40)), list(range(16, 32))]
    with pytest.raises(SystemExit, match="no data"):
        medical.main(["--data", str(tmp_path / "nowhere"), "--out", str(tmp_path)])


def test_long_tail_by_size(data: Path) -> None:
    counts, y = torch.tensor([500, 100, 20, 19]), torch.tensor([0, 0, 1, 2, 3, 3])
    hits = torch.tensor([True, False, True, False, True, True])
    assert long_tail.by_size(hits, y, counts) == {"many": 50, "medium": 50, "few": 100}
    assert long_tail.load(data).train.classes == 10


def test_batch_sizes_see_as_many_images(tmp_path: Path) -> None:
    parsed = ["--out", str(tmp_path), "--sizes", "4", "8", "--images", "16", "--seeds", "2", "--workers", "1"]
    assert latentdr_batch_size.main(parsed) == 0
    runs = [json.loads(p.read_text())["run"] for p in tmp_path.glob("*.json") if p.stem != "summary"]
    assert {run["per_domain"] * run["steps"] for run in runs} == {16}
    assert len(runs) == 2 * 2 * 2 * 2
    assert "LatentDR's gain over ERM" in (tmp_path / "summary.md").read_text()


def test_pacs_trains_its_last_stage_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    net = EfficientNetLite0().eval()
    monkeypatch.setattr(pacs_latentdr, "imagenet", lambda: net)
    for name in pacs_latentdr.DOMAINS:
        x = np.random.default_rng(0).integers(0, 255, (14, 64, 64, 3), np.uint8)
        np.savez(tmp_path / f"pacs64_{name}.npz", images=x, labels=np.arange(14) % 7)
    pacs_latentdr.make_maps(tmp_path, tmp_path / "maps.pt", size=128)
    data = pacs_latentdr.load(tmp_path / "maps.pt")
    assert data.x.shape == (56, 192, 4, 4)
    assert data.domain.bincount().tolist() == [14] * 4
    before = {key: value.clone() for key, value in net.state_dict().items()}
    found = pacs_latentdr.compute(replace(RUN, arm="MixStyle + SIM", case="photo"), data)
    assert set(pacs_latentdr.CONTEST.measures) <= set(found)
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())  # each run has its own copy
    assert not any(
        m.training for m in pacs_latentdr.network().body.train().modules() if "BatchNorm" in type(m).__name__
    )
    with pytest.raises(SystemExit, match="pacs64_art_painting"):
        pacs_latentdr.main(["--data", str(tmp_path / "nowhere"), "--out", str(tmp_path)])
