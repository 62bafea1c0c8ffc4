"""The loop.  `fit` trains a method on images; a run that is killed and resumed ends in the same bits as one that was not.

Everything random is a function of (seed, step): the order of the data, the views, dropout.  So the state of a run is
its step number and its tensors, and nothing else.
"""

from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reglet.data.images import Images
from reglet.engine.feed import Feed, Policy
from reglet.engine.folder import CHECKPOINT, METRICS, prepare
from reglet.engine.gradient_cache import require_splittable
from reglet.engine.interrupt import Interrupt
from reglet.engine.journal import Journal
from reglet.engine.launch import first_then_all, launch, on_any_rank
from reglet.engine.online_knn import OnlineKNN
from reglet.engine.order import Order
from reglet.engine.progress import Progress
from reglet.engine.schedule import learning_rate
from reglet.engine.settings import Settings
from reglet.engine.state import State
from reglet.method import Method

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
    """Train `method` on views of `images`.  `about`: what config.json shall say besides the settings."""
    s, out = settings, Path(settings.out)
    if s.micro_batch:
        require_splittable(method)
    order = Order(n=len(images), batch=s.batch, seed=s.seed)
    steps = s.epochs * order.per_epoch
    fabric = launch(s)
    config = {**(about or describe(method, images)), **asdict(s), "fingerprint": images.fingerprint}
    first_then_all(fabric, lambda: prepare(out, config, resume=s.resume))
    state = State(fabric, method, s)
    if s.resume and (out / CHECKPOINT).exists():
        state.load(out / CHECKPOINT)

    first, rank, world = fabric.is_global_zero, fabric.global_rank, fabric.world_size
    layout = {"channels_last": s.channels_last}
    feed = Feed(images, policy, order, device=fabric.device, rank=rank, world=world, last=steps, **layout)
    progress = Progress(
        start=state.done, steps=steps, per_epoch=order.per_epoch, batch=s.batch, shown=shown and first
    )
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
            journal.step(state.done, terms, lr=lr)
            if knn and s.knn_every and (state.done % (s.knn_every * order.per_epoch) == 0 or state.done == steps):
                journal.log(state.done, {"knn": knn.score(state.encode, state.encoder, device=fabric.device)})
            if state.done % s.save_every == 0 or state.done == steps or stop:
                state.save(out / CHECKPOINT, config)
    return Result(out, state.encoder, state.done, state.done == steps, journal.last)


def describe(method: Method, images: Images) -> Json:
    """What config.json says of a run whose parts were made in Python."""
    count = sum(p.numel() for p in method.parameters())
    return {"command": "fit", "method": type(method).__name__, "parameters": count, "data": images.name}
