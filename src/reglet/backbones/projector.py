"""The head between an encoder and its loss.  It is not needed after training."""

from collections.abc import Callable, Sequence

from torch import nn


def projector(
    dim: int, *, widths: Sequence[int] = (2048, 2048, 256), activation: Callable[[], nn.Module] = nn.ReLU
) -> nn.Sequential:
    """Linear - BN - act for every width except the last, which is Linear only.

    The default is VISReg's: ReLU for its small networks, `activation=nn.GELU` for ViT-B and ViT-L.

    >>> [type(layer).__name__ for layer in projector(128, widths=(64, 32))]
    ['Linear', 'BatchNorm1d', 'ReLU', 'Linear']
    """
    if not widths or min(dim, *widths) < 1:
        raise ValueError(f"projector needs dim and at least one width, all positive; got {dim} and {tuple(widths)}")
    *hidden, out = widths
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(dim, width), nn.BatchNorm1d(width), activation()]
        dim = width
    return nn.Sequential(*layers, nn.Linear(dim, out))
