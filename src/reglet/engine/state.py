"""Everything that a step changes, and how it is saved."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricOptimizer
from torch import Tensor, nn

from reglet.engine import checkpoint, guard
from reglet.engine.ema import moving_average
from reglet.engine.gradient import backward
from reglet.engine.launch import first_then_all
from reglet.engine.optim import build_optimizer
from reglet.engine.order import NOISE, seed_of
from reglet.engine.settings import Settings
from reglet.engine.through import Through
from reglet.losses.base import OnViews
from reglet.method import Batch, Method
from reglet.types import Terms

Json = checkpoint.Json


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
        self.average = moving_average(method, decay=s.ema) if s.ema else None
        if s.sync_batchnorm and fabric.world_size > 1:
            nn.SyncBatchNorm.convert_sync_batchnorm(method)
        if s.compile:
            method.compile()
        self.model = fabric.setup(Through(method))
        self.optimizer = build_optimizer(
            method, s.optimizer, lr=s.lr, weight_decay=s.weight_decay, fused=s.precision != "16-mixed"
        )
        self.stepper = cast(_FabricOptimizer, fabric.setup_optimizers(self.optimizer))
        if self.average is not None:
            self.average.to(fabric.device)
        self.done = 0
        self.norm: float | None = None  # of the last gradient, before it was clipped

    @property
    def encoder(self) -> Method:
        return self.method if self.average is None else cast(Method, self.average.module)

    def encode(self, x: Tensor) -> Tensor:
        """Features for a probe.  All ranks must call it where the weights are sharded."""
        x = self.fabric.strategy.precision.convert_input(x)
        if self.average is not None:
            return self.encoder.encode(x)
        features: Tensor = self.model(lambda m: m.encode(x))
        return features

    def backward(self, batch: Batch, *, lr: float) -> tuple[Terms, str]:
        """The terms of the loss, and what is wrong with them or with the gradient, if anything is."""
        s = self.settings
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
        self.norm = None
        if s.clip:
            found = self.fabric.clip_gradients(self.model, self.stepper, max_norm=s.clip, error_if_nonfinite=False)
            self.norm = None if found is None else float(found)
        elif s.precision != "16-mixed":
            self.norm = float(guard.gradient_norm(self.method))  # on every rank: shards know their part only
        return terms, guard.complaint(terms, None if s.precision == "16-mixed" else self.norm)

    def step(self, steps: int) -> None:
        self.stepper.step()
        self.stepper.zero_grad()
        self.done += 1
        self.method.after_step(self.done, steps)
        if self.average is not None:
            self.average.update_parameters(self.method)

    def save(self, path: Path, config: Json) -> None:
        tensors = checkpoint.collect(self.method, self.optimizer, self.average)
        scaler = self.fabric.strategy.precision.state_dict()
        about = {"step": self.done, "config": config, "scaler": scaler}
        first_then_all(self.fabric, lambda: checkpoint.write(path, tensors, about))

    def load(self, path: Path) -> None:
        tensors, about = checkpoint.read(path)
        checkpoint.restore(tensors, self.method, self.optimizer, self.average)
        self.fabric.strategy.precision.load_state_dict(about["scaler"])
        self.done = int(about["step"])

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
