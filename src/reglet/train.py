"""The loop: `fit` trains a method on a feed.  A killed and resumed run ends in the same bits as one that was not.

Everything random is a function of (seed, step): the order of the data, the views, dropout.  So the state of a run is
only its step number and its tensors.
"""

from collections.abc import Sequence
from contextlib import closing, nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from reglet import backbones, progress
from reglet.backbones.lora import add_lora, merge_lora
from reglet.data.unreadable import FILE as UNREADABLE
from reglet.dist import on_any_rank, rank
from reglet.engine import checkpoint
from reglet.engine.arithmetic import arithmetic
from reglet.engine.best import BEST, LABEL_FREE, Best
from reglet.engine.budget import settle
from reglet.engine.build import Parts, build_parts
from reglet.engine.config import Config, from_flat
from reglet.engine.feed import Feed, Place
from reglet.engine.gradient import require_splittable
from reglet.engine.interrupt import Interrupt
from reglet.engine.journal import Journal
from reglet.engine.launch import first_then_all, launch, together
from reglet.engine.metrics import read_metrics, read_scores
from reglet.engine.monitor import AtEnd, Classifier, LabelFree, Monitor, OnlineKNN, accuracy
from reglet.engine.optim import learning_rate
from reglet.engine.plan import plan
from reglet.engine.progress import Progress
from reglet.engine.rounds import Rounds
from reglet.engine.run_folder import CHECKPOINT, METRICS, prepare, read_run, require_free
from reglet.engine.settings import Settings
from reglet.engine.state import State
from reglet.export import CARD, ExportError, export, linear, load_weights, of_checkpoint
from reglet.method import Method, innermost
from reglet.probes.layer_decay import block_names
from reglet.seeded import seeded

Json = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """encoder: the method to encode with; the moving average if there is one.

    finished: False if a signal, `stopped_by`, stopped the run before its last step.  A run that `patience=` stopped is
        finished.
    scores: the last value of each score.

    >>> from tempfile import TemporaryDirectory
    >>> words = {"command": "pretrain", "data": "digits", "model": "convnet", "batch": 16, "steps": 2}
    >>> with TemporaryDirectory() as place:
    ...     result = run(from_flat({**words, "out": f"{place}/a"}), shown=False)
    >>> result.steps, result.finished, sorted(result.scores)
    (2, True, ['knn', 'rank'])
    """

    out: Path
    encoder: Method
    steps: int
    finished: bool
    metrics: dict[str, float]
    scores: dict[str, float]
    stopped_by: int | None = None


def fit(
    method: Method,
    feed: Feed,
    settings: Settings,
    *,
    watch: Sequence[Monitor] = (),
    about: Json | None = None,
    fabric: Fabric | None = None,
    shown: bool = True,
) -> Result:
    """Train `method` on the batches of `feed`.

    watch: what is scored during training and at its end.  about: the content of config.json, if not the settings alone.
    fabric: given if processes were launched before; otherwise they are launched here.

    >>> from tempfile import TemporaryDirectory
    >>> from reglet.backbones import resnet8
    >>> from reglet.engine.feed import TensorFeed
    >>> from reglet.engine.order import Shuffled
    >>> from reglet.method import Batch
    >>> from reglet.methods import Supervised
    >>> x, y, order = torch.randn(32, 3, 8, 8), torch.arange(32) % 2, Shuffled(n=32, batch=8, seed=0)
    >>> feed = TensorFeed(lambda i, _: Batch([x[i]], labels=y[i]), order, name="noise", fingerprint="0")
    >>> with TemporaryDirectory() as place:
    ...     settings = Settings(out=f"{place}/a", steps=4, batch=8, accelerator="cpu")
    ...     fit(Supervised(resnet8(), classes=2), feed, settings, shown=False).steps
    4
    """
    s, out = settings, Path(settings.out)
    if s.micro_batch:
        require_splittable(method)
    fabric = fabric or launch(s)
    order = feed.order
    steps = s.steps or s.epochs * order.per_epoch
    first, world = fabric.is_global_zero, fabric.world_size
    if order.batch % (world * s.accumulate):
        raise ValueError(f"batch {order.batch} is not a multiple of {world} processes x {s.accumulate} parts")
    config = {**(about or {**describe(method, feed), **asdict(s)}), "fingerprint": feed.fingerprint}
    first_then_all(fabric, lambda: prepare(out, config, resume=s.resume, per_epoch=order.per_epoch))
    state = State(fabric, method, s)
    if s.resume and (out / CHECKPOINT).exists():
        state.load(out / CHECKPOINT)

    feed.open(Place(fabric.device, fabric.global_rank, world, s.channels_last, s.read_ahead), steps=steps)
    if (unreadable := getattr(getattr(feed, "images", None), "unreadable", None)) is not None:
        unreadable.write_to(out / UNREADABLE)
    best, remembered = Best(s.keep_best, s.patience), state.noted.pop("best", None)
    if remembered is not None:
        best.restore(remembered)
    rounds, known = None, state.noted.pop("doctor", None)
    if s.doctor != "off":
        rounds = Rounds(method, s.doctor, log_every=s.log_every, known=known)
    seen = Progress(start=state.done, steps=steps, per_epoch=order.per_epoch, batch=order.batch, shown=shown and first)
    with together(fabric):
        journal = Journal(
            out / METRICS, seen, every=s.log_every, loggers=s.loggers, config=config, writes=first, noted=state.noted
        )
    scores, stop = read_scores(out / METRICS) if state.done else {}, best.exhausted
    with closing(feed), closing(journal), Interrupt() as interrupt, seeded(s.seed, fabric.device), arithmetic(s):
        while state.done < steps and not stop:
            lr = learning_rate(s.schedule, state.done, steps=steps, warmup=round(s.warmup * steps), peak=s.lr)
            with together(fabric):
                batch = feed(state.done)
            state.backward(batch, lr=lr, steps=steps)
            stops = bool(interrupt) or (rounds is not None and rounds.stop)
            error, stop = on_any_rank(bool(state.error), stops)
            done = state.done + 1
            scoring = [each for each in watch if each.due(done, steps=steps, per_epoch=order.per_epoch)]
            saves = done % s.save_every == 0 or done == steps or stop
            # Reading waits for the accelerator.  Ranks must read at the same steps, because they stop together.
            asks = error or stop or saves or bool(scoring) or journal.due(done) or fabric.device.type == "cpu"
            read = state.read() if asks or seen.wants_line(done) else None
            broken = state.done if error else read.broken if read is not None and asks else None
            if broken is not None:
                raise state.failure(out, config, feed, step=broken)
            state.step(steps)
            # Only the first rank writes, and a score may fail on one rank alone.
            fresh: dict[str, float] = {}
            with together(fabric) if scoring or journal.due(done) else nullcontext():
                for each in scoring:
                    fresh |= (found := each.score(state))
                    journal.log(state.done, found)
                scores |= fresh
                journal.step(state.done, read, lr=lr)
                if rounds is not None and (news := rounds.news(state.done)):
                    journal.log(state.done, news)
            if s.keep_best in fresh:
                if best.see(fabric.broadcast(fresh[s.keep_best]), state.done):
                    state.save_weights(out / BEST, config)
                stop, saves = stop or best.exhausted, saves or best.exhausted
            if saves:
                minds = {} if rounds is None else {"doctor": rounds.doctor.state()}
                minds |= {"best": best.state()} if s.keep_best else {}
                state.save(out / CHECKPOINT, config, {**journal.noted, **minds})
    if rounds is not None:
        rounds.close()
    if s.keep_best and best.value is None:
        raise ValueError(f"keep_best={s.keep_best}: there was no score of that name")
    finished = state.done == steps or best.exhausted
    return Result(out, state.encoder, state.done, finished, journal.last, scores, interrupt.received)


def describe(method: Method, feed: Feed) -> Json:
    """The content of config.json for a run whose parts were made in Python.

    >>> from reglet.backbones import resnet8
    >>> from reglet.engine.feed import TensorFeed
    >>> from reglet.engine.order import Shuffled
    >>> from reglet.methods import Supervised
    >>> feed = TensorFeed(lambda index, random: None, Shuffled(n=6, batch=2, seed=0), name="numbers", fingerprint="0")
    >>> describe(Supervised(resnet8(), classes=3), feed)["parameters"]
    77587
    """
    count = sum(p.numel() for p in method.parameters())
    return {"command": "fit", "method": type(method).__name__, "parameters": count, "data": feed.name}


def run(config: Config, *, shown: bool = True) -> Result:
    """A run by names, as the command line starts it.  A finished run exports its encoder.

    Processes are launched first.  Each then opens the data once, and no process opens them only to wait.

    >>> from tempfile import TemporaryDirectory
    >>> words = {"command": "pretrain", "data": "digits", "model": "convnet", "batch": 16, "steps": 2, "knn_every": 0}
    >>> with TemporaryDirectory() as place:
    ...     run(from_flat({**words, "out": f"{place}/a"}), shown=False).finished
    True
    """
    with progress.shown(shown):
        asked, fabric = config, launch(config)
        if not config.resume:
            config.require_start()
            first_then_all(fabric, lambda: require_free(Path(asked.out)))
        with progress.work("opening the data"), together(fabric):
            parts = build_parts(config, multiple=fabric.world_size * config.accumulate)
        if shown or not (config.batch and config.epochs):
            config, budget = settle(asked, parts, fabric)
            parts = replace(parts, batch=config.batch)
            progress.line(plan(parts, config, asked, budget, fabric.device))
        if config.command == "adapt":
            if config.require == "better" and (parts.test is None or parts.test.labels is None):
                raise ValueError("require=better needs test images with labels, and the data have none")
            first_then_all(fabric, lambda: export_start(parts, config))
        about, watch = {**config.flat(), "resolved": parts.resolved()}, _watch(parts, config)
        result = fit(parts.method, parts.feed, config, watch=watch, about=about, fabric=fabric, shown=shown)
        if result.finished and rank() == 0:
            with progress.work("exporting the encoder"):
                export_run(result.out)
                if config.keep_best:
                    export_run(result.out, to=result.out / "best", which="best")
        return result


def _watch(parts: Parts, config: Config) -> list[Monitor]:
    """A kNN during training if there are labels, and the accuracy of a classifier at the end."""
    held = parts.test if parts.test is not None and parts.test.labels is not None else None
    found: list[Monitor] = []
    several = parts.images.labels is not None and len(parts.images.labels.unique()) > 1
    every = config.best_every if config.keep_best == "knn" else config.knn_every
    if every and several and held is not None:
        found.append(OnlineKNN(parts.images, parts.preprocess, test=held, every=every))
    elif config.keep_best == "knn":
        raise ValueError(f"keep_best=knn needs labels and test images; take {', '.join(LABEL_FREE)}")
    if config.keep_best in LABEL_FREE:
        seen = parts.images if parts.test is None else parts.test
        judge = LabelFree(config.keep_best, seen, parts.preprocess, policy=parts.policy, every=config.best_every)
        found.append(judge)
    if isinstance(innermost(parts.method), Classifier) and held is not None:
        found.append(AtEnd(lambda model: {"accuracy": accuracy(model, held, parts.preprocess)}))
    return found


START = "start"  # the folder of the first encoder, inside the folder of a run of `reglet adapt`


def export_start(parts: Parts, config: Config) -> None:
    """Exports the encoder that `reglet adapt` starts from, for the comparison at its end.

    >>> from tempfile import TemporaryDirectory
    >>> from reglet.export import load_encoder
    >>> with TemporaryDirectory() as place:
    ...     config = from_flat({"command": "pretrain", "data": "digits", "batch": 16, "out": place})
    ...     export_start(build_parts(config), config)
    ...     load_encoder(Path(place, START))[0].dim
    128
    """
    folder = Path(config.out) / START
    if (folder / CARD).exists():
        return
    backbone = deepcopy(innermost(parts.method).get_submodule("backbone"))
    if config.lora:
        merge_lora(backbone)  # the updates are still zero
    card = {"model": config.of("model"), "metrics": {}, "method": {"start": config.init_from or "pretrained"}}
    export(backbone, folder, name=config.model, size=parts.size, in_channels=parts.in_channels, card=card)


def export_run(out: Path, *, to: Path | None = None, which: str = "last") -> Json:
    """Exports the encoder of a run's checkpoint, with its card, to `to` or to the run's own directory.

    which: "last", or "best" if `keep_best=` kept one.

    >>> from tempfile import TemporaryDirectory
    >>> words = {"command": "pretrain", "data": "digits", "model": "convnet", "batch": 16, "steps": 2, "knn_every": 0}
    >>> with TemporaryDirectory() as place:
    ...     done = run(from_flat({**words, "out": f"{place}/a"}), shown=False)
    ...     card = export_run(done.out, to=Path(place, "encoder"))
    ...     sorted(path.name for path in Path(place, "encoder").iterdir())
    ['card.json', 'encoder.safetensors']
    """
    config, stored = read_run(out)
    about = stored["resolved"]
    size, in_channels = about["size"], about["in_channels"]
    if which not in ("last", "best"):
        raise ValueError(f"which is last or best, got {which!r}")
    file = out / (CHECKPOINT if which == "last" else BEST)
    if which == "best" and not file.exists():
        raise ExportError(f"{out} has no {BEST}: keep_best= keeps one while a run trains")
    backbone = trained_backbone(config, file, size=size, in_channels=in_channels)
    step = checkpoint.read_about(file)["step"]
    rows = [row for row in read_metrics(out / METRICS) if row["step"] <= step] if (out / METRICS).exists() else []
    last = {key: value for row in rows for key, value in row.items() if key not in ("time", "images_per_second")}
    card = {
        "model": config.of("model"),
        "method": {"command": config.command, "method": config.method, "loss": config.loss} | config.options,
        "metrics": last,
        "data": {**about["data"], "fingerprint": stored["fingerprint"], "licence": config.data_licence},
    }
    head = linear(of_checkpoint(checkpoint.read(file)[0], "head")) if config.command == "train" else None
    classes = about["data"]["classes"] or ()
    shape = {"size": size, "in_channels": in_channels}
    return export(backbone, to or out, name=config.model, **shape, card=card, head=head, classes=classes)


def trained_backbone(config: Config, file: Path, *, size: int, in_channels: int) -> nn.Module:
    """The plain network with the weights of a checkpoint.  Low-rank updates are merged into it.

    >>> from tempfile import TemporaryDirectory
    >>> words = {"command": "pretrain", "data": "digits", "model": "convnet", "batch": 16, "steps": 2, "knn_every": 0}
    >>> with TemporaryDirectory() as place:
    ...     config = from_flat({**words, "out": f"{place}/a"})
    ...     done = run(config, shown=False)
    ...     trained_backbone(config, done.out / CHECKPOINT, size=32, in_channels=3).dim
    128
    """
    options = {key: value for key, value in config.of("model").items() if key != "pretrained"}
    backbone = backbones.build(config.model, size=size, in_channels=in_channels, **options)
    if config.lora:
        inside = block_names(backbone)[-config.last_blocks :] if config.last_blocks else None
        add_lora(backbone, config.lora, inside=inside)
    load_weights(backbone, file)
    if config.lora:
        merge_lora(backbone)
    return backbone


@dataclass(frozen=True)
class Replay:
    """A repeated step: its terms, and what was wrong with them.

    >>> Replay(terms={"shape": 0.1}, says="norm of the gradient = nan").says
    'norm of the gradient = nan'
    """

    terms: dict[str, float]
    says: str


def replay(path: str | Path, *, method: Method | None = None, feed: Feed | None = None) -> Replay:
    """Reproduce the step of a replay bundle, in one process.  A run made in Python needs its method and feed again.

    >>> from tempfile import TemporaryDirectory
    >>> from reglet.engine.guard import NonFiniteError
    >>> words = {"command": "pretrain", "data": "digits", "model": "convnet", "batch": 16, "steps": 9, "knn_every": 0}
    >>> with TemporaryDirectory() as place:
    ...     try:
    ...         result = run(from_flat({**words, "warmup": 0.0, "lr": 1e38, "out": f"{place}/a"}), shown=False)
    ...     except NonFiniteError as error:
    ...         seen = replay(error.bundle)
    >>> "non-finite" in seen.says
    True
    """
    tensors, about = checkpoint.read(Path(path))
    named = about["config"]["command"] != "fit"
    kept = {f.name for f in fields(Config if named else Settings)}
    values = {k: v for k, v in about["config"].items() if k in kept or "." in k}
    values |= {"devices": 1, "nodes": 1, "strategy": "ddp", "resume": False, "init_from": ""}
    if named:
        values |= {"pretrained": False}
        values.pop("model.pretrained", None)
    settings: Settings = from_flat(values) if named else Settings(**values)
    if method is None or feed is None:
        if not isinstance(settings, Config):
            raise ValueError("this run was made in Python: replay needs its method= and feed=")
        parts = build_parts(settings)
        method, feed = method or parts.method, feed or parts.feed
    state = State(launch(settings), method, settings)
    checkpoint.load_module(method, checkpoint.part(tensors, "method."))
    state.done = int(about["step"])
    if not torch.equal(feed.order.indices(state.done), tensors["index"]):
        raise ValueError(f"the data are not those of the run: {feed.name} gives other samples at step {state.done}")
    feed.open(Place(state.device, channels_last=settings.channels_last), steps=0)
    with closing(feed), arithmetic(settings):
        return Replay(*state.again(feed(state.done)))
