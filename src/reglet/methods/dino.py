"""DINO.  Caron et al., ICCV 2021, arXiv:2104.14294.

    P_g = softmax((t_g - c) / tau_t)                t: the teacher's head on global views, without gradient
    L   = mean over (g, v != g) of mean_i CE(P_g, softmax(s_v / tau_s))
    c  <- 0.9 c + 0.1 mean over samples, global views and ranks of t           after the loss

The gains of the weight-normed last layer stay 1, the authors' default (`norm_last_layer`).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from reglet.backbones.protocol import dim_of
from reglet.dist import sum_over_ranks
from reglet.method import Batch, Method
from reglet.methods.crops import by_size, ordered_pairs
from reglet.methods.heads import DINOHead
from reglet.methods.momentum import Teacher, half_cosine
from reglet.precision import at_least_float32, no_autocast
from reglet.types import Scalar, Terms


def distillation(
    s: Float[Tensor, "n k"],
    t: Float[Tensor, "n k"],
    center: Float[Tensor, " k"],
    *,
    student_temperature: float = 0.1,
    teacher_temperature: float | Float[Tensor, ""] = 0.04,
) -> Scalar:
    """mean_i CE(softmax((t - c) / tau_t), softmax(s / tau_s))."""
    target = F.softmax((t - center) / teacher_temperature, dim=1)
    return -(target * F.log_softmax(s / student_temperature, dim=1)).sum(1).mean()


class DINO(Method):
    """The student sees all views and learns the prototypes that its teacher assigns to the global ones.

    head: by default 2048-2048-256 and `out_dim` prototypes.
    out_dim: the authors have 65536 for ImageNet; small data need far fewer.
    temperature: the teacher's, at the start and after its warm-up.
    warmup: the share of the run in which that temperature rises; SER takes 10 epochs of 100.
    freeze_last: the share of the run in which the prototypes do not move; one epoch of 100.
    momentum: of the teacher at the start; it rises to 1 in a half cosine.  SER has 0.982 for batches of 2048.

    All ranks hold the same number of samples.  The authors also clip every parameter's gradient at 0.3, and let weight
    decay rise from 0.04 to 0.4.  That is not part of this method.

    >>> from reglet.backbones import ConvNet
    >>> method = DINO(ConvNet(widths=(8, 16), depth=1), out_dim=32)
    >>> list(method(Batch(torch.rand(2, 8, 3, 16, 16).unbind(), n_global=2)))
    ['distillation']
    """

    center: Tensor
    teacher_temperature: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        *,
        head: DINOHead | None = None,
        out_dim: int = 65536,
        student_temperature: float = 0.1,
        temperature: tuple[float, float] = (0.04, 0.07),
        warmup: float = 0.1,
        freeze_last: float = 0.01,
        momentum: float = 0.996,
        center_momentum: float = 0.9,
    ) -> None:
        super().__init__()
        if min(student_temperature, *temperature) <= 0:
            raise ValueError(f"temperatures must be positive, got {student_temperature} and {temperature}")
        self.backbone = backbone
        self.head = DINOHead(dim_of(backbone), out_dim=out_dim) if head is None else head
        self.student_temperature, self.temperature = student_temperature, temperature
        self.warmup, self.freeze_last = warmup, freeze_last
        self.momentum, self.center_momentum = momentum, center_momentum
        self.teacher = Teacher(self._student())
        self.register_buffer("center", torch.zeros(len(self.head.last.weight)))
        self.register_buffer("teacher_temperature", torch.tensor(temperature[0]))
        self._seen: list[Tensor] = []  # the teacher's outputs since the last step, summed per forward
        self._schedule(0.0)

    def forward(self, batch: Batch) -> Terms:
        pairs = ordered_pairs(batch)
        student = by_size(lambda x: self.head(self.backbone(x)), batch.views)
        teacher = by_size(self.teacher, batch.views[: batch.n_global])
        with no_autocast(student[0]):
            s, t = [at_least_float32(y) for y in student], [at_least_float32(y) for y in teacher]
            losses = [
                distillation(
                    s[v],
                    t[g],
                    self.center,
                    student_temperature=self.student_temperature,
                    teacher_temperature=self.teacher_temperature,
                )
                for v, g in pairs
            ]
            if self.training and torch.is_grad_enabled():
                every = torch.cat(t)
                self._seen.append(torch.cat([every.sum(0), every.new_full((1,), len(every))]))
            return {"distillation": torch.stack(losses).mean()}

    def after_step(self, step: int, steps: int) -> None:
        self.teacher.follow(self._student(), momentum=half_cosine(step / steps, start=self.momentum, end=1.0))
        self._center()
        self._schedule(step / steps)

    @torch.no_grad()
    def _center(self) -> None:
        if not self._seen:
            return
        seen = sum_over_ranks(torch.stack(self._seen).sum(0))
        self._seen.clear()
        self.center.lerp_((seen[:-1] / seen[-1]).to(self.center.dtype), 1 - self.center_momentum)

    def _schedule(self, done: float) -> None:
        """Sets the teacher's temperature, and whether prototypes may move.  done: share of the run that is done."""
        start, end = self.temperature
        risen = min(1.0, done / self.warmup) if self.warmup else 1.0
        self.teacher_temperature.fill_(start + (end - start) * risen)
        self.head.last.opened.fill_(float(done >= self.freeze_last))

    def _student(self) -> nn.Sequential:
        return nn.Sequential(self.backbone, self.head)
