"""Every regularizer of one place works on tokens, on pooled maps and on the class token.

By their names: tests/engine/test_attach_by_name.py.
"""

import pytest
import torch

import reglet
from reglet.attach import Layout
from reglet.backbones.vit import ViT
from reglet.engine.attachments import ONE_PLACE


@pytest.mark.parametrize("on", ["tokens", "pooled", "class"])
@pytest.mark.parametrize("name", ONE_PLACE)
def test_attaches_to_blocks(name: str, on: str) -> None:
    torch.manual_seed(0)
    model = ViT(dim=24, depth=2, heads=2, size=16, patch=4)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    attached = reglet.attach(model, "blocks.*", ONE_PLACE[name](), on=on, layout=Layout(skip_tokens=1))
    model.train()
    model(torch.randn(6, 3, 16, 16))
    attached.loss().backward()
    grad = model.blocks[0].mlp.fc1.weight.grad
    assert grad is not None
    assert torch.isfinite(grad).all()
    assert grad.abs().sum() > 0
    attached.remove()
    assert model.state_dict().keys() == before.keys()
