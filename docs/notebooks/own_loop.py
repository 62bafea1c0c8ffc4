# ---
# jupyter:
#   kernelspec: {name: python3, display_name: Python 3}
# ---
# %% [markdown]
# # SIM and VISReg in a loop of your own
#
# You have a training loop. This notebook adds two things to it: a loss on embeddings, and a penalty on hidden blocks.
# Everything runs on the digits inside scikit-learn, in seconds.

# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import reglet

torch.manual_seed(0)
digits = load_digits()
small = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
y = torch.tensor(digits.target)
train, test = slice(0, 1200), slice(1200, None)


def placed(digits: torch.Tensor) -> torch.Tensor:
    """8 x 8 digits, each at a random place of a 16 x 16 image."""
    images = torch.zeros(len(digits), 1, 16, 16)
    for image, digit, (top, left) in zip(images, digits, torch.randint(9, (len(digits), 2)).tolist(), strict=True):
        image[:, top : top + 8, left : left + 8] = digit
    return images


x = placed(small)
plt.imshow(x[:10].permute(1, 2, 0, 3).reshape(16, 160), cmap="gray_r")
plt.axis("off")
plt.show()


# %% [markdown]
# ## A loss on embeddings
#
# `VISRegLoss` takes the embeddings of two views. Here a view is the digit at another place, with noise.


# %%
def view(digits: torch.Tensor) -> torch.Tensor:
    images = placed(digits)
    return images + 0.1 * torch.randn_like(images)


def block(c_in: int, c_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1), nn.BatchNorm2d(c_out), nn.ReLU())


def encoder() -> nn.Sequential:
    return nn.Sequential(block(1, 32, 1), block(32, 64, 2), block(64, 128, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())


net, projector = encoder(), nn.Sequential(nn.Linear(128, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 64))
criterion = reglet.VISRegLoss(slices=256)
optimizer = torch.optim.AdamW([*net.parameters(), *projector.parameters()], lr=3e-3)

history = []
for _ in range(250):
    batch = small[train][torch.randint(1200, (256,))]
    terms = criterion.terms(projector(net(view(batch))), projector(net(view(batch))))
    loss = sum(terms.values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append({name: term.item() for name, term in terms.items()})

# %% [markdown]
# `terms` gives the parts of the loss by name. Their sum is the loss.

# %%
for name in history[0]:
    plt.semilogy([row[name] for row in history], label=name)
plt.legend()
plt.xlabel("step")
plt.ylabel("term of the loss")
plt.show()

# %% [markdown]
# Are the features better than those of random weights? A kNN probe answers.

# %%
from reglet.probes import knn_probe


@torch.no_grad()
def score(net: nn.Module) -> float:
    net.eval()
    features = net(x)
    net.train()
    return knn_probe(features[train], y[train], features[test], y[test], k=10)


torch.manual_seed(0)
print(f"random weights {100 * score(encoder()):.1f} %, after 250 steps {100 * score(net):.1f} %")

# %% [markdown]
# ## A penalty on hidden blocks
#
# `attach` finds blocks by name and does not change your network. SIM asks each block to keep its input recoverable
# from its output. Its heads are trained with your parameters. `remove` takes everything away.

# %%
classifier = nn.Sequential(encoder(), nn.Linear(128, 10))
sim = reglet.attach(classifier, "0.[0-2]", reglet.SIM(), example=x[:8])
optimizer = torch.optim.AdamW([*classifier.parameters(), *sim.parameters()], lr=2e-3)

penalty = []
for _ in range(150):
    chosen = torch.randint(1200, (128,))
    loss = nn.functional.cross_entropy(classifier(placed(small[train][chosen])), y[train][chosen])
    extra = sim.loss()
    optimizer.zero_grad()
    (loss + 5e-3 * extra).backward()
    optimizer.step()
    penalty.append(extra.item())

sim.remove()
plt.plot(penalty)
plt.xlabel("step")
plt.ylabel("SIM: what cannot be reconstructed")
plt.show()

# %%
classifier.eval()
right = (classifier(x[test]).argmax(1) == y[test]).float().mean().item()
print(f"accuracy on digits that it has not seen: {100 * right:.1f} %")

# %% [markdown]
# Next: [which regularizer?](../choose.md), [Lightning, Hugging Face, FSDP](../your-own-loop.md).
