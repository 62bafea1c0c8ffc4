"""How much of a regularizer a run had: its share of the gradient and its own value, at the start, halfway, at the end.

    share = |g_r| / (|g_r| + |g_t|)     g_r, g_t: gradients of the regularizing and of the task's terms,
                                        with respect to the backbone's weights, on the run's first batch

An arm whose share is a thousandth could not have shown an effect, whatever the intervals say.
"""

from copy import deepcopy

import torch

from reglet.diagnostics import gradient_norms
from reglet.engine.monitor import Scores, Trained
from reglet.method import Batch, Method, innermost
from reglet.seeded import seeded

TIMES = ("start", "middle", "end")
TASK = frozenset({"invariance", "original", "cross_entropy", "risk"})  # terms that no regularizer added


class Dose:
    """A `Watch` of one run.  `scores`: the shares and penalties seen; empty where the method has no such term."""

    def __init__(self) -> None:
        self.scores = dict[str, float]()
        self.time = ""

    def begin(self, method: Method, batch: Batch) -> "Dose":
        self.method, self.batch = method, batch
        return self

    def due(self, done: int, *, steps: int, per_epoch: int) -> bool:
        self.time = dict(zip((1, steps // 2, steps), TIMES, strict=True)).get(done, "")
        return bool(self.time)

    def score(self, model: Trained) -> Scores:
        """Of a copy, so that watching changes no statistic and no random number of the run."""
        with seeded(0), torch.enable_grad():
            method = deepcopy(self.method).train()
            terms = method(self.batch)
        task = [term for name, term in terms.items() if name in TASK]
        added = [term for name, term in terms.items() if name not in TASK]
        if task and added:
            sums = {"task": torch.stack(task).sum(), "added": torch.stack(added).sum()}
            weights = innermost(method).get_submodule("backbone").parameters()  # without a regularizer's own heads
            norms = gradient_norms(sums, [p for p in weights if p.requires_grad])
            self.scores[f"share {self.time}"] = norms["added"] / max(sum(norms.values()), 1e-30)
            self.scores[f"penalty {self.time}"] = sums["added"].item()
        return {}
