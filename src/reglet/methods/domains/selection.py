"""DomainBed's three rules for the trial and the checkpoint to report.  Scores in, choice out.

Gulrajani and Lopez-Paz, ICLR 2021, arXiv:2007.01434, section 3.  Trials differ in hyper-parameters and have the same
test domain.  Ties go to the first trial and the first checkpoint.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from reglet import check


class Choice(NamedTuple):
    """The run that a rule chose, and the score it was chosen by.

    >>> oracle(torch.tensor([[0.5, 0.75], [0.5, 0.25]]))
    Choice(trial=0, checkpoint=1, score=0.75)
    """

    trial: int
    checkpoint: int
    score: float  # by which it was chosen; it is never reported


def training_domain(validation: Float[Tensor, "trials checkpoints domains"]) -> Choice:
    """The highest accuracy on the validation parts of the training domains, averaged over them.

    >>> training_domain(torch.tensor([[[0.5, 0.75], [1.0, 0.5]], [[0.5, 0.5], [0.0, 0.25]]]))
    Choice(trial=0, checkpoint=1, score=0.75)
    """
    return _best(validation)


def leave_one_domain_out(held_out: Float[Tensor, "trials checkpoints domains"]) -> Choice:
    """The highest accuracy on each training domain d, by a run that was trained without it, averaged over d.

    held_out[t, s, d]: the accuracy on domain d of the run of trial t that left out d and the test domain
    (`leave_out(domain, d, test)`).  The reported run is that of the chosen trial which left out only the test domain.

    >>> leave_one_domain_out(torch.tensor([[[0.5, 0.6]], [[0.7, 0.6]]])).trial
    1
    """
    return _best(held_out)


def oracle(test: Float[Tensor, "trials checkpoints"]) -> Choice:
    """The highest accuracy on the test domain's validation part at the last checkpoint; there is no early stopping.

    The rule is not fair: it looks at the domain that is reported.

    >>> oracle(torch.tensor([[0.9, 0.7], [0.6, 0.8]])).trial  # by the last checkpoint
    1
    """
    check.tensor("test", test, None, None)
    last = test.shape[1] - 1
    found = _best(test[:, last:, None])
    return found._replace(checkpoint=last)


def _best(scores: Float[Tensor, "trials checkpoints domains"]) -> Choice:
    check.tensor("scores", scores, None, None, None)
    if not bool(torch.isfinite(scores).all()):
        raise ValueError(f"expected a finite score for every trial, checkpoint and domain, got {tuple(scores.shape)}")
    mean = scores.double().mean(2)
    trial, checkpoint = divmod(int(mean.argmax()), mean.shape[1])
    return Choice(trial, checkpoint, float(mean[trial, checkpoint]))
