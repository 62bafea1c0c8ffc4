"""Clips of sound and their classes: `reglet train task=audio`."""

from reglet.tasks.audio.task import AudioTask

TASK = AudioTask()
