"""Few-shot classification over the cached features of any encoder: `reglet train task=few-shot`."""

from reglet.tasks.few_shot.task import FewShot

TASK = FewShot()
