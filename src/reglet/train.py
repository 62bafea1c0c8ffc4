"""The loop.  `fit` trains a method on images; a run killed anywhere and resumed ends in the bits of one that was not.

Everything random is a function of (seed, step): the order of the data, the views, dropout.  So the state of a run is
its step number and its tensors, and nothing else.
"""

from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from reglet import backbones
from reglet.data.images import Images
from reglet.dist import rank
from reglet.engine import checkpoint
from reglet.engine.accuracy import accuracy
from reglet.engine.build import build_parts
from reglet.engine.config import Config, from_flat
from reglet.engine.feed import Feed, Policy
from reglet.engine.folder import CHECKPOINT, METRICS, prepare, read_run
from reglet.engine.gradient_cache import require_splittable
from reglet.engine.interrupt import Interrupt
from reglet.engine.journal import Journal
from reglet.engine.launch import first_then_all, launch, on_any_rank
from reglet.engine.metrics import read_metrics
from reglet.engine.online_knn import OnlineKNN
from reglet.engine.order import Order
from reglet.engine.progress import Progress
from reglet.engine.schedule import learning_rate
from reglet.engine.settings import Settings
from reglet.engine.state import State
from reglet.export import export, load_weights
from reglet.method import Method
from reglet.methods import Supervised
from reglet.methods.regularized import innermost

Json = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """encoder: the method whose `encode` is what was learned; the moving average's, where there is one.

    finished: False where a signal asked the run to stop before its last step.
    """

    out: Path
    encoder: Method
    steps: int
    finished: bool
    metrics: dict[str, float]


def fit(
    method: Method,
    images: Images,
    policy: Policy,
    settings: Settings,
    *,
    knn: OnlineKNN | None = None,
    about: Json | None = None,
    shown: bool = True,
) -> Result:
    """Train `method` on views of `images`.  `about`: what config.json says instead of the settings alone."""
    s, out = settings, Path(settings.out)
    if s.micro_batch:
        require_splittable(method)
    order = Order(n=len(images), batch=s.batch, seed=s.seed)
    steps = s.epochs * order.per_epoch
    fabric = launch(s)
    config = {**(about or {**describe(method, images), **asdict(s)}), "fingerprint": images.fingerprint}
    first_then_all(fabric, lambda: prepare(out, config, resume=s.resume))
    state = State(fabric, method, s)
    if s.resume and (out / CHECKPOINT).exists():
        state.load(out / CHECKPOINT)

    first, world = fabric.is_global_zero, fabric.world_size
    layout = {"channels_last": s.channels_last}
    feed = Feed(images, policy, order, device=fabric.device, rank=fabric.global_rank, world=world, last=steps, **layout)
    progress = Progress(start=state.done, steps=steps, per_epoch=order.per_epoch, batch=s.batch, shown=shown and first)
    journal = Journal(out / METRICS, progress, every=s.log_every, loggers=s.loggers, config=config, writes=first)
    stop = False
    with closing(feed), closing(journal), Interrupt() as interrupt:
        while state.done < steps and not stop:
            lr = learning_rate(state.done, steps=steps, warmup=round(s.warmup * steps), peak=s.lr)
            terms, wrong = state.backward(feed(state.done), lr=lr)
            broken, stop = on_any_rank(fabric, bool(wrong), bool(interrupt))
            if broken:
                raise state.failure(out, config, index=order.indices(state.done), terms=terms, says=wrong)
            state.step(steps)
            if knn and s.knn_every and (state.done % (s.knn_every * order.per_epoch) == 0 or state.done == steps):
                journal.log(state.done, knn.score(state.encode, state.encoder, device=fabric.device))
            journal.step(state.done, terms, lr=lr, norm=state.norm)
            if state.done % s.save_every == 0 or state.done == steps or stop:
                state.save(out / CHECKPOINT, config)
    return Result(out, state.encoder, state.done, state.done == steps, journal.last)


def describe(method: Method, images: Images) -> Json:
    """What config.json says of a run whose parts were made in Python."""
    count = sum(p.numel() for p in method.parameters())
    return {"command": "fit", "method": type(method).__name__, "parameters": count, "data": images.name}


def run(config: Config, *, shown: bool = True) -> Result:
    """A run by names, as the command line starts it; a finished one leaves its encoder."""
    parts = build_parts(config)
    about = {**config.flat(), "resolved": parts.resolved()}
    labelled = config.knn_every and parts.images.labels is not None
    held = parts.test if parts.test is not None and parts.test.labels is not None else None
    knn = OnlineKNN(parts.images, parts.preprocess, test=held) if labelled else None
    result = fit(parts.method, parts.images, parts.policy, config, knn=knn, about=about, shown=shown)
    scores: dict[str, float] = {}
    classifier = innermost(result.encoder)
    if isinstance(classifier, Supervised) and held is not None:
        scores["accuracy"] = accuracy(classifier, held, parts.preprocess)
    if result.finished and rank() == 0:
        export_run(result.out, metrics=scores)
    return replace(result, metrics=result.metrics | scores)


def export_run(out: Path, *, to: Path | None = None, metrics: dict[str, float] | None = None) -> Json:
    """The encoder of a run's checkpoint, with its card, in `to` or in the run's own directory."""
    config, stored = read_run(out)
    about = stored["resolved"]
    size, in_channels = about["size"], about["in_channels"]
    backbone = backbones.build(config.model, size=size, in_channels=in_channels, **config.of("model"))
    load_weights(backbone, out / CHECKPOINT)
    rows = read_metrics(out / METRICS) if (out / METRICS).exists() else []
    last = {key: value for row in rows for key, value in row.items() if key not in ("time", "images_per_second")}
    card = {
        "model": config.of("model"),
        "method": {"command": config.command, "method": config.method, "loss": config.loss} | config.options,
        "metrics": {**last, **(metrics or {})},
        "data": {**about["data"], "fingerprint": stored["fingerprint"], "licence": config.data_licence},
    }
    return export(backbone, to or out, name=config.model, size=size, in_channels=in_channels, card=card)


@dataclass(frozen=True)
class Replay:
    """The step once more: its terms, and what was wrong with them."""

    terms: dict[str, float]
    says: str


def replay(
    path: str | Path, *, method: Method | None = None, images: Images | None = None, policy: Policy | None = None
) -> Replay:
    """Reproduce the step of a replay bundle, in one process.  A run made in Python wants its parts again."""
    tensors, about = checkpoint.read(Path(path))
    named = about["config"]["command"] != "fit"
    kept = {f.name for f in fields(Config if named else Settings)}
    values = {k: v for k, v in about["config"].items() if k in kept or "." in k}
    values |= {"devices": 1, "nodes": 1, "strategy": "ddp", "resume": False, "init_from": ""}
    settings: Settings = from_flat(values) if named else Settings(**values)
    if method is None or images is None or policy is None:
        if not isinstance(settings, Config):
            raise ValueError("this run was made in Python: replay needs its method=, images= and policy=")
        parts = build_parts(settings)
        method, images, policy = method or parts.method, images or parts.images, policy or parts.policy
    state = State(launch(settings), method, settings)
    checkpoint.load_module(method, checkpoint.part(tensors, "method."))
    state.done = int(about["step"])
    order = Order(n=len(images), batch=settings.batch, seed=settings.seed)
    if not torch.equal(order.indices(state.done), tensors["index"]):
        raise ValueError(f"the data are not those of the run: {images.name} has {len(images)} images")
    device, layout = state.fabric.device, settings.channels_last
    with closing(Feed(images, policy, order, device=device, last=0, channels_last=layout)) as feed:
        terms, says = state.backward(feed(state.done), lr=0.0)
    return Replay({name: float(term) for name, term in terms.items()}, says)
