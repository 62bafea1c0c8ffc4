"""Seeds side by side are the seeds alone; and a recipe of such runs has a result for each seed."""

from pathlib import Path

import numpy as np
import pytest
import torch
from recipes.generalize import Labelled, Network, train, train_many
from recipes.long_tail import Balanced
from recipes.many import Many
from recipes.recipe import Recipe, apart, main, plan, seeds_of

from recipes import pacs_adapters, pacs_adapters_lite, recipe
from reglet.backbones import ConvNet
from reglet.methods import Supervised
from reglet.methods.domains import leave_out
from reglet.runs import Finished, Run, read_summary
from reglet.tails import BalancedSoftmax

FOLDS = ("lite1, photo", "lite2, photo")
SMALL = {"steps": 5, "per_domain": 4, "lr": 1e-2, "dim": 6, "inner": 3, "size": 32}


def labelled(n: int = 120, d: int = 6) -> Labelled:
    g = torch.Generator().manual_seed(0)
    y, domain = torch.arange(n) % 3, torch.arange(n) // (n // 4)
    return Labelled(torch.randn(n, d, generator=g) + y[:, None], y, domain, classes=3)


def network(seed: int) -> Network:
    return pacs_adapters.network(seed, SMALL)


@pytest.mark.parametrize("arm", ["ERM", "CORAL"])  # without dropout
def test_side_by_side_is_alone(arm: str) -> None:
    data, seeds = labelled(), [1, 2, 3]
    splits = [leave_out(data.domain, 0, seed=seed) for seed in seeds]
    together = train_many(
        Run(arm, 1, "", SMALL), [network(s) for s in seeds], data, [split.train for split in splits], seeds
    )
    for seed, split, one in zip(seeds, splits, together, strict=True):
        alone = train(Run(arm, seed, "", SMALL), network(seed), data, split.train)
        for (name, a), b in zip(alone.state_dict().items(), one.state_dict().values(), strict=True):
            torch.testing.assert_close(a, b, msg=name, rtol=1e-4, atol=1e-5)


def test_a_tail_side_by_side_is_alone() -> None:
    data, counts, index = labelled(), torch.tensor([30, 20, 10]), torch.arange(120)
    (one,) = train_many(Run("ERM", 1, "", SMALL), [network(1)], data, [index], [1], criterion=Balanced(counts))
    alone = train(Run("ERM", 1, "", SMALL), network(1), data, index, criterion=BalancedSoftmax(counts))
    plain = train(Run("ERM", 1, "", SMALL), network(1), data, index)
    torch.testing.assert_close(one.head.bias, alone.head.bias, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(one.head.bias, plain.head.bias, atol=1e-3)


@pytest.mark.parametrize(
    "arm", ["BatchFormer", "LatentDR SA", "LatentDR Pool", "R only", "Gaussian", pacs_adapters.OWN]
)
def test_arms_with_noise_train_and_seeds_differ(arm: str) -> None:
    data = labelled(d=8)
    index = leave_out(data.domain, 0, seed=0).train
    small = SMALL | {"dim": 8}
    nets = [pacs_adapters.network(seed, small) for seed in (1, 2)]
    one, other = train_many(Run(arm, 1, "", small), nets, data, [index, index], [1, 2])
    assert not torch.equal(one.head.weight, other.head.weight)
    assert all(p.isfinite().all() for p in one.parameters())


def test_buffers_are_refused() -> None:
    with pytest.raises(ValueError, match="got the buffers backbone"):
        Many([Supervised(ConvNet(widths=(4,)), classes=2)])


def test_the_features_are_reduced_by_the_training_domains() -> None:
    data = labelled()._replace(classes=3)
    small = pacs_adapters.reduced(data, "art_painting", 4)
    assert small.x.shape == (120, 4)
    known = data.domain != 0
    assert small.x[known].mean(0).abs().max() < 1e-5
    changed = data._replace(x=torch.where(known[:, None], data.x, 100.0))
    torch.testing.assert_close(pacs_adapters.reduced(changed, "art_painting", 4).x[known], small.x[known])


def compute(run: Run, offset: float) -> dict[str, object]:
    if run.arm == "nothing":
        return {"score": 0.0}
    return {"score": [offset + seed + (run.arm == "more") + 0.01 * (seed % 3) for seed in seeds_of(run, 4)]}


def load(path: Path) -> float:
    return float(path.read_text())


SIDE = Recipe(
    name="side",
    paper="none",
    compute=compute,
    load=load,
    data=Path("nowhere"),
    settings={"steps": 3},
    arms={"base": {}, "more": {}, "nothing": {}},
    base="base",
    measures=("score",),
    once=("nothing",),
    seeds=8,
    side=4,
    printed=(recipe.Printed("more is more", "table 1", "more", "base", 1.0),),
    reference="nothing",
)


def test_one_run_is_several_seeds(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("10")
    words = [f"data={tmp_path / 'data'}", f"out={tmp_path / 'out'}", "jobs=1"]
    assert main(SIDE, words) == 0
    (claim,) = read_summary(tmp_path / "out/summary.json")["claims"]
    assert (claim["ours"]["n"], claim["ours"]["mean"]) == (8, pytest.approx(1.0))
    runs = plan(SIDE, SIDE.settings, {}, seeds=8)
    assert sorted((r.arm, r.seed) for r in runs if r.arm in ("more", "nothing")) == [
        ("more", 1),
        ("more", 2),
        ("nothing", 1),
    ]


def test_cpu_seconds_are_shared_out() -> None:
    found = apart([Finished(Run("a", 2), {"y": [1.0, 2.0]}, {"cpu_seconds": 4.0})], 2)
    assert [(r.run.seed, r.scores["y"], r.about["cpu_seconds"]) for r in found] == [(3, 1.0, 2.0), (4, 2.0, 2.0)]
    (one,) = apart([Finished(Run("a", 1), {"y": 1.0}, {"cpu_seconds": 4.0})], 2)
    assert (one.run.seed, one.about["cpu_seconds"]) == (1, 4.0)


def test_the_larger_networks_have_features_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold's name says whose features are seen; they are made once."""
    asked = []

    def pretrained(version: int) -> torch.nn.Module:
        asked.append(version)
        return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(version), torch.nn.Flatten())

    monkeypatch.setattr(pacs_adapters, "pretrained", pretrained)
    for name in pacs_adapters_lite.DOMAINS:
        x = np.random.default_rng(0).integers(0, 255, (12, 8, 8, 3), np.uint8)
        np.savez(tmp_path / f"pacs64_{name}.npz", images=x, labels=np.arange(12) % 3)
    for _ in range(2):
        made = pacs_adapters_lite.prepare(tmp_path, tmp_path / "out", {"size": 8})
    assert asked == [1, 2]
    data = pacs_adapters_lite.load(made)
    assert [d.x.shape[1] for d in data.values()] == [3, 12]
    settings = SMALL | {"dim": 3, "trial": True}
    found = {fold: pacs_adapters_lite.compute(Run("ERM", 1, fold, settings), data) for fold in FOLDS}
    assert found["lite1, photo"] != found["lite2, photo"]
