"""Digits, and a small network for them, in every frame the same."""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import reglet

_digits = load_digits()
X = torch.tensor(_digits.images[:320, None], dtype=torch.float32) / 16
Y = torch.tensor(_digits.target[:320])


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x).relu()


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.Sequential(Block(8), Block(8)), nn.Flatten(), nn.Linear(512, 10)
    )


BLOCKS, WEIGHT = "1.*", 0.5


def sim() -> reglet.SIM:
    return reglet.SIM(rho=0.3, dim=8)


def loader(batch: int = 16, n: int = 160) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(X[:n], Y[:n]), batch_size=batch)


def by_hand(
    *,
    parts: int = 1,
    batch: int = 16,
    n: int = 160,
    lr: float = 0.05,
    weight: float = WEIGHT,
    order: Tensor | None = None,
) -> tuple[nn.Module, reglet.attach]:  # type: ignore[valid-type]
    """The loop that every frame must equal: `parts` of a batch are averaged."""
    net = network()
    penalty = reglet.attach(net, BLOCKS, sim(), example=X[:2])
    optimizer = torch.optim.SGD([*net.parameters(), *penalty.parameters()], lr=lr, momentum=0.9)
    order = torch.arange(n) if order is None else order
    batches = [(X[index], Y[index]) for index in order.split(batch)]
    for i, (x, y) in enumerate(batches):
        loss = nn.functional.cross_entropy(net(x), y) + weight * penalty.loss()
        (loss / parts).backward()
        if (i + 1) % parts == 0:
            optimizer.step()
            optimizer.zero_grad()
    return net, penalty


def same(a: nn.Module, b: nn.Module) -> None:
    """To the bit."""
    left, right = a.state_dict(), b.state_dict()
    assert list(left) == list(right)
    for name in left:
        assert torch.equal(left[name], right[name]), name
