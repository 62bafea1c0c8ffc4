"""What `reglet train task=NAME` runs: a module for each task, with its `TASK`.

Nothing below this package knows the name of a task; a new one is a module and a line here.
"""

from importlib import import_module
from typing import Any

from reglet.tasks.task import Task

TASKS = {
    "domains": "reglet.tasks.domains",
    "segmentation": "reglet.tasks.segmentation",
    "audio": "reglet.tasks.audio",
    "anomaly": "reglet.tasks.anomaly",
    "few-shot": "reglet.tasks.few_shot",
    "translation": "reglet.tasks.translation",
    "dense": "reglet.tasks.dense",
    "series-ssl": "reglet.tasks.series_ssl",
}


def named(name: str) -> Task[Any, Any]:
    """The task of this name."""
    if name not in TASKS:
        raise ValueError(f"there is no task {name!r}; there are {', '.join(TASKS)}")
    found: Task[Any, Any] = import_module(TASKS[name]).TASK
    return found
