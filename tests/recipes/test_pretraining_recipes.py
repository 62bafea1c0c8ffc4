"""The pretraining recipes at a size of seconds, on images whose classes differ in colour."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from recipes.arms import Run
from recipes.encoder import Data, Pretraining

from recipes import encoder, smi_batch_size, ssl_losses, visreg_ablation
from reglet.losses import VICRegLoss


@pytest.fixture(scope="module")
def parts(data: Path) -> Data:
    return encoder.load_parts(data)


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def words(data: Path, out: Path) -> list[str]:
    return ["--data", str(data), "--out", str(out), "--epochs", "1", "--trial-epochs", "1", "--seeds", "2"]


@pytest.mark.slow
def test_losses(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grids = {name: ssl_losses.grid(name)[3:5] for name in ssl_losses.LOSSES}
    monkeypatch.setattr(ssl_losses, "grid", grids.__getitem__)
    assert ssl_losses.main([*words(data, tmp_path), "--batch", "64"]) == 0
    found = summary(tmp_path)
    trials, finals, references = 5 * 2, 5 * 2, 2 + 1
    assert found["facts"]["runs"] == trials + finals + references
    rows = {row["loss"]: row for row in found["rows"]}
    assert list(rows) == [*ssl_losses.LOSSES, "random weights", "raw pixels"]
    for name in ssl_losses.LOSSES:
        assert rows[name]["linear"][0] > 30  # of ten classes; a net that lost the colours would be at 10
        assert (rows[name]["weight"], rows[name]["lr"]) in ssl_losses.grid(name)
    assert rows["Barlow Twins"]["linear - Barlow Twins"] == [0, 0]
    assert "| SMI | 1.6 |  |  |  |" in (tmp_path / "summary.md").read_text()


def test_every_loss_has_as_many_trials() -> None:
    assert {len(set(ssl_losses.grid(name))) for name in ssl_losses.LOSSES} == {11}


@pytest.mark.slow
def test_batch_sizes(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi_batch_size, "RATES", (1e-3, 4e-3))
    monkeypatch.setattr(smi_batch_size, "WEIGHTS", {"Barlow Twins": (0.005,), "SMI": (0.1,)})
    small = ["--batches", "16", "32", "--tuned", "32"]
    assert smi_batch_size.main([*words(data, tmp_path), *small]) == 0
    found = summary(tmp_path)
    assert found["facts"]["runs"] == 2 * 2 + 2 * 2 * 2
    assert [row["batch"] for row in found["rows"]] == [16, 32]
    runs = [json.loads(path.read_text())["run"] for path in tmp_path.glob("*.json") if path.stem != "summary"]
    rate = {(run["loss"], run["batch"]): run["lr"] for run in runs if not run["trial"]}
    for name in ("SMI", "Barlow Twins"):
        assert rate[name, 16] == pytest.approx(rate[name, 32] / 2**0.5)


@pytest.mark.slow
def test_ablation(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visreg_ablation, "LAMBDAS", (0.3,))
    some = {name: visreg_ablation.ARMS[name] for name in ("full", "no scale", "shape 4:1")}
    monkeypatch.setattr(visreg_ablation, "ARMS", some)
    assert visreg_ablation.main([*words(data, tmp_path), "--batch", "32"]) == 0
    found = summary(tmp_path)
    assert found["facts"]["runs"] == 3 + 2 * (3 + 3)
    assert [(row["lam"], row["seeds"]) for row in found["rows"]] == [(0.3, 2)] * 3 + [(0.6, 2)] * 3
    assert found["rows"][0]["linear"]["difference"] == [0, 0]
    assert len({row["embedding_std"]["mean"][0] for row in found["rows"]}) == 6  # each was another training


def test_every_arm_has_another_gradient() -> None:
    first = visreg_ablation.Ablation("VISReg", 0.6, 1e-3, 0, 1, "")
    seen = []
    for changes in visreg_ablation.ARMS.values():
        z = torch.randn(2, 32, 8, generator=torch.Generator().manual_seed(0)) * 2 + 1
        z.requires_grad_()
        replace(first, **changes).objective(z).backward()
        seen.append(z.grad)
    for i, a in enumerate(seen):
        assert not any(torch.allclose(a, b, rtol=1e-3) for b in seen[:i])


def test_ratios_keep_the_sum_of_the_weights() -> None:
    first = visreg_ablation.Ablation("VISReg", 0.6, 1e-3, 0, 1, "")
    for name, changes in visreg_ablation.ARMS.items():
        run = replace(first, **changes)
        total = run.scale + run.shape + run.center
        assert total == (2 if name.startswith("no ") and name != "no detach" else 3), name


def test_the_tail_is_long_and_nothing_held_out_is_in_it(parts: Data) -> None:
    run = visreg_ablation.Ablation("VISReg", 0.6, 1e-3, 0, 1, "", imbalance=10.0)
    train, held = visreg_ablation.tail_and_rest(parts.train, run)
    counts = torch.bincount(encoder.known(train))
    assert int(counts[0]) >= 25
    assert int(counts[-1]) == int(counts[0]) // 10
    assert counts.tolist() == sorted(counts.tolist(), reverse=True)
    assert not {*train.index.tolist()} & {*held.index.tolist()}
    assert len(held) == 80
    assert len(encoder.known(held).unique()) == 10  # a probe fitted on them can name every class


def test_runs_of_a_seed_start_from_the_same_weights_and_a_loss_changes_them(parts: Data) -> None:
    run = Pretraining("VICReg", 1.0, 1e-3, 3, 1, "", batch=64)
    start = encoder.method(VICRegLoss(), seed=3).state_dict()
    again, other = (encoder.method(VICRegLoss(), seed=seed).state_dict() for seed in (3, 4))
    assert all(torch.equal(start[k], again[k]) for k in start)
    assert not torch.equal(start["backbone.stages.0.0.weight"], other["backbone.stages.0.0.weight"])
    a, b = (encoder.pretrain(r, VICRegLoss(), parts.train).state_dict() for r in (run, run))
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not torch.equal(a["backbone.stages.0.0.weight"], start["backbone.stages.0.0.weight"])


def test_a_trial_that_diverges_scores_nothing(parts: Data) -> None:
    run = Pretraining("VICReg", 1.0, 1e30, 0, 1, "", batch=64, trial=True)
    result = encoder.try_out(run, VICRegLoss(), parts.train, parts.test)
    assert result["linear"] == 0
    assert "step" in result["diverged"]


def test_the_best_trial_is_chosen() -> None:
    trials = [{"run": {"loss": n, "lr": lr}, "linear": s} for n, lr, s in (("a", 1, 2.0), ("a", 2, 3.0), ("b", 1, 1.0))]
    assert encoder.best(trials) == {"a": {"loss": "a", "lr": 2}, "b": {"loss": "b", "lr": 1}}


def test_rank_of_what_is_known() -> None:
    x = torch.randn(4000, 8, generator=torch.Generator().manual_seed(0))
    assert encoder.rank(x) == pytest.approx(8, rel=0.01)
    assert encoder.rank(x[:, :1] * torch.ones(1, 8) + 5) == pytest.approx(1, abs=1e-3)  # the mean does not count


@pytest.mark.parametrize("field", ["loss", "weight", "lr", "seed", "epochs", "data", "trial", "batch"])
def test_every_setting_is_in_the_key(field: str) -> None:
    run: Run = Pretraining("a", 1.0, 1.0, 1, 1, "d")
    value = {"loss": "b", "data": "e", "trial": True}.get(field, 2)
    assert replace(run, **{field: value}).key != run.key
