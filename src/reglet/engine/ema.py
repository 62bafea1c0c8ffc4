"""A moving average of the weights: theta' = decay theta' + (1 - decay) theta, buffers as they are."""

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn


def moving_average(module: nn.Module, *, decay: float, same_dtype: bool = True) -> AveragedModel:
    """Of `module` as it is now: float32 weights are averaged in float32, whatever `module` becomes.

    same_dtype: False where the module becomes bfloat16, in which a thousandth of a weight would be rounded away.  Then
    the weights are averaged one by one, because torch's way of doing it all at once refuses two dtypes.
    """
    if same_dtype:
        average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(decay))
    else:
        average = AveragedModel(module, avg_fn=get_ema_avg_fn(decay))
    return average.requires_grad_(False)
