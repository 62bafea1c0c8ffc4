"""Equal blocks have equal heads: a transformer's twelve are computed as one, for little more than the price of one."""

from collections.abc import Sequence

from torch import Tensor

from reglet.blocks.chain import kind
from reglet.blocks.sim_head import Pair, SIMHead, distances_of
from reglet.types import Scalar

Kind = tuple[object, ...]


def losses(heads: Sequence[SIMHead], calls: Sequence[Pair | Scalar]) -> list[Scalar]:
    """Of one call of each head; some are computed already."""
    found = {i: call for i, call in enumerate(calls) if isinstance(call, Tensor)}
    pairs = {i: call for i, call in enumerate(calls) if isinstance(call, Pair)}
    groups: dict[Kind, list[int]] = {}
    for i, pair in pairs.items():
        groups.setdefault(_kind(heads[i], pair, earlier=sum(heads[i] is heads[j] for j in pairs if j < i)), []).append(
            i
        )
    for group in groups.values():
        values = distances_of([heads[i] for i in group], [pairs[i] for i in group]).unbind()
        found.update(zip(group, values, strict=True))
    return [found[i] for i in range(len(calls))]


def _kind(head: SIMHead, pair: Pair, *, earlier: int) -> Kind:
    """Equal for calls that can be computed together.  earlier: calls of this head, which a group has only once."""
    layers = tuple(kind(layer) for layer in (*head.x_layers, *head.layers))
    return earlier, head.loss, len(head.net.stem), layers, pair.x.shape, pair.y.shape, pair.y.dtype, pair.y.device
