"""rhoSIM on few labels: does self identity mapping help a small ResNet on 1,000 and 4,000 labels of CIFAR-10?

Paper     Cai et al., Self Identity Mapping, table 2 (all 50,000 labels, 200 epochs)
Command   python -m recipes.sim_small_labels
Machine   two cores, no GPU; 48 CPU minutes, so 24 minutes when they are free (it shared them with other work here)
Printed   CIFAR-10, base -> + SIM: ResNet-18 94.65 -> 94.94; ResNet-50 95.26 -> 95.39, + label smoothing 95.21 -> 95.35,
          + Mixup 96.25 -> 96.48, + CutMix 96.60 -> 96.69
Measured  2026-11-15, 56 of the 60 runs at commit 4ef58e6 and 4 at 994ed44, torch 2.13.0, five paired seeds (0 to 4),
          ResNet-8 on 2 x 2 patches, 1,000 steps of 50, lambda = 5e-3, rho = 0.2.  Accuracy on the 2,000 test images,
          in %, and the paired difference with its 95 % interval (Student's t over seeds); in brackets the same
          difference on the training images whose labels were not used.

          labels  arm         without   with SIM minus without
          1,000   base          47.00   -0.21 +- 2.11   (-0.32 +- 0.56)
          1,000   smoothing     47.42   -0.76 +- 0.64   (-0.16 +- 1.22)
          1,000   Mixup         46.85   -0.21 +- 1.26   (-0.21 +- 1.01)
          1,000   CutMix        44.23   +0.40 +- 1.40   (+0.36 +- 0.72)
          4,000   base          51.95   +0.23 +- 1.75   (+0.79 +- 1.77)
          4,000   Mixup         48.35   -0.71 +- 1.17   (-0.44 +- 1.28)

Found     No gain.  Eleven of the twelve intervals contain zero; the twelfth, label smoothing on the test images, is a
          loss, and the larger set of unused images does not confirm it.  Gains of 0.1 to 0.3 points, as printed in the
          paper, cannot be seen or excluded at this size: the intervals are 0.6 to 2.1 points wide to either side.
          Retention: the ridge R^2 of the input from the output of layer2.0 rises by 0.019 +- 0.013 under label
          smoothing; every other change of R^2, in three blocks, has an interval around zero.
          Gradients: no spike above three times the moving average in any run, with or without SIM, so the claim that
          SIM removes spikes cannot be tested here.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

from recipes import arms
from recipes.arms import Result, interval
from reglet.attach import attach
from reglet.backbones.resnet import resnet8
from reglet.blocks import SIM
from reglet.latent import CutMix, Mixup

BLOCKS = ("1.layer1.0", "1.layer2.0", "1.layer3.0")
ARMS = ("base", "smooth", "mixup", "cutmix")


@dataclass(frozen=True)
class Run(arms.Run):
    """Everything that decides a result.  Runs that differ in `arm` and `weight` only are paired."""

    arm: str
    labels: int
    seed: int
    weight: float  # lambda of SIM; 0 without
    data: str  # digest of the images
    steps: int = 1000
    batch: int = 50
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    smoothing: float = 0.1
    alpha: float = 1.0
    rho: float = 0.2

    @property
    def name(self) -> str:
        return f"{self.arm} {self.labels} seed {self.seed}" + (f" + SIM {self.weight:g}" if self.weight else "")


class Data(NamedTuple):
    """Images are uint8 (n, 3, h, w)."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor


def load(path: Path) -> Data:
    with np.load(path) as f:
        images, labels, split = f["images"], f["labels"], f["split"]
    x, y = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels).long()
    train, test = (torch.from_numpy(split == part) for part in (0, 1))
    return Data(x[train], y[train], x[test], y[test])


def labelled(y: Tensor, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Indices of `n` samples, as many of each class, and of all others."""
    classes = int(y.max()) + 1
    if n % classes:
        raise ValueError(f"{n} labels do not divide among {classes} classes")
    order = torch.randperm(len(y), generator=generator)
    picked = torch.cat([order[y[order] == c][: n // classes] for c in range(classes)])
    if len(picked) < n:
        raise ValueError(f"{n} labels of {classes} classes: the smallest class has too few images")
    rest = torch.ones(len(y), dtype=torch.bool)
    rest[picked] = False
    return picked, rest.nonzero().squeeze(1)


def normalised(x: Tensor) -> Tensor:
    mu, sigma = (torch.tensor(s).view(1, 3, 1, 1) for s in ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)))
    return ((x / 255 - mu) / sigma).to(memory_format=torch.channels_last)


def augmented(x: Tensor, generator: torch.Generator) -> Tensor:
    """Random crop out of 4 pixels of padding, and flip, each image its own."""
    n, _, h, w = x.shape
    padded = nn.functional.pad(x, (4, 4, 4, 4))
    top, left = torch.randint(9, (2, n, 1, 1), generator=generator)
    flip = torch.rand(n, 1, 1, generator=generator) < 0.5
    rows = top + torch.arange(h).view(1, h, 1)
    columns = left + torch.where(flip, torch.arange(w).flip(0), torch.arange(w)).view(n, 1, w)
    return padded.permute(0, 2, 3, 1)[torch.arange(n).view(n, 1, 1), rows, columns].permute(0, 3, 1, 2)


def batches(n: int, run: Run, generator: torch.Generator) -> Iterator[Tensor]:
    """`run.steps` batches of indices, epoch after epoch without the remainder."""
    if n < run.batch:
        raise ValueError(f"{n} labels are fewer than a batch of {run.batch}")
    done = 0
    while done < run.steps:
        for batch in torch.randperm(n, generator=generator).split(run.batch)[: n // run.batch]:
            if done < run.steps:
                yield batch
            done += 1


def network() -> nn.Module:
    """ResNet-8 on 2 x 2 patches: a quarter of the work, so that 1,000 labels can be seen often enough to overfit."""
    model: nn.Module = nn.Sequential(nn.PixelUnshuffle(2), resnet8(in_channels=12, num_classes=10))
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub


def objective(run: Run, generator: torch.Generator) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
    """The task's loss in this arm; what it draws does not depend on SIM."""
    smoothing = run.smoothing if run.arm == "smooth" else 0.0
    mixup, cutmix = Mixup(alpha=run.alpha), CutMix(alpha=run.alpha)

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        if run.arm == "mixup":
            x, y = mixup.mix(x, y, mixup.draw(len(x), generator), num_classes=10)
        elif run.arm == "cutmix":
            x, y = cutmix.mix(x, y, cutmix.draw(len(x), generator), num_classes=10)
        return nn.functional.cross_entropy(model(x), y, label_smoothing=smoothing)

    return loss


def train(run: Run, data: Data) -> Result:
    """One network, from scratch; every random stream but SIM's own is a function of `run.seed` alone."""
    streams = [torch.Generator().manual_seed(1000 * run.seed + i) for i in range(4)]
    known, unused = labelled(data.y, run.labels, streams[0])
    torch.manual_seed(run.seed)
    model = network()
    x, y = normalised(data.x[known]), data.y[known]
    sim = attach(model, list(BLOCKS), SIM(rho=run.rho, seed=run.seed), example=x[: run.batch]) if run.weight else None
    parameters = [*model.parameters(), *(sim.parameters() if sim else ())]
    optimizer = torch.optim.SGD(parameters, lr=run.lr, momentum=run.momentum, weight_decay=run.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, run.steps)
    task = objective(run, streams[1])
    norms, losses, penalties = [], [], []
    for batch in batches(run.labels, run, streams[2]):
        optimizer.zero_grad()
        loss = task(model, augmented(x[batch], streams[3]), y[batch])
        # Two backward passes, because the norm wanted is that of the task's gradient alone.
        loss.backward(retain_graph=sim is not None)
        norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])))
        if sim is not None:
            penalty = sim.loss()
            (run.weight * penalty).backward()
            penalties.append(float(penalty.detach()))
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    if sim is not None:
        sim.remove()
    model.eval()
    return {
        "test": accuracy(model, data.x_test, data.y_test),
        "unused": accuracy(model, data.x[unused], data.y[unused]),
        "loss": mean(losses[-20:]),
        "penalty": [mean(part) for part in (penalties[:20], penalties[-20:])] if penalties else None,
        **roughness(norms),
        "retained": {name: retained(model, name, data.x_test) for name in BLOCKS},
    }


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """In per cent."""
    hits = [model(normalised(a)).argmax(1) == b for a, b in zip(x.split(200), y.split(200), strict=True)]
    return 100 * torch.cat(hits).double().mean().item()


def roughness(norms: Sequence[float], *, decay: float = 0.98, factor: float = 3.0) -> dict[str, float]:
    """How a gradient norm jumps about its moving average up to the step before.

    spikes: the fraction of steps above `factor` times it; jitter: the standard deviation of the log of their ratio.
    """
    average, ratios = norms[0], []
    for norm in norms[1:]:
        ratios.append(norm / average)
        average = decay * average + (1 - decay) * norm
    return {
        "spikes": mean(float(r > factor) for r in ratios),
        "jitter": stdev(math.log(r) for r in ratios),
        "largest_jump": max(ratios),
        "gradient": mean(norms),
    }


@torch.no_grad()
def retained(model: nn.Module, name: str, x: Tensor, *, ridge: float = 1e-3) -> float:
    """R^2 with which a ridge regression reads a block's input tokens out of its output tokens, on images that are new
    to network and regression.

    A strided block's output token is held against the mean of its window, as SIM does.  R^2 is one minus the summed
    squared error over the summed variance of all input channels.
    """
    seen: list[tuple[Tensor, Tensor]] = []
    handle = model.get_submodule(name).register_forward_hook(lambda _m, inputs, out: seen.append((inputs[0], out)))
    picks = torch.Generator().manual_seed(0)
    pairs = []
    for part in x[:1000].split(200):
        model(normalised(part))
        a, b = seen.pop()
        where = torch.randperm(b.shape[2] * b.shape[3], generator=picks)[:16]
        a = nn.functional.adaptive_avg_pool2d(a, (b.shape[2], b.shape[3]))
        pairs.append([t.flatten(2)[:, :, where].transpose(1, 2).double() for t in (a, b)])
    handle.remove()
    a, b = (torch.cat(side) for side in zip(*pairs, strict=True))
    half = len(a) // 2
    (a_fit, a_new), (b_fit, b_new) = ([t[:half].flatten(0, 1), t[half:].flatten(0, 1)] for t in (a, b))
    mu, nu, sigma = a_fit.mean(0), b_fit.mean(0), b_fit.std(0) + 1e-12
    u = (b_fit - nu) / sigma
    gram = u.T @ u / len(u) + ridge * torch.eye(u.shape[1], dtype=u.dtype)
    w = torch.linalg.solve(gram, u.T @ (a_fit - mu) / len(u))
    error = a_new - mu - (b_new - nu) / sigma @ w
    return 1 - (error.square().sum() / (a_new - a_new.mean(0)).square().sum()).item()


def plan(options: argparse.Namespace, digest: str) -> list[Run]:
    """Seed by seed, so that whatever is finished is paired."""
    cells = [(arm, options.labels[0], weight) for arm in ARMS for weight in (0.0, options.weight)]
    cells += [("base", options.labels[0], weight) for weight in options.dose]
    cells += [(arm, n, w) for n in options.labels[1:] for arm in ("base", "mixup") for w in (0.0, options.weight)]
    first = Run("base", 0, 0, 0.0, digest, steps=options.steps, batch=options.batch)
    return [
        replace(first, arm=arm, labels=labels, seed=seed, weight=weight)
        for seed in range(options.seeds)
        for arm, labels, weight in cells
    ]


def measures(result: Result) -> dict[str, float]:
    return {
        "test": result["test"],
        "unused": result["unused"],
        "spikes %": 100 * result["spikes"],
        "jitter": result["jitter"],
        **{f"R2 {name[2:]}": value for name, value in result["retained"].items()},
    }


def summarise(results: list[Result]) -> list[Result]:
    """One row per arm, number of labels and lambda: its mean, and with SIM the paired difference."""
    cells: dict[tuple[int, str, float], dict[int, dict[str, float]]] = {}
    for result in results:
        run = Run(**result["run"])
        cells.setdefault((run.labels, run.arm, run.weight), {})[run.seed] = measures(result)
    rows = []
    for (labels, arm, weight), seeds in cells.items():
        row: Result = {
            "labels": labels,
            "arm": arm,
            "weight": weight,
            "seeds": len(seeds),
            "mean": {},
            "difference": {},
        }
        without = cells.get((labels, arm, 0.0), {})
        paired = sorted(seeds.keys() & without.keys()) if weight else []
        for measure in next(iter(seeds.values())):
            row["mean"][measure] = mean(m[measure] for m in seeds.values())
            if paired:
                row["difference"][measure] = interval([seeds[s][measure] - without[s][measure] for s in paired])
        rows.append(row)
    return rows


def markdown(rows: list[Result]) -> str:
    names = list(rows[0]["mean"])
    lines = ["| labels | arm | SIM | " + " | ".join(names) + " |", "|" + "---|" * (3 + len(names))]
    for row in rows:
        cells = []
        for name in names:
            digits = 2 if name in ("test", "unused", "spikes %") else 3
            cell = f"{row['mean'][name]:.{digits}f}"
            if name in row["difference"]:
                difference, half = row["difference"][name]
                cell += f" ({difference:+.{digits}f} ± {half:.{digits}f})"
            cells.append(cell)
        weight = f"{row['weight']:g}" if row["weight"] else "-"
        lines.append(f"| {row['labels']} | {row['arm']} | {weight} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def recipe(options: argparse.Namespace, console: Console) -> None:
    runs = plan(options, arms.require_data(options.data))
    results = arms.execute(runs, train, load=load, options=options, console=console, shown="test")
    rows = summarise(results)
    arms.report(options.out, results, rows, markdown(rows))


def main(words: Sequence[str] | None = None) -> int:
    parser = arms.arguments("sim_small_labels", "rhoSIM on few labels of CIFAR-10", seeds=5)
    parser.add_argument(
        "--labels", type=int, nargs="+", default=[1000, 4000], help="all arms; then base and mixup only"
    )
    parser.add_argument("--weight", type=float, default=5e-3, help="lambda of SIM")
    parser.add_argument("--dose", type=float, nargs="*", default=[], help="further lambdas on the base arm")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=50)
    return arms.main(recipe, parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
