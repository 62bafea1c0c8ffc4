"""The loop under the laws: what it trains is the CPU's, it asks the device when it logs, and a step that is not finite
leaves nothing behind although nobody has asked yet."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from tests.device.fabric import fabric_on
from tests.device.pretend import Traffic, traffic
from tests.engine.toy import images
from tests.methods import nets
from torch import Tensor, nn

import reglet
from reglet import views
from reglet.data.memory import InMemory
from reglet.engine.checkpoint import read
from reglet.engine.feed import ImageFeed
from reglet.engine.guard import NonFiniteError
from reglet.engine.optim import OPTIMIZERS
from reglet.engine.settings import Settings
from reglet.method import Batch, Method
from reglet.methods import BYOL, JointEmbedding, Regularized, Supervised
from reglet.schedules import Scheduled
from reglet.train import fit, replay
from reglet.types import Terms

CPU = torch.device("cpu")


def normed(*widths: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(widths[0], widths[1]), nn.BatchNorm1d(widths[1]), nn.Linear(*widths[1:]))


def joint() -> Method:
    return JointEmbedding(nets.Net(), reglet.VISRegLoss(slices=16, shared_slices=True), projector=normed(6, 8, 5))


def byol() -> Method:
    return BYOL(nets.Net(), projector=normed(6, 8, 5), predictor=normed(5, 8, 5), momentum=0.9)


def sim() -> Method:
    return Regularized(joint(), "backbone.blocks.*", reglet.SIM(dim=3), weight=0.1, example=torch.zeros(2, 3, 12, 12))


METHODS: dict[str, Callable[[], Method]] = {
    "joint": joint,
    "byol": byol,
    "dino": lambda: nets.method("dino").float(),
    "sim": sim,
    "supervised": lambda: Supervised(nets.Net(), classes=3),
}


class Inside(Method):
    """A method in which another is wrapped."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, batch: Batch) -> Terms:
        terms: Terms = self.method(batch)
        return terms

    def encode(self, x: Tensor) -> Tensor:
        return self.method.encode(x)

    def after_step(self, step: int, steps: int) -> None:
        self.method.after_step(step, steps)


class Counted(Inside):
    """What had gone between host and device when each step began, and when it ended."""

    def __init__(self, method: Method, seen: Traffic) -> None:
        super().__init__(method)
        self.seen, self.counts = seen, list[tuple[int, int, int]]()

    def after_step(self, step: int, steps: int) -> None:
        super().after_step(step, steps)
        self.counts.append((len(self.seen.read), len(self.seen.copy), len(self.seen.blocking_copy)))


class Breaks(Inside, Scheduled):
    """Not finite in step `at`, counted from 0.  `aside` is a teacher of a kind that the loop does not know."""

    def __init__(self, method: Method, *, at: int) -> None:
        super().__init__(method)
        self.at = at
        self.aside = nn.Parameter(torch.zeros(2), requires_grad=False)

    def forward(self, batch: Batch) -> Terms:
        terms = super().forward(batch)
        if self._step == self.at:
            terms["extra"] = next(iter(terms.values())) * math.inf
        return terms

    @torch.no_grad()
    def after_step(self, step: int, steps: int) -> None:
        super().after_step(step, steps)
        self.aside += 1


def settings(out: Path, **more: object) -> Settings:
    given = {"steps": 10, "batch": 8, "log_every": 5, "clip": 1.0, "ema": 0.9, "schedule": "constant", **more}
    return replace(Settings(out=str(out)), **given)  # type: ignore[arg-type]


def feed(s: Settings) -> ImageFeed:
    data = images(32)
    data = InMemory(data.images, labels=data.labels, domain=data.labels % 2, domains=("a", "b"), name="toy")
    return ImageFeed(data, views.policy("simclr", size=12), batch=s.batch, seed=s.seed)


def made(name: str) -> Method:
    torch.manual_seed(0)
    return METHODS[name]()


@pytest.mark.parametrize("name", METHODS)
def test_it_reads_when_it_logs(pretend_device: torch.device, tmp_path: Path, name: str) -> None:
    s = settings(tmp_path)
    with traffic() as seen:
        method = Counted(made(name), seen)
        fit(method, feed(s), s, fabric=fabric_on(pretend_device), shown=False)
    reads, copies, waits = zip(*method.counts, strict=True)
    # Steps are counted from 1 here.  One read at each of the log steps, 5 and 10, before the weights change.
    assert [b - a for a, b in pairwise(reads)] == [0, 0, 0, 1, 0, 0, 0, 0, 1], seen.read
    assert waits[0] == waits[-1], seen.blocking_copy
    tensors = 2 + 2 + (name == "sim")  # views; labels and domains; the places that SIM draws
    assert all(b - a <= tensors for a, b in pairwise(copies)), seen.copy


@pytest.mark.parametrize("name", METHODS)
def test_it_trains_what_the_cpu_does(device: torch.device, tmp_path: Path, name: str) -> None:
    if device.type not in ("cpu", "pretend"):
        pytest.skip("directions of slices are drawn on the device, with its own numbers")
    ends = []
    for i, place in enumerate((CPU, device)):
        s = settings(tmp_path / str(i))
        fit(made(name), feed(s), s, fabric=fabric_on(place), shown=False)
        ends.append(read(tmp_path / str(i) / "checkpoint.safetensors")[0])
    assert ends[0].keys() == ends[1].keys()
    for key, value in ends[0].items():
        torch.testing.assert_close(
            ends[1][key], value, rtol=1e-4, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}"
        )


@pytest.mark.parametrize(
    ("name", "optimizer"), [*((name, "adamw") for name in METHODS), *(("byol", each) for each in OPTIMIZERS[1:])]
)
def test_a_step_that_is_not_finite_leaves_nothing(
    device: torch.device, tmp_path: Path, name: str, optimizer: str
) -> None:
    """Asked in every step or only after ten, the bundle has the same bits, and it repeats the step."""
    bundles = []
    for every in (1, 10):
        s = settings(tmp_path / str(every), log_every=every, optimizer=optimizer, ema=0.0, save_every=20)
        with pytest.raises(NonFiniteError, match=r"step 4: extra = (inf|-inf|nan)") as caught:
            fit(Breaks(made(name), at=4), feed(s), s, fabric=fabric_on(device), shown=False)
        bundles.append(read(caught.value.bundle))
    (early, about), (late, _) = bundles
    assert early.keys() == late.keys()
    for key, value in early.items():
        assert torch.equal(late[key], value), key
        assert value.isfinite().all(), key
    assert early["method.aside"].tolist() == [4, 4]
    again = replay(caught.value.bundle, method=Breaks(made(name), at=4), feed=feed(s))
    assert again.says.startswith("extra = ")
    assert again.terms.keys() == about["terms"].keys()


@pytest.mark.parametrize(("clip", "optimizer"), [(0.0, "adamw"), (1.0, "sgd"), (1.0, "lars")])
def test_scaled_gradients(pretend_device: torch.device, tmp_path: Path, clip: float, optimizer: str) -> None:
    """In float16 overflow is skipped without asking, and a loss that is not finite ends the run as elsewhere."""
    s = settings(tmp_path / "a", clip=clip, optimizer=optimizer, ema=0.0)
    with traffic() as seen:
        method = Counted(made("byol"), seen)
        fit(method, feed(s), s, fabric=fabric_on(pretend_device, scaled=True), shown=False)
    reads = [counts[0] for counts in method.counts]
    assert [b - a for a, b in pairwise(reads)] == [0, 0, 0, 1, 0, 0, 0, 0, 1], seen.read
    assert all(p.isfinite().all() for p in method.parameters())

    bundles = []
    for every in (1, 10):
        s = replace(s, out=str(tmp_path / str(every)), log_every=every)
        with pytest.raises(NonFiniteError, match=r"step 4: extra") as caught:
            fit(Breaks(made("byol"), at=4), feed(s), s, fabric=fabric_on(pretend_device, scaled=True), shown=False)
        bundles.append(read(caught.value.bundle)[0])
    for key, value in bundles[0].items():
        assert torch.equal(bundles[1][key], value), key
