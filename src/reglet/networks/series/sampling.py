"""The two ways in which LightTS cuts a sequence into equally long parts."""

from jaxtyping import Float
from torch import Tensor


def continuous(x: Float[Tensor, "m t"], *, chunk: int) -> Float[Tensor, "m parts chunk"]:
    """Part j has neighbours: x_{jC}, ..., x_{jC + C - 1}.  For what is local.

    >>> import torch
    >>> continuous(torch.arange(6.0)[None], chunk=3)
    tensor([[[0., 1., 2.],
             [3., 4., 5.]]])
    """
    return x.unflatten(1, (_parts(x, chunk), chunk))


def interval(x: Float[Tensor, "m t"], *, chunk: int) -> Float[Tensor, "m parts chunk"]:
    """Part j has every (T/C)-th point: x_j, x_{j + T/C}, x_{j + 2T/C}, ...  For what is global.

    >>> import torch
    >>> interval(torch.arange(6.0)[None], chunk=3)
    tensor([[[0., 2., 4.],
             [1., 3., 5.]]])
    """
    return x.unflatten(1, (chunk, _parts(x, chunk))).transpose(1, 2)


def _parts(x: Tensor, chunk: int) -> int:
    if x.shape[1] % chunk:
        raise ValueError(f"a sequence of {x.shape[1]} points has no whole parts of {chunk}")
    return x.shape[1] // chunk
