"""What the methods cost: operations of SMI and of SER, time and memory of SIM.

Paper     SMI, table 2; SER, table 17; SIM, table 11
Command   python -m recipes.costs
Printed   SMI, G multiply-adds of a loss on 8 devices with 256 samples of 8192 features: SMI 12.88, Barlow Twins 137.43,
          VICReg 274.87, NT-Xent 103.07.  SER: 1.008 times the FLOPs of MoCo-v3, ViT-S/16.  SIM, with over without:
          ResNet-18 time 1.11, memory 1.04; ResNet-50, with 1.18 and 1.07, is in docs/speed.md
Design    Nothing is trained.  Operations are what torch's counter counts in the matrix products of a forward pass (SMI)
          or both passes (SER), on the meta device, as reglet computes them; twice the multiply-adds.  A count of losses
          is the same for every seed; SER's depends on the symmetries drawn: a seed is the mean over eight draws.
          SIM: benchmarks/sim.py, 64 images of 32 px; a seed is the median over rounds of the ratio of CPU times, with
          and without SIM in turn, and a ratio of memory is of processes of their own.
"""

import sys
import time
from pathlib import Path

import torch
from benchmarks import memory, ser, sim
from benchmarks.timing import interleave
from torch.utils.flop_counter import FlopCounterMode

from recipes.recipe import Printed, Recipe, Scores, itself, main
from reglet.losses import BarlowTwinsLoss, NTXentLoss, SMILoss, VICRegLoss
from reglet.losses.base import OnViews
from reglet.runs import Run

DEVICES, SAMPLES, FEATURES = 8, 256, 8192
GATHERED = {"Barlow Twins": 137.43, "VICReg": 274.87, "NT-Xent": 103.07}  # over all devices; SMI sees each alone
LOSSES: dict[str, OnViews] = {
    "SMI": SMILoss(),
    "Barlow Twins": BarlowTwinsLoss(),
    "VICReg": VICRegLoss(),
    "NT-Xent": NTXentLoss(),
}
NETWORKS = {case.name: number for number, case in enumerate(sim.CASES)}
SECONDS = 20.0  # of CPU time, for the rounds of one seed
ALONE: dict[str, Scores] = {"nothing": {"G multiply-adds": 0.0}, "MoCo-v3": {"FLOPs": 1.0}}
ALONE |= {name: {"time": 1.0, "memory": 1.0} for name in NETWORKS}
SIM = {"ResNet-18": (0.11, 0.04)}  # what SIM adds, in time and in memory; others are in docs/speed.md


def compute(run: Run, nothing: Path) -> Scores:
    """Networks without what is added are 1, for measures are ratios to them."""
    if run.arm in LOSSES:
        return {"G multiply-adds": operations(run.arm)}
    if run.arm == "MoCo-v3 + SER":
        return {"FLOPs": relative_flops(run.seed)}
    name, _, added = run.arm.partition(" + ")
    return with_sim(NETWORKS[name]) if added else ALONE[name]


def operations(name: str) -> float:
    """Of the loss of one step on all devices, forward, in G multiply-adds."""
    n = SAMPLES * (DEVICES if name in GATHERED else 1)
    views = torch.empty(2, n, FEATURES, device="meta")
    with FlopCounterMode(display=False) as counter:
        LOSSES[name](views)
    return counter.get_total_flops() / 2 / 1e9 * (1 if name in GATHERED else DEVICES)


def relative_flops(seed: int) -> float:
    """Of MoCo-v3 with SER, both ways, over those without."""
    alone, with_ser = ser.counted(backward=True, seed=seed)
    return sum(with_ser) / len(with_ser) / alone


def with_sim(number: int) -> Scores:
    """Over the same network without SIM."""
    case = sim.CASES[number]
    steps = {"with": sim.step(case, sim=True), "without": sim.step(case, sim=False)}
    rounds = interleave(steps, budget=SECONDS, clock=time.process_time)
    more, less = (memory.peak(f"benchmarks.sim:{which}", number) for which in ("with_sim", "without"))
    return {"time": rounds.ratio("with", "without").median, "memory": more / less}


def _printed() -> list[Printed]:
    count = "G multiply-adds"
    found = [Printed("SMI takes 12.88 G", "table 2", "SMI", "nothing", 12.88, measure=count, paper="SMI")]
    for name, printed in GATHERED.items():
        less = round(12.88 - printed, 2)
        found.append(Printed(f"SMI takes less than {name}", "table 2", "SMI", name, less, measure=count, paper="SMI"))
    added = "MoCo-v3 + SER"
    found.append(Printed("SER adds FLOPs", "table 17", added, "MoCo-v3", 0.008, measure="FLOPs", paper="SER"))
    for name, (seconds, bytes_) in SIM.items():
        for what, printed in (("time", seconds), ("memory", bytes_)):
            claim = f"SIM adds {what} to {name}"
            found.append(Printed(claim, "table 11", f"{name} + SIM", name, printed, measure=what, paper="rhoSIM"))
    return found


RECIPE = Recipe(
    name="costs",
    paper="SMI, SER, rhoSIM",
    compute=compute,
    load=itself,
    arms={name: {} for name in (*LOSSES, "nothing", "MoCo-v3", "MoCo-v3 + SER")}
    | {f"{name}{added}": {} for name in SIM for added in ("", " + SIM")},
    measures=("G multiply-adds", "FLOPs", "time", "memory"),
    base={"SMI": "Barlow Twins", "MoCo-v3 + SER": "MoCo-v3"} | {f"{name} + SIM": name for name in SIM},
    printed=_printed(),
    length="",
)

if __name__ == "__main__":
    sys.exit(main(RECIPE))
