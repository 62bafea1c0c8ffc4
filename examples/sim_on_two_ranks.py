"""SIM under DDP: two processes by torchrun end with the network and the heads of one process on the whole batch.

    python examples/sim_on_two_ranks.py          about fifteen seconds; it starts torchrun itself

The attachment averages the gradients of its heads over ranks.  DDP does so for the network, and knows nothing of them.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import reglet
from reglet.integrations import Penalty

BATCH = 64


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.conv(x))


def train(rank: int, world: int, steps: int) -> dict[str, Tensor]:
    """Each rank has its part of every batch.  Gives all weights by name."""
    digits = load_digits()
    x = torch.tensor(digits.images[:, None], dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    torch.manual_seed(0)
    blocks = nn.Sequential(Block(32), Block(32))
    net = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), blocks, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10)
    )
    penalty = Penalty(net, "1.*", reglet.SIM(), weight=0.05, example=x[:2])
    model = DistributedDataParallel(net) if world > 1 else net  # attach first, then wrap
    optimizer = torch.optim.SGD([*net.parameters(), *penalty.parameters()], lr=0.05, momentum=0.9)
    for step in range(steps):
        rows = torch.arange(step * BATCH, (step + 1) * BATCH).chunk(world)[rank]
        loss = penalty(nn.functional.cross_entropy(model(x[rows]), y[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    heads = {f"heads.{name}": p.detach() for name, p in penalty.named_parameters()}
    return {f"net.{name}": p.detach() for name, p in net.named_parameters()} | heads


def furthest(a: dict[str, Tensor], b: dict[str, Tensor], part: str) -> float:
    return max(float((a[name] - b[name]).abs().max()) for name in a if name.startswith(part))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("runs/sim_on_two_ranks"))
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    steps = 5 if given.quick else 25
    if "RANK" in os.environ:  # torchrun started this process
        dist.init_process_group("gloo")
        save_file(train(dist.get_rank(), dist.get_world_size(), steps), given.out / f"{dist.get_rank()}.safetensors")
        dist.destroy_process_group()
        return
    given.out.mkdir(parents=True, exist_ok=True)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*torchrun, *sys.argv], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    ranks, alone = [load_file(given.out / f"{rank}.safetensors") for rank in range(2)], train(0, 1, steps)
    for part in ("net", "heads"):
        between, apart = furthest(ranks[0], ranks[1], part), furthest(ranks[0], alone, part)
        print(f"{part}: rank 0 against rank 1 {between:.1e}, two ranks against one process {apart:.1e}")
        assert between == 0
        assert apart < 1e-5


if __name__ == "__main__":
    main()
