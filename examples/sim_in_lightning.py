"""SIM in any LightningModule by a callback, with online probes and the doctor.

    pip install 'reglet[lightning,data]'
    python examples/sim_in_lightning.py          about ten seconds

The module knows nothing of reglet.  Its checkpoint is its own; the heads are in the callback's part of it.
"""

import argparse
import logging
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import reglet
from reglet.integrations.lightning import AttachLoss, OnlineProbes, WatchWithDoctor


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.norm(self.conv(x)))


class Classifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        blocks = nn.Sequential(Block(32), Block(32), Block(32))
        self.backbone = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(32, 10)

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        loss = nn.functional.cross_entropy(self.head(self.backbone(batch[0])), batch[1])
        self.log("task", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("runs/sim_in_lightning"))
parser.add_argument("--quick", action="store_true")
given = parser.parse_args()
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

digits = load_digits()
x = torch.tensor(digits.images[:, None], dtype=torch.float32) / 16
y = torch.tensor(digits.target)
train = DataLoader(TensorDataset(x[:1200], y[:1200]), batch_size=64, shuffle=True, drop_last=True)
test = DataLoader(TensorDataset(x[1200:], y[1200:]), batch_size=256)

pl.seed_everything(0)
sim = AttachLoss("1.*", reglet.SIM(), weight="share:0.2", inside="backbone", example=x[:2])
probes = OnlineProbes(train, test, encoder="backbone")
doctor = WatchWithDoctor(embeddings="backbone", doctor=reglet.Doctor(every=10, grace=10, classes=10))
quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = pl.Trainer(
    max_epochs=1 if given.quick else 5, accelerator="cpu", callbacks=[sim, probes, doctor],
    enable_checkpointing=False, **quiet,
)  # fmt: skip
model = Classifier()
trainer.fit(model, train)
for row in probes.scores:
    print(f"epoch {row['epoch']:.0f}  kNN {row['knn']:.1%}  linear {row['linear']:.1%}  rank {row['rank']:.1f}")
print("the doctor:", [f"{row['step']}: {row['verdict']}" for row in doctor.doctor.timeline])
print("SIM:", round(float(trainer.callback_metrics["sim"]), 4), "of", sorted(sim.penalty.attachment.blocks))
trainer.save_checkpoint(given.out / "last.ckpt")
sim.penalty.save(given.out / "heads.safetensors")
