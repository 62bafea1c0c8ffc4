"""Pretrain a small encoder on digits without their labels, and ask probes what it learned.    (make demo)

    python examples/digits.py --out runs/demo

1,297 digits, each on a coloured and textured canvas at a position, size and angle of its own (`reglet.data`), a conv
net of 287,000 parameters, VISRegLoss on two views.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from safetensors.torch import load_file, save
from torch import Tensor, nn

from _report import Run, write_report
from reglet import VISRegLoss
from reglet.backbones import ConvNet, projector
from reglet.data import Digits, canvas_digits
from reglet.probes import knn_probe, linear_probe

Score = dict[str, float]


@dataclass(frozen=True)
class Config:
    epochs: int = 50
    batch: int = 64
    lr: float = 3e-3
    weight_decay: float = 0.05
    lam: float = 0.6
    slices: int = 256
    dim: int = 32  # what the loss sees; the encoder gives 128 features
    seed: int = 0
    most: int | None = None  # digits to use of either part, all by default


class View(NamedTuple):
    """What was drawn for each image of a batch."""

    place: Float[Tensor, "n 2 3"]  # rotation by up to 20 degrees, zoom, stretch, shift
    colour: Float[Tensor, "n 3 3"]  # each channel a mixture of the old ones: hue goes, bright stays bright
    light: Float[Tensor, "n 3 2"]  # contrast and brightness
    noise: Float[Tensor, "n 3 h w"]


def draw_view(n: int, size: int, generator: torch.Generator) -> View:
    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(n, *shape, generator=generator)

    angle, zoom, stretch = uniform(-0.35, 0.35), uniform(-0.22, 0.22).exp(), uniform(-0.2, 0.2).exp()
    cos, sin = zoom * angle.cos(), zoom * angle.sin()
    shift = uniform(-0.2, 0.2, 2)
    place = torch.stack([cos * stretch, -sin, shift[:, 0], sin, cos / stretch, shift[:, 1]], 1).view(n, 2, 3)
    share = -uniform(0, 1, 3, 3).clamp_min(1e-3).log()
    light = torch.stack([uniform(-0.4, 0.4, 1).exp().expand(n, 3), uniform(-0.4, 0.4, 3)], 2)
    noise = 0.1 * torch.randn(n, 3, size, size, generator=generator)
    return View(place, share / share.sum(2, keepdim=True), light, noise)


def apply_view(x: Float[Tensor, "n 3 h w"], view: View) -> Float[Tensor, "n 3 h w"]:
    grid = F.affine_grid(view.place, list(x.shape), align_corners=False)
    x = F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    x = torch.einsum("nij,njhw->nihw", view.colour, x)
    contrast, brightness = view.light[:, :, :, None, None].unbind(2)
    return contrast * x + brightness + view.noise


def encoder() -> ConvNet:
    net = ConvNet(widths=(32, 64, 128), depth=2, stride=2)
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in torch's stubs


def to_float(data: Digits) -> Float[Tensor, "n 3 32 32"]:
    return (data.images.float() - 127.5) / 64


def pretrain(net: ConvNet, x: Float[Tensor, "n 3 h w"], config: Config) -> Iterator[dict[str, float]]:
    """Train in place; one row of numbers a step."""
    if config.batch > len(x):
        raise SystemExit(f"a batch of {config.batch} is more than the {len(x)} training images")
    generator = torch.Generator().manual_seed(config.seed)
    head = projector(net.dim, widths=(512, 512, config.dim))
    loss = VISRegLoss(lam=config.lam, slices=config.slices, seed=config.seed, check_finite=True)
    parameters = [*net.parameters(), *head.parameters()]
    decay, plain = ([p for p in parameters if (p.ndim > 1) == matrix] for matrix in (True, False))
    groups = [{"params": decay, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=config.lr)
    steps = config.epochs * (len(x) // config.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warm_up_and_cosine(step, steps))
    step, started = 0, time.perf_counter()
    for epoch in range(config.epochs):
        order = torch.randperm(len(x), generator=generator)
        for index in order[: len(x) // config.batch * config.batch].split(config.batch):
            views = [apply_view(x[index], draw_view(len(index), x.shape[-1], generator)) for _ in range(2)]
            both = torch.cat(views).contiguous(memory_format=torch.channels_last)
            terms = loss.terms(*head(net(both)).chunk(2))
            total = torch.stack(list(terms.values())).sum()
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            step += 1
            row = {"step": step, "epoch": epoch, "lr": float(schedule.get_last_lr()[0]), "loss": total.item()}
            schedule.step()
            rate = 2 * step * config.batch / (time.perf_counter() - started)
            yield row | {name: term.item() for name, term in terms.items()} | {"images/s": rate}


def warm_up_and_cosine(step: int, steps: int) -> float:
    warm = max(1, steps // 10)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


@torch.no_grad()
def features(net: nn.Module, x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n d"]:
    training = net.training
    net.eval()
    out = torch.cat([net(part) for part in x.split(256)])
    net.train(training)
    return out


def probe(encode: Callable[[Tensor], Tensor], train: Digits, test: Digits) -> Score:
    z, z_test = encode(to_float(train)), encode(to_float(test))
    linear = linear_probe(z, train.labels, z_test, test.labels)
    return {"linear": linear.accuracy, "knn": knn_probe(z, train.labels, z_test, test.labels)}


def save_encoder(net: ConvNet, path: Path, x: Float[Tensor, "n 3 h w"]) -> None:
    """Weights on disk, whole or not at all, and read back into a fresh network before they count as saved."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(save({name: t.contiguous() for name, t in net.state_dict().items()}))
        file.flush()
        os.fsync(file.fileno())
    fresh = encoder()
    fresh.load_state_dict(load_file(partial))
    if not torch.equal(features(fresh, x), features(net, x)):
        raise RuntimeError(f"{partial}, read back, gives other features than the network in memory")
    partial.replace(path)


def train_with_a_bar(net: ConvNet, x: Tensor, config: Config, out: Path, console: Console) -> list[dict[str, float]]:
    bar = Progress(
        TextColumn("{task.fields[epoch]}"),
        BarColumn(8),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}"),
        console=console,
    )
    rows = []
    with (out / "metrics.jsonl").open("w") as log, bar:
        task = bar.add_task("", total=config.epochs * (len(x) // config.batch), epoch=f"1/{config.epochs}", said="")
        for row in pretrain(net, x, config):
            rows.append(row)
            log.write(json.dumps(row) + "\n")
            log.flush()
            terms = " ".join(f"{k} {row[k]:.3f}" for k in ("invariance", "shape", "scale", "center"))
            epoch = f"{row['epoch'] + 1}/{config.epochs}"
            bar.update(task, advance=1, epoch=epoch, said=f"left, {row['images/s']:.0f} images/s\n{terms}")
    return rows


def sample(x: Float[Tensor, "n 3 h w"], config: Config, count: int = 16) -> list[Tensor]:
    """Two views of the first images, for a person to look at."""
    generator = torch.Generator().manual_seed(config.seed)
    return [apply_view(x[:count], draw_view(len(x[:count]), x.shape[-1], generator)) for _ in range(2)]


def main(out: Path, config: Config) -> None:
    started = time.perf_counter()
    console = Console()
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(config.seed)
    train, test = (Digits(*(t[: config.most] for t in canvas_digits(part))) for part in ("train", "test"))
    net = encoder()
    scores = {
        "raw pixels": probe(lambda x: x.flatten(1), train, test),
        "random encoder": probe(lambda x: features(net, x), train, test),
    }
    x, x_test = to_float(train), to_float(test)
    rows = train_with_a_bar(net, x, config, out, console)
    scores["VISReg"] = probe(lambda x: features(net, x), train, test)
    save_encoder(net, out / "encoder.safetensors", x_test)
    with (out / "metrics.jsonl").open("a") as log:
        log.writelines(json.dumps({"features": name, **score}) + "\n" for name, score in scores.items())
    seconds = time.perf_counter() - started
    found = features(net, x), features(net, x_test)
    write_report(out / "report.html", Run(asdict(config), scores, rows, train, test, sample(x, config), found, seconds))
    table = Table("features", "linear probe", "20-NN", title=f"test accuracy, {len(test.labels)} digits")
    for name, score in scores.items():
        table.add_row(name, f"{score['linear']:.1%}", f"{score['knn']:.1%}")
    console.print(table)
    console.print(f"{seconds:.0f} s in all. Open {(out / 'report.html').resolve().as_uri()}", soft_wrap=True)


def parse() -> tuple[Path, Config]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for encoder, metrics and report")
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--quick", action="store_true", help="a few steps on a few digits, to see that it runs")
    given = parser.parse_args()
    if given.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {given.epochs}")
    config = Config(epochs=given.epochs, seed=given.seed)
    return given.out, replace(config, epochs=1, batch=32, most=128) if given.quick else config


if __name__ == "__main__":
    main(*parse())
