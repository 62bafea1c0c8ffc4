# ---
# jupyter:
#   kernelspec: {name: python3, display_name: Python 3}
# ---
# %% [markdown]
# # Is it collapsing?
#
# A self-supervised loss can become small in a useless way: all embeddings become equal. This notebook trains the same
# small network three times. One run has nothing against collapse.

# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import reglet
from reglet.diagnostics import eigenspectrum, feature_std, rankme

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16


def view(x: torch.Tensor) -> torch.Tensor:
    dx, dy = torch.randint(-1, 2, (2,)).tolist()
    return x.roll((dx, dy), dims=(2, 3)) + 0.1 * torch.randn_like(x)


def invariance(z0: torch.Tensor, z1: torch.Tensor) -> torch.Tensor:
    return (z0 - z1).square().mean()


def train(criterion) -> tuple[torch.Tensor, list[float], list[float]]:
    torch.manual_seed(0)
    hidden = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU())
    net = nn.Sequential(hidden, nn.Linear(256, 32))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    losses, spreads = [], []
    for _ in range(200):
        batch = x[torch.randint(len(x), (256,))]
        z0, z1 = net(view(batch)), net(view(batch))
        loss = criterion(z0, z1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        spreads.append(feature_std(z0.detach()).mean().item())
    net.eval()
    return net(x).detach(), losses, spreads


runs = {
    "invariance alone": train(invariance),
    "VISReg": train(reglet.VISRegLoss(slices=256)),
    "VICReg": train(reglet.VICRegLoss()),
}

# %% [markdown]
# By the loss alone, the first run looks best: its loss goes to zero. But so does the spread of its embeddings.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
for name, (_, losses, spreads) in runs.items():
    left.semilogy(losses, label=name)
    right.semilogy(spreads, label=name)
left.set(xlabel="step", ylabel="loss")
right.set(xlabel="step", ylabel="spread of a feature over the batch")
left.legend()
plt.tight_layout()
plt.show()

for name, (z, _, _) in runs.items():
    print(f"{name:18} spread {feature_std(z).mean():.3f}   RankMe {rankme(z):.1f} of {z.shape[1]}")

# %% [markdown]
# RankMe alone does not see this, because a cloud that shrinks keeps its shape. So look at both spread and rank. The
# spectrum of the covariance shows how many directions are used, and how much each.

# %%
for name, (z, _, _) in runs.items():
    spectrum = eigenspectrum(z)
    plt.semilogy(spectrum / spectrum[0], label=name)
plt.legend()
plt.xlabel("direction")
plt.ylabel("variance, relative to the largest")
plt.show()

# %% [markdown]
# ## Can a loss undo a collapse?
#
# Near collapse some losses send hardly any gradient, so they cannot repair it. Here we take embeddings that are nearly
# equal, and print the size of the gradient per sample.

# %%
for criterion in (reglet.VISReg(slices=256), reglet.SIGReg(slices=256), reglet.SWD(slices=256)):
    row = []
    for radius in (1e-1, 1e-2, 1e-3, 1e-4):
        torch.manual_seed(0)
        z = (radius * torch.randn(256, 32)).requires_grad_()
        criterion(z[None]).backward()
        row.append(256 * z.grad.norm(dim=1).mean().item())
    print(f"{type(criterion).__name__:8}", "  ".join(f"{value:9.2e}" for value in row))

# %% [markdown]
# On the command line, `reglet doctor runs/a` checks all of this and more. It gives a verdict and an exit code: see
# [something is wrong](../collapse.md).
