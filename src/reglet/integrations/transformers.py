"""Callbacks for transformers' Trainer: a loss on the blocks of any PreTrainedModel, and the doctor."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from reglet.attach import Where
from reglet.dist import on_any_rank, world_size
from reglet.doctor import Doctor
from reglet.integrations.observer import Observer, Read
from reglet.integrations.penalty import Loss, Penalty
from reglet.schedules import Weight, set_step

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError as error:
    raise ImportError("reglet.integrations.transformers needs it: pip install 'reglet[transformers]'") from error

IGNORED = -100  # the label of what does not count, in transformers


class AttachLoss(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """A loss on blocks of the model, added to the loss that the model returns.

        sim = AttachLoss("vit.layers.*", reglet.SIM(skip_tokens=1), weight=5e-3, example={"pixel_values": x})
        Trainer(model, arguments, train_dataset=data, callbacks=[sim]).train()

    example: arguments of the model's `forward`, which is run once to build the heads.
    weight, options: as of `reglet.integrations.Penalty`.
    name: of the part of the model that holds the heads while it trains.

    The loss is added inside the model's forward, so precision, accumulation, DDP and clipping are the Trainer's.  While
    it trains, the heads are a part of the model: the Trainer's optimizer has them, and its checkpoints, so a run that
    goes on has them again.  At the end they are written to `output_dir`/NAME.safetensors, and the model is as it was.

    >>> AttachLoss("vit.layers.*", torch.nn.Identity(), weight=1.0, example={}).name
    'reglet'
    """

    def __init__(
        self,
        where: Where | Mapping[str, Where],
        loss: Loss,
        *,
        weight: Weight,
        example: Mapping[str, Any],
        name: str = "reglet",
        **options: Any,
    ) -> None:
        self.where, self.loss, self.name = where, loss, name
        self.example, self.options = example, {"weight": weight, **options}
        self._penalty: Penalty | None = None
        self.model: nn.Module | None = None

    @property
    def penalty(self) -> Penalty:
        """The loss, its weight and its heads; from the beginning of a training on, and after its end."""
        if self._penalty is None:
            raise RuntimeError(f"{self.name} is attached when a Trainer is made: there are no heads yet")
        return self._penalty

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **_: Any
    ) -> None:
        if args.label_smoothing_factor:
            raise ValueError(
                "with label_smoothing_factor the Trainer computes a loss of its own, to which nothing is added: leave "
                "it out, or override compute_loss with a reglet.integrations.Penalty"
            )
        if hasattr(model, self.name):
            raise ValueError(f"the model has a part {self.name!r} already: give this one another name=")
        device = next(model.parameters()).device
        example = {key: x.to(device) if isinstance(x, Tensor) else x for key, x in self.example.items()}
        self._penalty = Penalty(model, self.where, self.loss, example=example, **self.options)
        self.penalty.attachment.averaging = False  # DDP has the heads inside
        self.penalty.to(device)
        self.penalty.register_state_dict_post_hook(_number)
        self.penalty.register_load_state_dict_pre_hook(_name)
        model.add_module(self.name, self.penalty)
        self.model, self._handle = model, model.register_forward_hook(self._add, with_kwargs=True)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        if self.model is None:
            raise RuntimeError(
                "AttachLoss must be given to Trainer(callbacks=[...]), for each training anew: the optimizer is made "
                "with the heads"
            )

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        set_step(self.penalty, state.global_step, state.max_steps)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero and args.output_dir:
            self.penalty.save(Path(args.output_dir) / f"{self.name}.safetensors")
        self.remove()

    def remove(self) -> None:
        """Take the loss off the model: its weights and outputs are as before."""
        if self.model is not None and self._penalty is not None:
            self._handle.remove()
            self.penalty.remove()
            delattr(self.model, self.name)
            self.model = None

    def _add(self, model: nn.Module, _args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        if not model.training or not torch.is_grad_enabled():
            return None
        loss = output.get("loss") if isinstance(output, Mapping) else output[0]
        if not isinstance(loss, Tensor) or loss.ndim:
            raise ValueError(
                f"{type(model).__name__} gave no loss, to which the one on its blocks could be added: give it labels. "
                "Where compute_loss_func or an own compute_loss makes the loss, call a Penalty there"
            )
        total = self.penalty(loss, portion=portion(model, kwargs))
        if not isinstance(output, Mapping):
            return (total, *output[1:])
        output["loss"] = total  # type: ignore[index]
        return output


def _number(penalty: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Inside a model, tensors are numbered.  The names of heads hold names of blocks, and transformers renames some of
    these when it saves (`layers` of a ViT becomes `encoder.layer`), without doing the reverse when a run goes on."""
    if prefix:
        for i, key in enumerate([key for key in state if key.startswith(prefix)]):
            state[f"{prefix}{i}"] = state.pop(key)


def _name(penalty: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """The inverse of `_number`."""
    for i, key in enumerate(penalty.state_dict()):
        if prefix and f"{prefix}{i}" in state:
            state[f"{prefix}{key}"] = state.pop(f"{prefix}{i}")


def portion(model: nn.Module, given: Mapping[str, Any]) -> float | Tensor:
    """How much of the penalty belongs to this part of a batch.

    A model that is told `num_items_in_batch` divides by all labels of the batch, over its parts and over ranks, and the
    Trainer sums its parts.  Then each part gets the share that its labels have.  Otherwise the Trainer averages.

    >>> labels = torch.tensor([3, 1, IGNORED, IGNORED])  # two of the eight labels of the batch
    >>> float(portion(nn.Linear(1, 1), {"labels": labels, "num_items_in_batch": 8}))
    0.25
    """
    items = given.get("num_items_in_batch")
    if items is None:
        return 1.0
    labels = given.get("shift_labels")
    if labels is None:
        labels = given["labels"]
        decodes = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
        if getattr(model, "loss_type", None) == "ForCausalLM" and not decodes:
            labels = labels[..., 1:]  # the first token is not predicted
    share: Tensor = labels.ne(IGNORED).sum() / items
    return share


class WatchWithDoctor(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """The doctor beside a training.  It warns, stops the Trainer, or raises.

        Trainer(..., callbacks=[WatchWithDoctor(embeddings="vit", read=lambda tokens: tokens[:, 0])])

    doctor: `reglet.Doctor(action="stop")`, say; by default one that warns.
    embeddings, features, loss, views, read: as of `reglet.integrations.observer.Observer`.

    >>> WatchWithDoctor(embeddings="vit", doctor=Doctor(action="stop")).doctor.action
    'stop'
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

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module, **_: Any
    ) -> None:
        self.observer = Observer(model, self.doctor, **self.options)
        self._handles = [model.register_forward_pre_hook(self._begin), model.register_forward_hook(self._end)]

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, Any], **_: Any
    ) -> None:
        """The last verdict, beside the loss."""
        if self.doctor.timeline and "loss" in logs:
            logs["doctor"] = self.doctor.timeline[-1]["verdict"]

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if world_size() == 1:
            control.should_training_stop |= self.doctor.stop
        elif state.global_step % self.doctor.every == 0:  # all ranks ask at the same step
            control.should_training_stop |= on_any_rank(self.doctor.stop)[0]

    def on_train_end(self, *_: Any, **__: Any) -> None:
        if self.observer is not None:
            self.observer.remove()
            for handle in self._handles:
                handle.remove()
            self.observer = None

    def _begin(self, model: nn.Module, _args: Any) -> None:
        if self.observer is not None and model.training and torch.is_grad_enabled():
            self.observer.begin()

    def _end(self, model: nn.Module, _args: Any, output: Any) -> None:
        if self.observer is None or not (model.training and torch.is_grad_enabled()):
            return
        loss = output.get("loss") if isinstance(output, Mapping) else output[0]
        if isinstance(loss, Tensor):
            self.observer.end(loss)
