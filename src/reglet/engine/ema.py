"""A moving average of the weights: theta' = decay theta' + (1 - decay) theta, buffers as they are."""

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def moving_average(module: nn.Module, *, decay: float) -> AveragedModel:
    average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(decay))
    return average.requires_grad_(False)
