"""What is kept between calls serves real tensors that need a gradient, whatever asked for it first."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from reglet.attach.sampling import Sampler
from reglet.attach.tokens import windows
from reglet.groups import D4, act


@pytest.mark.parametrize("sampling", ["shared", "per_sample", "salient"])
def test_a_sampler_keeps_no_fake_tensors(sampling: str) -> None:
    sampler = Sampler(0.5, sampling=sampling)  # type: ignore[arg-type]
    with FakeTensorMode():
        rows = sampler.choose(torch.randn(2, 36, 3), (6, 6), (3, 3))[1]
        assert rows.shape == (2, 5, 3)
    assert type(sampler.choose(torch.randn(2, 36, 3), (6, 6), (3, 3))[1]) is torch.Tensor
    with FakeTensorMode():
        sampler.choose(torch.randn(2, 36, 3), (6, 6), (3, 3))


def test_tables_keep_no_fake_tensors() -> None:
    with FakeTensorMode():
        windows((10,), (5,), like=torch.randn(2, 1))
    assert type(windows((10,), (5,), like=torch.zeros(1))) is torch.Tensor


def test_what_was_kept_in_inference_mode_serves_training() -> None:
    g = D4(torch.tensor([1, 3]), torch.tensor([True, False]))
    x = torch.randn(2, 1, 5, 9)
    sampler = Sampler(0.5)
    with torch.inference_mode():
        act(x, g)
        sampler.choose(torch.randn(2, 20, 3), (20,), (20,))
    y = x.clone().requires_grad_()
    act(y, g).square().sum().backward()
    tokens = torch.randn(2, 20, 3, requires_grad=True)
    sampler.choose(tokens, (20,), (20,))[1].square().sum().backward()
    assert y.grad is not None
    assert tokens.grad is not None


def test_the_default_device_does_not_matter() -> None:
    torch.set_default_device("meta")
    try:
        sampler = Sampler(0.5)
        assert sampler.choose(torch.randn(2, 36, 3, device="cpu"), (6, 6), (3, 3))[1].device.type == "cpu"
        every = D4.every()
        assert act(torch.randn(8, 1, 4, 4, device="cpu"), every).device.type == "cpu"
    finally:
        torch.set_default_device(None)
