"""Which samples of a task a step sees, and what tells its data from others."""

import hashlib
from collections.abc import Iterable

from torch import Tensor

from reglet.engine.order import Shuffled
from reglet.tasks.config import TaskConfig


def shuffled(n: int, config: TaskConfig) -> Shuffled:
    """Batches of config.batch; a set that is smaller is one batch."""
    return Shuffled(n=n, batch=min(n, config.batch), seed=config.seed)


def digest(*tensors: Tensor | Iterable[Tensor]) -> str:
    """Changes when one of the tensors does."""
    state = hashlib.sha256()
    for given in tensors:
        for x in [given] if isinstance(given, Tensor) else given:
            state.update(f"{x.dtype} {tuple(x.shape)}".encode())
            state.update(x.contiguous().numpy().tobytes())
    return state.hexdigest()[:16]
