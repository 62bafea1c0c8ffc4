"""Regularizers of features on hidden blocks: what they see, and the laws of `attach`."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import reglet
from reglet.attach import attach, watch
from reglet.attach.tokens import Layout


class Net(nn.Module):
    def __init__(self, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.blocks = nn.Sequential(nn.Linear(6, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 7)), nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.blocks, x, use_reentrant=False) if self.checkpointed else self.blocks(x)  # type: ignore[no-any-return]


def net(*, checkpointed: bool = False) -> tuple[Net, Tensor]:
    torch.manual_seed(0)
    return Net(checkpointed=checkpointed).double(), torch.randn(5, 9, 6, dtype=torch.float64)


def spread(z: Tensor) -> Tensor:
    """A regularizer that is easy to follow."""
    assert z.ndim == 2
    return z.var(0).sum()


EXPECTED = {
    "tokens": lambda y: y[:, 1:].flatten(0, 1),
    "pooled": lambda y: y[:, 1:].mean(1),
    "class": lambda y: y[:, 0],
}


@pytest.mark.parametrize("on", sorted(EXPECTED))
def test_rows(on: Any) -> None:
    model, x = net()
    model.blocks[2] = nn.Identity()  # `watch` refuses an output that is overwritten
    attachment = attach(model, "blocks.[01]", spread, on=on, layout=Layout(skip_tokens=1))
    with watch(model, "blocks.[01]").open() as seen:
        model(x)
    expected = torch.stack([spread(EXPECTED[on](seen[f"blocks.{i}"][0])) for i in range(2)]).mean()
    torch.testing.assert_close(attachment.loss(), expected)


def test_sampled_tokens_of_maps_change_with_the_step() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(3, 4, 1)), torch.randn(2, 3, 6, 6)
    sizes: list[int] = []

    def count(z: Tensor) -> Tensor:
        sizes.append(len(z))
        return spread(z)

    attachment = attach(model, "0", count, on="tokens", rho=0.25)
    values = []
    for _ in range(3):
        model(x)
        values.append(attachment.loss().item())
    assert sizes == [18, 18, 18]
    assert len(set(values)) == 3


@pytest.mark.parametrize("loss", [reglet.VISReg, reglet.SIGReg, reglet.SWD])
@pytest.mark.parametrize("on", ["tokens", "pooled", "class"])
def test_laws(loss: Any, on: Any) -> None:
    found = []
    for checkpointed in (False, True):
        model, x = net(checkpointed=checkpointed)
        state = deepcopy(model.state_dict())
        bare = model(x)
        attachment = attach(model, "blocks.[01]", loss(slices=16), on=on, rho=0.5 if on == "tokens" else 1.0)
        assert torch.equal(model(x), bare)
        assert list(model.state_dict()) == list(state)
        value = attachment.loss()
        (bare.sum() + value).backward()
        found.append([p.grad for p in model.parameters()])
        deepcopy(model)(x)
        with pytest.raises(RuntimeError, match="no block ran"):
            attachment.loss()
        model.eval()(x)
        assert attachment.loss() == 0
        assert list(attachment.parameters()) == []
        attachment.remove()
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def test_hooks_see_the_gradient() -> None:
    model, x = net()
    x.requires_grad_()
    model.blocks[1].register_forward_hook(lambda _m, _a, y: y.register_hook(lambda g: 0 * g) and None, prepend=True)
    attachment = attach(model, "blocks.1", spread, on="tokens", rho=0.5)
    model(x)
    attachment.loss().backward()
    assert x.grad is not None
    assert x.grad.abs().max() == 0


def test_what_does_not_go_together() -> None:
    model, _ = net()
    with pytest.raises(Exception, match="on"):
        attach(model, "blocks.0", spread, on="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="SIGReg regularizes features of one place: say on='tokens'"):
        attach(model, "blocks.0", reglet.SIGReg())
    with pytest.raises(ValueError, match=r"rho= and layout= go with on="):
        attach(model, "blocks.0", reglet.SIM(), rho=0.5)
    attach(nn.Sequential(conv := nn.Conv2d(3, 4, 1)), "0", spread, on="class")
    with pytest.raises(ValueError, match="block '0': on='class' takes the first token"):
        conv(torch.randn(2, 3, 4, 4))
