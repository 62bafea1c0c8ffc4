"""Everything that a step changes, and how it is saved."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricOptimizer
from torch import Tensor, nn

from reglet.engine import checkpoint, guard
from reglet.engine.activations import checkpoint_activations
from reglet.engine.batch_norm import synchronize
from reglet.engine.ema import MovingAverage
from reglet.engine.feed import Feed
from reglet.engine.gradient import backward
from reglet.engine.launch import ask_others, together
from reglet.engine.optim import build_optimizer
from reglet.engine.order import NOISE, seed_of
from reglet.engine.preserve_in_parts import holders, inside
from reglet.engine.settings import Settings
from reglet.losses.base import OnViews
from reglet.method import Batch, Method
from reglet.methods.equivariant import Equivariant
from reglet.methods.predictive import Predictive
from reglet.methods.preserved import Preserved
from reglet.methods.view_features import Reader
from reglet.schedules import Share, set_step
from reglet.shares import SharedWeight
from reglet.types import Terms

Json = checkpoint.Json
T = TypeVar("T")


class AnyCall(nn.Module):
    """The module that Fabric wraps.  It is called as `model(lambda m: m.encode(x))`.

    DDP, FSDP and Fabric's precision act on `forward` only.  Scores and the gradient cache call other methods, which
    here go through `forward` too.
    """

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, call: Callable[[Method], T]) -> T:
        return call(self.method)


class Reading(NamedTuple):
    """What the host reads from the device about a step.

    norm: the largest gradient norm since the last reading, before clipping.
    broken: the first step that was not finite.
    """

    terms: dict[str, float]
    norm: float | None
    broken: int | None


class State:
    """A method on its devices, with its optimizer, its moving average if there is one, and the number of steps done."""

    def __init__(self, fabric: Fabric, method: Method, settings: Settings) -> None:
        s = settings
        if s.channels_last and s.strategy != "fsdp":  # FSDP takes only weights in torch's default layout
            method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.fabric, self.method, self.settings = fabric, method, s
        self._check_embeddings(fabric.device.type == "cpu")
        require_plain_shares(method, s)
        self.average = MovingAverage(method, decay=s.ema) if s.ema else None
        if s.sync_batchnorm and fabric.world_size > 1:
            synchronize(method, cuda=fabric.device.type == "cuda")
        if s.checkpoint_activations:
            checkpoint_activations(method)
        if s.compile:
            compile_method(method, in_parts=s.micro_batch > 0)
        self.model = fabric.setup(AnyCall(method))
        how = {"lr": s.lr, "momentum": s.momentum, "weight_decay": s.weight_decay, "layer_decay": s.layer_decay}
        self.optimizer = build_optimizer(method, s.optimizer, **how)
        self.stepper = cast(_FabricOptimizer, fabric.setup_optimizers(self.optimizer))
        if self.average is not None:
            self.average.to(fabric.device)
        self.guard = guard.Guard(method, fabric.device)
        self.scaler: Any = getattr(fabric.strategy.precision, "scaler", None)
        if self.scaler is None:
            self.optimizer.found_inf = self.guard.spoiled  # type: ignore[attr-defined]
        self.done = 0
        self.steps: int | None = None  # of the whole training
        self.terms: Terms = {}
        self.norm: Tensor | None = None  # the largest gradient norm since the last reading, before clipping
        self.error = ""  # raised on the host
        self.noted: Json = {}  # the journal's notes at the checkpoint

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
        """`act` on the network that is kept at the end: the moving average, in its own precision, if there is one."""
        x = x.to(self.device, non_blocking=True)
        if self.average is not None:
            dtype = next(p.dtype for p in self.average.parameters() if p.is_floating_point())
            return act(self.encoder, x.to(dtype)).float()
        if self.settings.strategy == "fsdp":  # all ranks must take part to gather the weights
            ask_others(self.fabric)
        x = self.fabric.strategy.precision.convert_input(x)
        out: Tensor = self.model(lambda m: act(m, x))
        return out.float()

    def backward(self, batch: Batch, *, lr: float, steps: int | None = None) -> None:
        """Computes the gradient of step `done`.  `read` then returns its numbers.

        steps: of the whole training, for weights that are schedules.
        """
        self.steps = steps
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["scale"]
        self.guard.remember(self.done)
        self._gradient(batch)
        for p in self.method.held(self.done):
            p.grad = None
        if not self.error and (norm := self._norm()) is not None:
            self.norm = norm if self.norm is None else torch.maximum(self.norm, norm)

    def read(self) -> Reading:
        """The numbers of the last step, in one copy from the device, for which the host waits."""
        if self.error:
            return Reading({}, None, self.done)
        numbers = torch.cat([guard.side_by_side(self.terms, self.norm), self.guard.steps[None]]).tolist()
        spoiled = int(numbers.pop())
        norm = None if self.norm is None else numbers.pop()
        self.norm = None
        if not spoiled:
            self.guard.clear()
        terms = dict(zip(self.terms, numbers, strict=True))
        return Reading(terms, norm, self.done - spoiled + 1 if spoiled else None)

    def again(self, batch: Batch, *, steps: int | None = None) -> tuple[dict[str, float], str]:
        """The terms of step `done`, and what is wrong with them or with the gradient."""
        self.steps, self.norm, self.error = steps, None, ""
        self._check_embeddings(True)
        self.optimizer.zero_grad()
        self._gradient(batch)
        if self.error:
            return {}, self.error
        terms = {name: float(term) for name, term in self.terms.items()}
        norm = None if self.scaler is not None else float(guard.gradient_norm(self.method.parameters()))
        return terms, guard.complaint(terms, norm)

    def _check_embeddings(self, on: bool) -> None:
        for loss in self.method.modules():
            if isinstance(loss, OnViews):  # an error on one rank alone would leave the others waiting
                loss.check_finite = on and self.fabric.world_size == 1

    def _gradient(self, batch: Batch) -> None:
        s = self.settings
        set_step(self.method, self.done, self.steps)
        self.model.train()
        batch = replace(batch, views=self.fabric.strategy.precision.convert_input(list(batch.views)))
        seed = seed_of(s.seed, NOISE, self.fabric.global_rank, self.done)
        try:
            self.terms = backward(
                self.fabric, self.model, batch, micro_batch=s.micro_batch, accumulate=s.accumulate, seed=seed
            )
        except FloatingPointError as error:
            self.error = str(error)

    def _norm(self) -> Tensor | None:
        """The norm of the gradient, which is then clipped.  None if the gradient stays scaled until the optimizer
        steps.

        The scaler handles the overflow of a scaled gradient, so only the terms are checked.  If they are not finite,
        one gradient is made infinite, and the scaler skips this step and all later ones.
        """
        if self.scaler is None:
            norm = guard.gradient_norm(self.method.parameters())  # of all parameters, to notice NaN in a head
            self._judge(norm)
            self._clip()
            return norm
        self._judge(None)
        for p in self.method.parameters():
            if p.grad is not None:
                p.grad.div_(1 - self.guard.spoiled)
                break
        if not self.settings.clip:
            return None
        self.scaler.unscale_(self.optimizer)
        norm = guard.gradient_norm(self.method.parameters())
        self._clip()
        return norm

    def _judge(self, norm: Tensor | None) -> None:
        bad = 1 - guard.side_by_side(self.terms, norm).isfinite().all().float()
        self.guard.judge(cast(Tensor, self.fabric.all_reduce(bad, reduce_op="sum")))

    def _clip(self) -> None:
        if limit := self.settings.clip:
            clipped = [p for p in self.method.clipped() if p.grad is not None]
            torch.nn.utils.clip_grads_with_norm_(clipped, limit, guard.gradient_norm(clipped))

    def step(self, steps: int) -> None:
        self.stepper.step()
        self.stepper.zero_grad()
        self.done += 1
        self.method.after_step(self.done, steps)
        if self.method.forgets(self.done):
            self.optimizer.state.clear()
        if self.average is not None:
            self.average.update(self.method, first=self.done == 1)

    def save(self, path: Path, config: Json, noted: Json) -> None:
        """noted: the journal's notes for its next line."""
        tensors = checkpoint.collect(self.method, self.optimizer, self.average)
        scaler = self.fabric.strategy.precision.state_dict()
        about = {"step": self.done, "config": config, "scaler": scaler, "noted": noted}
        self._write(path, tensors, about)

    def save_weights(self, path: Path, config: Json) -> None:
        """Saves the network, without what only training needs."""
        tensors = checkpoint.collect(self.method, None, self.average)
        self._write(path, tensors, {"step": self.done, "config": config})

    def _write(self, path: Path, tensors: dict[str, Tensor], about: Json) -> None:
        with together(self.fabric):
            checkpoint.write(path, tensors, about, writes=self.fabric.is_global_zero)

    def load(self, path: Path) -> None:
        with together(self.fabric):
            tensors, about = checkpoint.Stored(path), checkpoint.read_about(path)
        checkpoint.restore(tensors, self.method, self.optimizer, self.average)
        self.fabric.strategy.precision.load_state_dict(about["scaler"])
        self.done, self.noted = int(about["step"]), about.get("noted", {})

    def failure(self, folder: Path, config: Json, feed: Feed, *, step: int) -> Exception:
        """The error that ends the run, with the file that reproduces `step`, the first step that was not finite.

        The state before that step is restored, and the step is repeated to find what was wrong.
        """
        self.done = step
        self.guard.restore(step)
        terms, says = self.again(feed(step), steps=self.steps)
        self.guard.restore(step)
        path = folder / f"replay-step-{step}.safetensors"
        tensors = {f"method.{key}": value.detach() for key, value in self.method.state_dict().items()}
        tensors["index"] = feed.order.indices(step)
        numbers = {name: str(term) for name, term in terms.items()}  # JSON has no nan
        about = {"step": step, "config": config, "terms": numbers, "says": says}
        self._write(path, tensors, about)
        says = says or "the loss or gradient was not finite, but only on another rank or only the first time"
        return guard.NonFiniteError(
            f"step {step}: {says}. The weights were not changed and the last checkpoint is good. "
            f"reglet.train.replay({str(path)!r}) reproduces the step",
            path,
        )


def require_plain_shares(method: Method, settings: Settings) -> None:
    """A share of the gradient is measured in the forward pass on whole weights.  Raise where that is not possible."""
    balances = {m for m in method.modules() if isinstance(m, SharedWeight) and isinstance(m.weight, Share)}
    on_views = any(isinstance(m, OnViews) and m.shares() for m in method.modules())
    outside = {balance for holder in holders(method) for balance in holder.balance.values()}  # they are not compiled
    if settings.compile and (on_views or balances - outside):
        raise ValueError("weight=share: measures gradients inside the method, which compile=true hides: leave it out")
    if balances and settings.strategy == "fsdp":
        raise ValueError(
            "weight=share: of an added term is measured on whole weights, which fsdp splits: give a number, such as "
            "preserve.weight=0.1, or take ddp"
        )


def compile_method(method: Method, *, in_parts: bool) -> None:
    """Compiles the method; `in_parts`, only the half that the gradient cache calls more than once.

    Losses on views are not compiled (`JointEmbedding.objective`): they fell into eight graphs or more.  Of `Preserved`,
    both networks are compiled.  Their distance and its share of the gradient are not.
    """
    for module in method.modules():
        if isinstance(module, Equivariant | Reader):
            raise ValueError(
                "compile=true does not work with equivariant=, whose hooks come and go with each step: "
                "every step would be compiled anew"
            )
    around, method = holders(method), inside(method)
    if any(isinstance(module, Preserved) for module in method.modules()):
        raise ValueError(
            f"compile=true: Preserved is inside {type(method).__name__} and would be compiled with it. Put it outside"
        )
    for holder in around:
        holder.start.compile()
        if any(isinstance(weight.weight, Share) for weight in holder.balance.values()):
            # A share takes gradients of a graph that is needed again.  torch would reuse its memory in the first pass.
            torch._functorch.config.donated_buffer = False
    if in_parts:
        part = "forecast" if isinstance(method, Predictive) else "embed"
        setattr(method, part, torch.compile(getattr(method, part)))
    else:
        method.compile()
