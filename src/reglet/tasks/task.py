"""What a task is, to the command and to the recipes."""

from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from torch import nn

from reglet.tasks.config import TaskConfig

C = TypeVar("C", bound=TaskConfig, contravariant=True)
D = TypeVar("D")


class Outcome(NamedTuple):
    """blocks: what SIM was attached to, if it was."""

    scores: dict[str, float]
    network: nn.Module
    blocks: tuple[str, ...] = ()


@runtime_checkable
class Task(Protocol[C, D]):
    @property
    def config(self) -> type[TaskConfig]:
        """Its defaults are the task's."""
        ...

    @property
    def main(self) -> str:
        """The score that is shown while runs are made; higher is better."""
        ...

    def load(self, config: C) -> D:
        """Read the data and check them."""
        ...

    def train(self, config: C, data: D, *, seed: int, sim: bool) -> Outcome:
        """One network.  Its first weights and its batches are those of the seed, with SIM or without."""
        ...
