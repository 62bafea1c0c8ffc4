"""The doctor in the loop: `doctor=warn` or `doctor=stop`."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from reglet.doctor import Doctor
from reglet.method import Method, innermost
from reglet.methods import JointEmbedding
from reglet.types import Terms

Json = dict[str, Any]


class Rounds:
    """Shows the doctor the embeddings that the loss compares, at every step.

    Each look uses only the batch of its step, and the doctor's state is kept in the checkpoint.  So a resumed run gets
    the same verdicts.  Looks come with lines of the log, where the host waits for the accelerator anyway.
    """

    def __init__(self, method: Method, action: str, *, log_every: int, known: Json | None = None) -> None:
        inner = innermost(method)
        if not isinstance(inner, JointEmbedding):
            raise ValueError(
                f"doctor={action} looks at embeddings that a loss compares, and {type(inner).__name__} has none: "
                "leave doctor= out, and run `reglet doctor` afterwards"
            )
        self.doctor = Doctor(action=action, every=math.ceil(25 / log_every) * log_every, keep=2)
        if known:
            self.doctor.restore(known)
        self.method = inner
        inner.observer = self.observe

    @torch.compiler.disable
    def observe(self, z: Sequence[Tensor], terms: Terms) -> None:
        self.doctor.observe(z, terms=terms, model=self.method)

    @property
    def stop(self) -> bool:
        return self.doctor.stop

    def news(self, step: int) -> dict[str, Any]:
        """The row of this step's look, if there was one."""
        row = self.doctor.timeline[-1] if self.doctor.timeline else {}
        if row.get("step") != step:
            return {}
        names = {"features.spread": "spread", "features.rank": "rank", "regularizer.share": "share"}
        return {f"doctor.{names.get(key, key)}": value for key, value in row.items() if key != "step"}

    def close(self) -> None:
        self.method.observer = None
