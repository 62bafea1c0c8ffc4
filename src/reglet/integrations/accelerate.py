"""Accelerate: `attach` and `Penalty` as in plain torch, and their heads in the states that the Accelerator saves."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from reglet.integrations.penalty import Penalty

if TYPE_CHECKING:
    from accelerate import Accelerator


def save_with(accelerator: "Accelerator", penalty: Penalty, *, name: str = "reglet") -> None:
    """From now on `accelerator.save_state(folder)` writes the heads to folder/NAME.safetensors, and `load_state` reads
    them.

        penalty = Penalty(model, "layer*.*", reglet.SIM(), weight=5e-3, example=x)      # before prepare
        optimizer = AdamW([*model.parameters(), *penalty.parameters()])
        save_with(accelerator, penalty)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        penalty.to(accelerator.device)
        ...
        accelerator.backward(penalty(criterion(model(x), y)))

    Under DDP the gradients of the heads are averaged by the attachment itself.

    >>> from tempfile import TemporaryDirectory
    >>> import torch
    >>> from accelerate import Accelerator
    >>> from reglet import SIM
    >>> accelerator, net = Accelerator(cpu=True), torch.nn.Conv2d(8, 8, 3)
    >>> save_with(accelerator, Penalty(net, "", SIM(), weight=0.1, example=torch.randn(2, 8, 9, 9)))
    >>> with TemporaryDirectory() as folder:
    ...     saved = accelerator.save_state(folder)
    ...     [path.name for path in Path(folder).glob("*.safetensors")]
    ['reglet.safetensors']
    """

    def save(_models: Any, _weights: Any, folder: str | Path) -> None:
        if accelerator.is_main_process:
            penalty.save(Path(folder) / f"{name}.safetensors")

    def load(_models: Any, folder: str | Path) -> None:
        penalty.load(Path(folder) / f"{name}.safetensors")

    accelerator.register_save_state_pre_hook(save)
    accelerator.register_load_state_pre_hook(load)
