"""Callbacks of Lightning, with the real Trainer."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from tests.integrations.small import BLOCKS, WEIGHT, X, Y, by_hand, loader, network, same, sim
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import reglet
from reglet.doctor import Doctor, DoctorWarning

pytestmark = pytest.mark.filterwarnings("default")  # Lightning warns about its own surroundings


@pytest.fixture(scope="module")
def pl(torchvision: ModuleType) -> ModuleType:
    return pytest.importorskip("pytorch_lightning")


QUIET: dict[str, Any] = {
    "accelerator": "cpu", "devices": 1, "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
    "enable_model_summary": False,
}  # fmt: skip


def classifier(pl: ModuleType, **given: Any) -> Any:
    class Classifier(pl.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.net(x)
            return logits

        def training_step(self, batch: list[Tensor], batch_idx: int) -> Any:
            loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
            return {"loss": loss} if given.get("in_dict") else loss

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
            if not given.get("scheduled"):
                return optimizer
            return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}

    return Classifier()


def attached(**given: Any) -> Any:
    from reglet.integrations.lightning import AttachLoss

    said = {"weight": WEIGHT, "example": X[:2]} | given
    return AttachLoss(said.pop("where", f"net.{BLOCKS}"), sim(), **said)


@pytest.mark.parametrize("parts", [1, 2])
def test_it_is_the_loop_by_hand_to_the_bit(pl: ModuleType, parts: int) -> None:
    model, callback = classifier(pl, in_dict=parts == 2), attached()
    pl.Trainer(max_epochs=1, accumulate_grad_batches=parts, callbacks=[callback], **QUIET).fit(model, loader())
    net, heads = by_hand(parts=parts)
    same(model.net, net)
    for a, b in zip(callback.penalty.parameters(), heads.parameters(), strict=True):
        assert torch.equal(a, b)
    assert list(model.state_dict()) == list(classifier(pl).state_dict())
    assert "training_step" not in vars(model)


def test_a_killed_run_goes_on_with_its_heads(pl: ModuleType, tmp_path: Path) -> None:
    """Two epochs; and one, saved, then one more in fresh objects.  The checkpoint is one of the module alone, too."""
    whole, whole_heads = classifier(pl, scheduled=True), attached()
    pl.Trainer(max_epochs=2, callbacks=[whole_heads], **QUIET).fit(whole, loader())
    first = pl.Trainer(max_epochs=1, callbacks=[attached()], **QUIET)
    model = classifier(pl, scheduled=True)
    first.fit(model, loader())
    # Lightning saves through the strategy, which after fit still knows the module
    first.save_checkpoint(tmp_path / "half.ckpt")
    model, heads = classifier(pl, scheduled=True), attached()
    pl.Trainer(max_epochs=2, callbacks=[heads], **QUIET).fit(model, loader(), ckpt_path=tmp_path / "half.ckpt")
    same(model, whole)
    for a, b in zip(heads.penalty.parameters(), whole_heads.penalty.parameters(), strict=True):
        assert torch.equal(a, b)
    kept = torch.load(tmp_path / "half.ckpt", weights_only=True)["state_dict"]
    assert list(kept) == list(model.state_dict())


def test_bfloat16_trains_near_the_loop_by_hand(pl: ModuleType) -> None:
    """Within a tenth of the distance that training moved the weights: bfloat16 has 8 bits."""
    model = classifier(pl)
    pl.Trainer(max_epochs=1, precision="bf16-mixed", callbacks=[attached()], **QUIET).fit(model, loader())
    net, _ = by_hand()
    start = torch.cat([p.flatten() for p in network().parameters()])
    ours, theirs = (torch.cat([p.detach().flatten() for p in each.parameters()]) for each in (model.net, net))
    assert (ours - theirs).norm() < 0.1 * (theirs - start).norm()


def test_a_share_of_the_gradient(pl: ModuleType) -> None:
    callback = attached(weight="share:0.25")
    pl.Trainer(max_steps=4, callbacks=[callback], **QUIET).fit(classifier(pl), loader())
    assert callback.penalty.weight.now_weight > 0


@pytest.mark.parametrize("sampler", ["own", "injected"])
def test_two_ranks_train_as_one_process(pl: ModuleType, tmp_path: Path, sampler: str) -> None:
    """Lightning's DDP, by torchrun: heads equal on both ranks, and those of a loop by hand on the whole batch.

    The sampler that Lightning puts in shuffles, whether or not the loader does: the loop by hand takes that order.
    """
    root = Path(__file__).parents[2]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*torchrun, "-m", "tests.integrations.lightning_on_two_ranks", str(tmp_path), sampler],
        cwd=root, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    order = torch.arange(160)
    if sampler == "injected":
        each = [list(DistributedSampler(range(160), num_replicas=2, rank=rank)) for rank in range(2)]  # type: ignore[arg-type]
        order = torch.tensor(each).view(2, -1, 8).transpose(0, 1).flatten()  # 8 of each rank in a batch
    for part, alone in enumerate(by_hand(order=order)):
        for a, b, c in zip(first[part], second[part], alone.parameters(), strict=True):
            assert torch.equal(a, b)
            torch.testing.assert_close(a, c.detach(), rtol=1e-4, atol=1e-6)


def test_errors(pl: ModuleType) -> None:
    trainer = pl.Trainer(max_steps=1, callbacks=[attached(where="layer9")], **QUIET)
    with pytest.raises(LookupError, match=r"no module matches 'layer9'. This model has: net, net.0"):
        trainer.fit(classifier(pl), loader())
    manual, trainer = classifier(pl), pl.Trainer(max_steps=1, callbacks=[attached()], **QUIET)
    manual.automatic_optimization = False
    with pytest.raises(ValueError, match="has automatic_optimization = False"):
        trainer.fit(manual, loader())
    blind, trainer = pretraining(pl), pl.Trainer(max_steps=1, callbacks=[attached(where="backbone.1")], **QUIET)
    with pytest.raises(ValueError, match=r'Pretraining has no forward.* inside="backbone", say'):
        trainer.fit(blind, loader())


def pretraining(pl: ModuleType, *, weight: float = 1.0) -> Any:
    class Pretraining(pl.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU())
            self.projector = nn.Linear(32, 16)
            self.criterion = reglet.VICRegLoss(variance=25 * weight, covariance=weight)

        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
            views = [self.projector(self.backbone(batch[0] + 0.1 * torch.randn_like(batch[0]))) for _ in range(2)]
            loss: Tensor = self.criterion(*views)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    return Pretraining()


def watcher(doctor: Doctor, **given: Any) -> Any:
    from reglet.integrations.lightning import WatchWithDoctor

    said = {"embeddings": "projector", "features": "backbone", "loss": "criterion"} | given
    return WatchWithDoctor(doctor=doctor, **said)


def test_the_doctor_stops_a_sick_run_and_leaves_a_healthy_one(pl: ModuleType) -> None:
    for weight, verdicts in ((1e-6, {"suspicion", "negligible regularizer"}), (1.0, {"healthy"})):
        doctor = Doctor(every=4, grace=0, action="stop")
        trainer = pl.Trainer(max_steps=40, callbacks=[watcher(doctor)], **QUIET)
        model = pretraining(pl, weight=weight)
        if weight < 1:
            with pytest.warns(DoctorWarning, match="negligible regularizer"):
                trainer.fit(model, loader(batch=64, n=320))
        else:
            trainer.fit(model, loader(batch=64, n=320))
        assert {row["verdict"] for row in doctor.timeline} == verdicts
        assert (trainer.global_step < 40) == (weight < 1)
        assert float(trainer.callback_metrics["sick"]) == (weight < 1)
        assert not any(module._forward_hooks for module in model.modules())


def test_watching_changes_nothing(pl: ModuleType) -> None:
    models = []
    for callbacks in ([], [watcher(Doctor(every=1, grace=0))]):
        models.append(pretraining(pl))
        torch.manual_seed(1)
        pl.Trainer(max_steps=5, callbacks=callbacks, **QUIET).fit(models[-1], loader(batch=64, n=320))
    same(*models)


def test_the_scale_of_float16_is_taken_off_the_loss(pl: ModuleType) -> None:
    callback, model, trainer = watcher(Doctor(every=3, grace=0)), pretraining(pl), pl.Trainer(**QUIET)
    trainer.strategy.precision_plugin.scaler = SimpleNamespace(get_scale=lambda: 1024.0)
    callback.on_fit_start(trainer, model)
    callback.on_train_batch_start(trainer, model, None, 0)
    loss = model.training_step([X[:64]], 0)
    callback.on_before_backward(trainer, model, 1024 * loss)
    torch.testing.assert_close(callback.doctor._losses[0], loss.detach())


def test_what_the_doctor_cannot_see_says_so(pl: ModuleType) -> None:
    trainer = pl.Trainer(max_steps=1, **QUIET)
    wrong = {
        "no module matches 'head'": {"embeddings": "head"},
        "loss='backbone' is a Sequential, which has no terms": {"loss": "backbone"},
        "means 2 modules, and the doctor looks at one: backbone.1, backbone.2": {"embeddings": "backbone.[12]"},
        "'projector' gives (64,), and the doctor takes one vector for each sample": {"read": lambda h: h.sum(1)},
    }
    for says, given in wrong.items():
        trainer = pl.Trainer(max_steps=1, callbacks=[watcher(Doctor(), **given)], **QUIET)
        with pytest.raises((LookupError, TypeError, ValueError), match=re.escape(says)):
            trainer.fit(pretraining(pl), loader(batch=64))


def test_online_probes(pl: ModuleType) -> None:
    from reglet.integrations.lightning import OnlineProbes

    train = DataLoader(TensorDataset(X[:240], Y[:240]), batch_size=80)
    test = DataLoader(TensorDataset(X[240:], Y[240:]), batch_size=80)
    model, probes = pretraining(pl), OnlineProbes(train, test, encoder="backbone", every=2)
    trainer = pl.Trainer(max_epochs=4, callbacks=[probes], **QUIET)
    trainer.fit(model, loader(batch=64, n=320))
    assert [row["epoch"] for row in probes.scores] == [2, 4]
    with torch.no_grad():
        a, b = (model.backbone(x) for x in (X[:240], X[240:]))
    assert probes.scores[-1]["knn"] == pytest.approx(reglet.probes.knn_probe(a, Y[:240], b, Y[240:]))
    assert probes.scores[-1]["linear"] > 0.7
    assert float(trainer.callback_metrics["linear"]) == pytest.approx(probes.scores[-1]["linear"])
    maps = pl.Trainer(max_epochs=1, callbacks=[OnlineProbes(train, test, encoder="net.0")], **QUIET)
    with pytest.raises(ValueError, match=r"the probes take features \(n, d\), and net.0 gave \(80, 8, 8, 8\)"):
        maps.fit(classifier(pl), loader())
