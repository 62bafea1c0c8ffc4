"""Leave one domain out, by names: every domain in turn is held out, over seeds and learning rates, and one of
DomainBed's three rules chooses what is reported.

What was trained is kept in `out`, run by run, so that the same command goes on after an interruption.
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from reglet import backbones
from reglet.backbones.protocol import dim_of
from reglet.data import Images
from reglet.engine.domain_arms import AT_BLOCKS, NAMES, Size, make_loss, mixing
from reglet.engine.folder import write_json
from reglet.engine.settings import option
from reglet.export import preprocessing
from reglet.methods.domains import Batches, Choice, leave_one_domain_out, leave_out, oracle, training_domain
from reglet.methods.domains.annealed import Annealed

Json = dict[str, Any]
REPORT = "domains.json"
RULES = ("training_domain", "leave_one_domain_out", "oracle")


@dataclass(frozen=True, kw_only=True)
class DomainsConfig:
    data: str = option("digits", "digits, a folder domain/class/, or a .npz with labels and domain")
    model: str = option("convnet", "the network (see reglet list models)")
    loss: str = option("erm", ", ".join(NAMES))
    blocks: str = option("", "blocks for manifold and mixstyle, with commas between them, such as stages.0,stages.1")
    selection: str = option("training_domain", "which learning rate and checkpoint to report: " + ", ".join(RULES))
    lr: str = option("1e-3", "learning rate, or several with commas between them for the rule to choose from")
    seeds: int = option(3, "seeds 0, 1, ...: weights, batches and the 80/20 splits")
    steps: int = option(300, "optimizer steps of Adam")
    per_domain: int = option(32, "images of each training domain in a batch")
    checkpoints: int = option(3, "times that a run is scored, at equal distances")
    size: int = option(0, "side in pixels; 0: that of the images, at most 224")
    out: str = option("runs/domains", f"directory of the runs and {REPORT}")

    def __post_init__(self) -> None:
        for key, value, known in (("loss", self.loss, NAMES), ("selection", self.selection, RULES)):
            if value not in known:
                raise ValueError(f"{key} is one of {', '.join(known)}; got {value!r}")
        for key in ("seeds", "steps", "per_domain", "checkpoints"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, got {getattr(self, key)}")
        if self.checkpoints > self.steps:
            raise ValueError(f"{self.steps} steps have no {self.checkpoints} checkpoints")
        if (self.loss in AT_BLOCKS) != bool(self.blocks):
            raise ValueError(f"blocks= says where {' and '.join(AT_BLOCKS)} mix, and belongs to them alone")
        if not all(0 < rate < math.inf for rate in self.rates):
            raise ValueError(f"learning rates are positive, got lr={self.lr}")

    @property
    def rates(self) -> list[float]:
        try:
            return [float(word) for word in self.lr.split(",")]
        except ValueError:
            raise ValueError(f"lr is a number, or several with commas between them; got {self.lr!r}") from None


class Curve(NamedTuple):
    """Accuracies at each checkpoint."""

    validation: list[list[float]]  # of each training domain
    test: list[float]
    oracle: list[float]


def check(images: Images, *, selection: str) -> list[str]:
    """Notes on classes that some domains lack; an error where leaving a domain out makes no sense."""
    if images.labels is None or images.domain is None or not images.domains or not images.classes:
        lack = "labels" if images.labels is None else "domains"
        raise ValueError(
            f"{images.name} has no {lack}: it needs a folder domain/class/, or a .npz with `labels` and `domain`"
        )
    least = 3 if selection == "leave_one_domain_out" else 2
    count = torch.zeros(len(images.domains), len(images.classes), dtype=torch.int64)
    count.index_put_((images.domain, images.labels), torch.ones_like(images.labels), accumulate=True)
    present = [name for name, row in zip(images.domains, count, strict=True) if row.any()]
    if len(present) < least:
        raise ValueError(
            f"selection={selection} needs at least {least} domains; {images.name} has {', '.join(present)}"
        )
    for c, name in enumerate(images.classes):
        where = [d for d, n in zip(images.domains, count[:, c].tolist(), strict=True) if n]
        if len(where) == 1:
            raise ValueError(
                f"class {name!r} has images in domain {where[0]!r} alone: "
                "with that domain left out there is nothing to learn it from"
            )
    return [
        f"domain {d!r} has no images of class {c!r}, which is not trained or tested there"
        for d, row in zip(images.domains, count.tolist(), strict=True)
        for c, n in zip(images.classes, row, strict=True)
        if not n and any(row)
    ]


def learn(config: DomainsConfig, images: Images, left_out: Sequence[int], *, lr: float, seed: int) -> Curve:
    """One network, trained without the domains `left_out` and tested on the first of them."""
    labels, domain = images.labels, images.domain
    assert labels is not None and domain is not None  # noqa: PT018  # `check` has seen to it
    split = leave_out(domain, *left_out, seed=seed)
    _, channels, height, width = images.batch(split.test[:1]).shape
    size = config.size or min(height, width, 224)
    torch.manual_seed(seed)
    net = backbones.build(config.model, size=size, in_channels=channels)
    head, classes = nn.Linear(dim_of(net), len(images.classes or ())), len(images.classes or ())
    batches = Batches(domain[split.train], per_domain=config.per_domain, seed=seed)
    domains = len(batches.members)
    loss = make_loss(config.loss, Size(dim_of(net), domains, config.steps))
    blocks = config.blocks.split(",") if config.blocks else []
    forward = mixing(config.loss, net, blocks, classes=classes, generator=torch.Generator().manual_seed(seed))
    prepare = preprocessing(size)
    trained = [*net.parameters(), *head.parameters(), *loss.parameters()]
    optimizer = torch.optim.Adam(trained, lr=lr)
    scored = {round((i + 1) * config.steps / config.checkpoints) for i in range(config.checkpoints)}
    curve = Curve([], [], [])
    for step in range(config.steps):
        net.train()
        some = split.train[batches.indices(step)]
        z, y = forward(prepare(images.batch(some)), labels[some])
        value = loss([z[e::domains] for e in range(domains)], [y[e::domains] for e in range(domains)], head)
        if not math.isfinite(float(value.detach())):
            raise ValueError(f"the loss is {float(value.detach())} in step {step} at lr={lr:g}: try a smaller one")
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        loss.after_step(step + 1)
        if isinstance(loss, Annealed) and step + 1 == loss.anneal:
            optimizer = torch.optim.Adam(trained, lr=lr)  # as DomainBed: its moments were those of another loss
        if step + 1 in scored:
            right = _right(net, head, images, prepare, [*split.validation.values(), split.test, split.oracle])
            curve.validation.append(right[:-2])
            curve.test.append(right[-2])
            curve.oracle.append(right[-1])
    return curve


@torch.no_grad()
def _right(
    net: nn.Module, head: nn.Linear, images: Images, prepare: Callable[[Tensor], Tensor], parts: list[Tensor]
) -> list[float]:
    """Accuracy on each part."""
    net.eval()
    found = []
    for index in parts:
        guesses = torch.cat([head(net(prepare(images.batch(some)))).argmax(1) for some in index.split(256)])
        found.append((guesses == images.labels[index]).double().mean().item())  # type: ignore[index]
    return found


class Job(NamedTuple):
    left_out: tuple[int, ...]
    lr: float
    seed: int


def jobs(config: DomainsConfig, domains: Sequence[int]) -> list[Job]:
    """What has to be trained: for leave-one-domain-out validation also without every second domain."""
    without: list[tuple[int, ...]] = [(d,) for d in domains]
    if config.selection == "leave_one_domain_out":
        without += [(d, test) for test in domains for d in domains if d != test]
    return [Job(left, lr, seed) for seed in range(config.seeds) for left in without for lr in config.rates]


def kept(config: DomainsConfig, images: Images, job: Job) -> Path:
    """The file of a run.  Its name is a digest of all that the run depends on, and of nothing else."""
    about = {f.name: getattr(config, f.name) for f in fields(config)}
    for free in ("out", "selection", "seeds", "lr", "data"):
        del about[free]
    text = json.dumps([about, images.fingerprint, job], sort_keys=True)
    return Path(config.out) / "runs" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def choose(rule: str, curves: Sequence[Curve], held_out: Sequence[Sequence[Curve]]) -> Choice:
    """curves: a run per learning rate.  held_out: for each rate the runs that left out a second domain."""
    if rule == "oracle":
        return oracle(torch.tensor([c.oracle for c in curves], dtype=torch.float64))
    if rule == "training_domain":
        return training_domain(torch.tensor([c.validation for c in curves], dtype=torch.float64))
    scores = [[c.test for c in runs] for runs in held_out]
    return leave_one_domain_out(torch.tensor(scores, dtype=torch.float64).transpose(1, 2))


def leave_each_out(
    config: DomainsConfig, images: Images, *, done: Callable[[Job, Curve], None] = lambda job, curve: None
) -> Json:
    """The table: for every domain, tested and not trained on, the accuracy of what the rule chose, seed by seed."""
    notes = check(images, selection=config.selection)
    domains = [int(d) for d in images.domain.unique()]  # type: ignore[union-attr]
    curves: dict[Job, Curve] = {}
    for job in jobs(config, domains):
        path = kept(config, images, job)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, learn(config, images, job.left_out, lr=job.lr, seed=job.seed)._asdict())
        curves[job] = Curve(**json.loads(path.read_text()))
        done(job, curves[job])
    rows = [_row(config, images, test, domains, curves) for test in domains]
    average = [mean(row["accuracy"][seed] for row in rows) for seed in range(config.seeds)]
    report = {
        "config": asdict(config),
        "data": {"name": images.name, "fingerprint": images.fingerprint, "images": len(images)},
        "notes": notes,
        "held_out": rows,
        "average": {"accuracy": average, **_spread(average)},
    }
    write_json(Path(config.out) / REPORT, report)
    return report


def _row(config: DomainsConfig, images: Images, test: int, domains: list[int], curves: dict[Job, Curve]) -> Json:
    accuracy, chosen = [], []
    for seed in range(config.seeds):
        mine = [curves[Job((test,), lr, seed)] for lr in config.rates]
        held: list[list[Curve]] = []
        if config.selection == "leave_one_domain_out":
            held = [[curves[Job((d, test), lr, seed)] for d in domains if d != test] for lr in config.rates]
        choice = choose(config.selection, mine, held)
        accuracy.append(mine[choice.trial].test[choice.checkpoint])
        chosen.append({"lr": config.rates[choice.trial], "checkpoint": choice.checkpoint + 1, "by": choice.score})
    name = (images.domains or [])[test]
    return {"domain": name, "accuracy": accuracy, **_spread(accuracy), "chosen": chosen}


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"mean": mean(values), "standard_error": error}
