"""Started by torchrun: AttachLoss under Lightning's DDP.  Leaves the weights and heads of its rank.

torchrun --standalone --nproc-per-node=2 -m tests.integrations.lightning_on_two_ranks FOLDER own|injected
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from torch.utils.data import DataLoader, DistributedSampler

if find_spec("torchvision"):
    import conftest

    conftest.import_torchvision()

import pytorch_lightning as pl
from tests.integrations.small import BLOCKS, WEIGHT, X, loader, sim
from tests.integrations.test_lightning import QUIET, classifier

from reglet.integrations.lightning import AttachLoss

if __name__ == "__main__":
    model, callback = classifier(pl), AttachLoss(f"net.{BLOCKS}", sim(), weight=WEIGHT, example=X[:2])
    given = QUIET | {"devices": 2, "strategy": "ddp", "callbacks": [callback], "max_epochs": 1}
    data = loader().dataset
    if sys.argv[2] == "injected":  # Lightning puts its own sampler in
        pl.Trainer(**given).fit(model, DataLoader(data, batch_size=8))
    else:
        own = DistributedSampler(data, num_replicas=2, rank=int(os.environ["RANK"]), shuffle=False)  # every second
        pl.Trainer(use_distributed_sampler=False, **given).fit(model, DataLoader(data, batch_size=8, sampler=own))
    left = [p.detach() for p in model.net.parameters()], [p.detach() for p in callback.penalty.parameters()]
    torch.save(left, Path(sys.argv[1]) / f"{os.environ['RANK']}.pt")
