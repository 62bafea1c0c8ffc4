"""Callbacks for Lightning's Trainer: a loss on the blocks of any LightningModule, the doctor, and online probes.

pytorch_lightning is taken if it is installed, otherwise lightning.pytorch.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from reglet.attach import Where
from reglet.diagnostics.ranks import rankme
from reglet.doctor import Doctor
from reglet.integrations.observer import Observer, Read
from reglet.integrations.penalty import Loss, Penalty
from reglet.probes import knn_probe, linear_probe
from reglet.schedules import Weight, set_step

if TYPE_CHECKING:
    from pytorch_lightning import Callback, LightningModule, Trainer
else:
    try:
        from pytorch_lightning import Callback, LightningModule, Trainer
    except ImportError:
        try:
            from lightning.pytorch import Callback, LightningModule, Trainer
        except ImportError as error:
            raise ImportError("reglet.integrations.lightning needs it: pip install 'reglet[lightning]'") from error


class AttachLoss(Callback):
    """A loss on blocks of the LightningModule, added to what its `training_step` returns.

        Trainer(callbacks=[AttachLoss("backbone.layer*.*", reglet.SIM(), weight=5e-3, example=x)])

    where: blocks by their names in the module, or in its part `inside`.
    example: a batch for the module's `forward`, or for that of `inside`: it builds the heads.
    weight, options: as of `reglet.integrations.Penalty`.

    The heads learn with the first group of the first optimizer.  A checkpoint has them with the state of this callback,
    so the module's own weights are as without it.  After the training, `callback.penalty.save(path)` writes them alone.

    On several ranks the weights are those of one process that sees the same batches.  Lightning's own sampler shuffles
    the training data on several ranks, even where the DataLoader does not.  So a comparison with one process needs
    `Trainer(use_distributed_sampler=False)` and a DistributedSampler in the loader.

    >>> callback = AttachLoss("net.0", torch.nn.Identity(), weight=1.0, example=None, name="mine")
    >>> callback.state_key
    'reglet.AttachLoss: mine'
    """

    def __init__(
        self,
        where: Where | Mapping[str, Where],
        loss: Loss,
        *,
        weight: Weight,
        example: Any,
        inside: str = "",
        name: str | None = None,
        **options: Any,
    ) -> None:
        self.name = type(loss).__name__.lower() if name is None else name
        self.where, self.loss, self.inside, self.example = where, loss, inside, example
        self.options: dict[str, Any] = {"weight": weight, "name": self.name, **options}
        self._penalty: Penalty | None = None
        self._known: dict[str, Tensor] | None = None

    @property
    def penalty(self) -> Penalty:
        """The loss, its weight and its heads; from the beginning of a training on, and after its end."""
        if self._penalty is None:
            raise RuntimeError(f"{self.name} is attached when fit begins: there are no heads yet")
        return self._penalty

    @property
    def state_key(self) -> str:
        return f"reglet.AttachLoss: {self.name}"

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        if not pl_module.automatic_optimization:
            raise ValueError(
                f"{type(pl_module).__name__} has automatic_optimization = False, and calls backward itself: make a "
                "reglet.integrations.Penalty in it, and add it to the loss there"
            )
        if self._penalty is not None:  # fit once more
            self._known = self.penalty.state_dict()
        part = pl_module.get_submodule(self.inside)
        try:
            self._penalty = Penalty(part, self.where, self.loss, example=self.example, **self.options)
        except NotImplementedError as error:
            raise ValueError(
                f"{type(part).__name__} has no forward() to run the example with: name the part that has one, "
                'inside="backbone", say'
            ) from error
        if self._known is not None:
            self.penalty.load_state_dict(self._known)
        # The loss is added where it is made: before it is divided by the number of parts of a batch, before it is
        # scaled for float16, and inside the forward of DDP.  No hook of a callback can change it there.
        pl_module.training_step = self._wrapped(pl_module.training_step, trainer, pl_module)  # type: ignore[method-assign]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The optimizers exist, and nothing was restored into them yet."""
        self.penalty.to(pl_module.device)
        if not trainer.optimizers:
            raise ValueError(f"{type(pl_module).__name__} has no optimizer to train the heads of {self.name} with")
        trained = {
            id(p) for optimizer in trainer.optimizers for group in optimizer.param_groups for p in group["params"]
        }
        # No group of their own: learning-rate schedules have counted the groups already.
        first = trainer.optimizers[0].param_groups[0]["params"]
        first.extend(p for p in self.penalty.parameters() if p.requires_grad and id(p) not in trained)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit" and self._penalty is not None:
            self.penalty.remove()
            vars(pl_module).pop("training_step", None)

    def state_dict(self) -> dict[str, Any]:
        return {} if self._penalty is None else {"penalty": self.penalty.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._known = state_dict["penalty"]
        if self._penalty is not None:
            self.penalty.load_state_dict(state_dict["penalty"])

    def _wrapped(self, step: Callable[..., Any], trainer: Trainer, pl_module: LightningModule) -> Callable[..., Any]:
        @functools.wraps(step)
        def training_step(*args: Any, **kwargs: Any) -> Any:
            total = trainer.estimated_stepping_batches
            set_step(self.penalty, trainer.global_step, int(total) if math.isfinite(total) else None)
            out = step(*args, **kwargs)
            if out is None:  # the batch is skipped
                self.penalty.attachment.clear()
                return None
            out = {**out, "loss": self.penalty(out["loss"])} if isinstance(out, Mapping) else self.penalty(out)
            pl_module.log(self.name, self.penalty.last)
            return out

        return training_step


class WatchWithDoctor(Callback):
    """The doctor beside a training.  What it finds is logged; it warns, stops the trainer, or raises.

        Trainer(callbacks=[WatchWithDoctor(embeddings="projector", features="backbone", loss="criterion")])

    doctor: `reglet.Doctor(action="stop")`, say; by default one that warns.
    embeddings, features, loss, views, read: as of `reglet.integrations.observer.Observer`.

    >>> WatchWithDoctor(embeddings="projector").doctor.action
    'warn'
    """

    def __init__(
        self,
        *,
        embeddings: str,
        doctor: Doctor | None = None,
        features: str = "",
        loss: str = "",
        views: int = 1,
        read: Read | None = None,
    ) -> None:
        self.doctor = doctor or Doctor()
        self.options: dict[str, Any] = {
            "embeddings": embeddings, "features": features, "loss": loss, "views": views, "read": read
        }  # fmt: skip
        self.observer: Observer | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.observer = Observer(pl_module, self.doctor, **self.options)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        assert self.observer is not None
        self.observer.begin()

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        assert self.observer is not None
        scaler = getattr(trainer.precision_plugin, "scaler", None)  # of float16: its factor changes with time
        if self.observer.end(loss if scaler is None else loss / scaler.get_scale()) is not None:
            row = self.doctor.timeline[-1]
            numbers = {f"doctor.{key}": float(v) for key, v in row.items() if isinstance(v, float)}
            pl_module.log_dict(numbers)
            pl_module.log("sick", float(row["verdict"] not in ("healthy", "suspicion")), prog_bar=True)

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        if trainer.world_size == 1:
            trainer.should_stop |= self.doctor.stop
        elif self.doctor.step % self.doctor.every == 0:  # all ranks ask at the same step
            trainer.should_stop |= trainer.strategy.reduce_boolean_decision(self.doctor.stop, all=False)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.observer is not None:
            self.observer.remove()
            self.observer = None

    def state_dict(self) -> dict[str, Any]:
        return self.doctor.state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.doctor.restore(state_dict)


Labelled = Iterable[tuple[Tensor, Tensor]]


class OnlineProbes(Callback):
    """Accuracy of a kNN and of an exact linear probe, and the rank, of an encoder's features after every few epochs.

        Trainer(callbacks=[OnlineProbes(train_loader, test_loader, encoder="backbone")])

    train, test: batches of inputs and labels, read anew each time.
    encoder: the module that makes features (n, d) of inputs; "" is the LightningModule itself.

    >>> OnlineProbes([], [], encoder="backbone", every=5).scores
    []
    """

    def __init__(
        self, train: Labelled, test: Labelled, *, encoder: str, every: int = 1, k: int = 20, linear: bool = True
    ) -> None:
        if every < 1:
            raise ValueError(f"every is a number of epochs, at least 1; got {every}")
        self.train, self.test, self.encoder, self.every, self.k, self.linear = train, test, encoder, every, k, linear
        self.scores: list[dict[str, float]] = []  # one row for each time

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if (trainer.current_epoch + 1) % self.every:
            return
        encoder = pl_module.get_submodule(self.encoder)
        x, y = self._features(encoder, self.train, trainer, pl_module)
        x_test, y_test = self._features(encoder, self.test, trainer, pl_module)
        found = {"knn": knn_probe(x, y, x_test, y_test, k=min(self.k, len(x))), "rank": rankme(x_test)}
        if self.linear:
            found["linear"] = linear_probe(x, y, x_test, y_test).accuracy
        self.scores.append({"epoch": float(trainer.current_epoch + 1), **found})
        pl_module.log_dict(found)

    @torch.no_grad()
    def _features(
        self, encoder: nn.Module, batches: Labelled, trainer: Trainer, pl_module: LightningModule
    ) -> tuple[Tensor, Tensor]:
        modes = {module: module.training for module in encoder.modules()}
        rows: list[Tensor] = []
        labels: list[Tensor] = []
        try:
            encoder.eval()
            for x, y in batches:
                with trainer.precision_plugin.forward_context():
                    features = encoder(x.to(pl_module.device))
                if not isinstance(features, Tensor) or features.ndim != 2:
                    what = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
                    raise ValueError(f"the probes take features (n, d), and {self.encoder or 'the module'} gave {what}")
                rows.append(features.float())
                labels.append(y.to(features.device))
        finally:
            for module, mode in modes.items():
                module.training = mode
        if not rows:
            raise ValueError("the probes got no batches; a generator is empty after its first time: give a DataLoader")
        return torch.cat(rows), torch.cat(labels)
