"""Everything that a step changes, and how it is saved."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricOptimizer
from torch import Tensor, nn

from reglet.engine import checkpoint, guard
from reglet.engine.ema import moving_average
from reglet.engine.gradient import backward
from reglet.engine.launch import first_then_all, together
from reglet.engine.optim import build_optimizer
from reglet.engine.order import NOISE, seed_of
from reglet.engine.settings import Settings
from reglet.losses.base import OnViews
from reglet.method import Batch, Method
from reglet.schedules import set_step
from reglet.types import Terms

Json = checkpoint.Json
T = TypeVar("T")


class AnyCall(nn.Module):
    """What Fabric wraps: `model(lambda m: m.encode(x))`.

    DDP, FSDP and Fabric's precision act on `forward` alone, but scores and the gradient cache need other calls of the
    method.  Here they pass through the same door.
    """

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, call: Callable[[Method], T]) -> T:
        return call(self.method)


class State:
    """A method on its devices with its optimizer, its moving average where asked for, and the number of steps done."""

    def __init__(self, fabric: Fabric, method: Method, settings: Settings) -> None:
        s = settings
        if s.channels_last and s.strategy != "fsdp":  # which takes no weights in another layout than torch's own
            method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for loss in method.modules():
            if isinstance(loss, OnViews):  # an error on one rank alone would leave the others waiting
                loss.check_finite = fabric.world_size == 1
        self.fabric, self.method, self.settings = fabric, method, s
        self.average = moving_average(method, decay=s.ema, same_dtype=s.precision != "bf16-true") if s.ema else None
        if s.sync_batchnorm and fabric.world_size > 1:
            nn.SyncBatchNorm.convert_sync_batchnorm(method)
        if s.compile:
            compile_method(method, in_parts=s.micro_batch > 0)
        self.model = fabric.setup(AnyCall(method))
        self.optimizer = build_optimizer(
            method,
            s.optimizer,
            lr=s.lr,
            momentum=s.momentum,
            weight_decay=s.weight_decay,
            fused=s.precision != "16-mixed",
        )
        self.stepper = cast(_FabricOptimizer, fabric.setup_optimizers(self.optimizer))
        if self.average is not None:
            self.average.to(fabric.device)
        self.done = 0
        self.norm: float | None = None  # of the last gradient, before it was clipped
        self.noted: Json = {}  # what the journal had in mind at the checkpoint

    @property
    def encoder(self) -> Method:
        return self.method if self.average is None else cast(Method, self.average.module)

    @property
    def device(self) -> torch.device:
        return self.fabric.device

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        modules = [self.method, *([] if self.average is None else [self.encoder])]
        modes = [m.training for m in modules]
        try:
            for m in modules:
                m.eval()
            with torch.no_grad():
                yield
        finally:
            for m, mode in zip(modules, modes, strict=True):
                m.train(mode)

    def call(self, act: Callable[[Method, Tensor], Tensor], x: Tensor) -> Tensor:
        """`act` on what is kept at the end: the moving average where there is one, in the precision of its weights."""
        x = x.to(self.device, non_blocking=True)
        if self.average is not None:
            dtype = next(p.dtype for p in self.average.parameters() if p.is_floating_point())
            return act(self.encoder, x.to(dtype)).float()
        x = self.fabric.strategy.precision.convert_input(x)
        out: Tensor = self.model(lambda m: act(m, x))
        return out.float()

    def backward(self, batch: Batch, *, lr: float, steps: int | None = None) -> tuple[Terms, str]:
        """The terms of the loss, and what is wrong with them or with the gradient, if anything is.

        steps: of the whole training, for weights that are schedules.
        """
        s = self.settings
        set_step(self.method, self.done, steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.before = guard.remember(self.method)
        self.model.train()
        batch = replace(batch, views=self.fabric.strategy.precision.convert_input(list(batch.views)))
        seed = seed_of(s.seed, NOISE, self.fabric.global_rank, self.done)
        try:
            terms = backward(
                self.fabric, self.model, batch, micro_batch=s.micro_batch, accumulate=s.accumulate, seed=seed
            )
        except FloatingPointError as error:
            return {}, str(error)
        self.norm = self._clip()
        return terms, guard.complaint(terms, None if s.precision == "16-mixed" else self.norm)

    def _clip(self) -> float | None:
        """The norm of the gradient, on every rank: shards know their part only.  None where it is scaled."""
        limit, scaled = self.settings.clip, self.settings.precision == "16-mixed"
        if scaled and not limit:
            return None
        if scaled:
            self.fabric.strategy.precision.unscale_gradients(self.optimizer)
        norm = guard.gradient_norm(self.method.parameters())  # of all: NaN in a head must be noticed, too
        if limit:
            clipped = [p for p in self.method.clipped() if p.grad is not None]
            torch.nn.utils.clip_grads_with_norm_(clipped, limit, guard.gradient_norm(clipped))
        return float(norm)

    def step(self, steps: int) -> None:
        self.stepper.step()
        self.stepper.zero_grad()
        self.done += 1
        self.method.after_step(self.done, steps)
        if self.method.forgets(self.done):
            self.optimizer.state.clear()
        if self.average is not None:
            self.average.update_parameters(self.method)

    def save(self, path: Path, config: Json, noted: Json) -> None:
        """noted: what the journal has in mind for its next line."""
        tensors = checkpoint.collect(self.method, self.optimizer, self.average)
        scaler = self.fabric.strategy.precision.state_dict()
        about = {"step": self.done, "config": config, "scaler": scaler, "noted": noted}
        first_then_all(self.fabric, lambda: checkpoint.write(path, tensors, about))

    def load(self, path: Path) -> None:
        with together(self.fabric):
            tensors, about = checkpoint.read(path)
        checkpoint.restore(tensors, self.method, self.optimizer, self.average)
        self.fabric.strategy.precision.load_state_dict(about["scaler"])
        self.done, self.noted = int(about["step"]), about.get("noted", {})

    def failure(self, folder: Path, config: Json, *, index: Tensor, terms: Terms, says: str) -> Exception:
        """The error that ends the run, with the bundle that reproduces the step."""
        path = folder / f"replay-step-{self.done}.safetensors"
        tensors = guard.bundle(self.method, self.before, index)
        numbers = {name: str(float(term)) for name, term in terms.items()}  # JSON has no nan
        about = {"step": self.done, "config": config, "terms": numbers, "says": says}
        first_then_all(self.fabric, lambda: checkpoint.write(path, tensors, about))
        says = says or "another rank's loss or gradient was not finite"
        return guard.NonFiniteError(
            f"step {self.done}: {says}. The weights were not changed and the last checkpoint is good. "
            f"reglet.train.replay({str(path)!r}) reproduces the step",
            path,
        )


def compile_method(method: Method, *, in_parts: bool) -> None:
    """What a step calls: the method or, `in_parts`, its two halves that the gradient cache enters."""
    if not in_parts:
        method.compile()
        return
    for name in ("embed", "objective"):
        setattr(method, name, torch.compile(getattr(method, name)))
