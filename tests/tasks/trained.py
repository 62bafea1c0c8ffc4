"""One run of a task, in a directory that is gone afterwards."""

import tempfile
from dataclasses import replace
from typing import Any

from reglet.tasks.config import TaskConfig
from reglet.tasks.run import WITH, WITHOUT, Outcome, of_arm, train_one
from reglet.tasks.task import AnyTask


def train(task: AnyTask, config: TaskConfig, data: Any = None, *, seed: int = 0, sim: bool = False) -> Outcome:
    """With rhoSIM where the configuration says, or without it."""
    data = task.load(config) if data is None else data
    with tempfile.TemporaryDirectory() as folder:
        own = replace(of_arm(config, WITH if sim else WITHOUT), seed=seed, out=f"{folder}/run", accelerator="cpu")
        return train_one(task, own, data, name="test")
