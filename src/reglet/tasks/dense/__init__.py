"""What frozen tokens say about single pixels: `reglet train task=dense`."""

from reglet.tasks.dense.task import Dense

TASK = Dense()
