"""What a task is to the loop, to the runner and to the command: a method, a feed and a score."""

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from reglet.engine.feed import Feed
from reglet.engine.monitor import Monitor
from reglet.method import Method
from reglet.tasks.config import TaskConfig

C = TypeVar("C", bound=TaskConfig, contravariant=True)
D = TypeVar("D")


@dataclass(frozen=True)
class Setup:
    """One network that is to be trained.

    watch: its scores.
    inside: the part of the method that blocks are named in.
    sim_blocks: where rhoSIM goes with sim=auto.
    channel_dim: of what the blocks pass on, where rhoSIM cannot know: (n, c, t) looks like (n, tokens, c).
    trains: False where the untrained network is what is asked for.
    """

    method: Method
    feed: Feed
    watch: list[Monitor]
    inside: str = "backbone"
    sim_blocks: list[str] = field(default_factory=list)
    channel_dim: int | None = None
    trains: bool = True


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

    def setup(self, config: C, data: D) -> Setup:
        """The parts of one run.  First weights and batches are those of config.seed, whatever is put beside them."""
        ...


@runtime_checkable
class RunsItself(Protocol):
    """A task whose runs are not seeds with rhoSIM and without: domains, each left out in turn."""

    def run(self, config: Any) -> dict[str, Any]: ...


AnyTask = Task[Any, Any]
