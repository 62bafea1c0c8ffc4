# ---
# jupyter:
#   kernelspec: {name: python3, display_name: Python 3}
# ---
# %% [markdown]
# # Pretrain and look
#
# This notebook pretrains an encoder on images without labels. Then it looks at what the encoder has learned, by probes
# and a map of its features. The images are the digits inside scikit-learn. For your own, write `"photos/"` in place of
# `"digits"`.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import reglet

folder = Path(tempfile.mkdtemp()) / "run"
run = reglet.pretrain(
    "digits",
    model="convnet_deep",
    method="visreg",
    views="digits-strong",
    epochs=8,
    batch=64,
    lr=3e-3,
    projector="512-512-32",
    options={"loss.lam": 0.6, "loss.slices": 256},
    out=folder,
    shown=False,
)
print(sorted(p.name for p in folder.iterdir()))

# %% [markdown]
# The run wrote its configuration, its numbers, a checkpoint, and an encoder with a card. Here is the loss over time.

# %%
import json

rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
steps = [row["step"] for row in rows if "loss" in row]
for name in ("loss", "scale", "shape", "center", "invariance"):
    plt.semilogy(steps, [row[name] for row in rows if "loss" in row], label=name)
plt.legend()
plt.xlabel("step")
plt.show()

# %% [markdown]
# ## How good are the features?
#
# `evaluate_run` does what `reglet eval` does: it computes the features once, then trains probes on them.

# %%
from reglet.evaluate import evaluate_run

found = evaluate_run(folder)
for name, numbers in found.probes.items():
    low, high = numbers["interval"]
    print(f"{name:7} {100 * numbers['accuracy']:.1f} %   ({100 * low:.1f} to {100 * high:.1f})")
print(f"RankMe {found.representation['rankme']:.1f}")

# %% [markdown]
# ## A map of the features
#
# Every point is a test image. Colours are labels, which the encoder has never seen.

# %%
from reglet.data import load_pair
from reglet.diagnostics import tsne
from reglet.evaluate.extract import extract
from reglet.export import load_encoder

encoder, preprocess, card = load_encoder(folder)
_, test = load_pair("digits", size=32)
features = extract(encoder, test, preprocess)
places = tsne(features, seed=0)
plt.figure(figsize=(5, 5))
plt.scatter(*torch.as_tensor(places).T, c=test.labels, cmap="tab10", s=8)
plt.axis("off")
plt.show()

# %% [markdown]
# ## Take it elsewhere
#
# The card has the code that loads the encoder without reglet. Before the card was written, this code was run and its
# features were compared with the encoder's.

# %%
print(card["load"][:400])

# %% [markdown]
# `reglet report` shows all of this and more as one page to open or to mail. Next: [is it any good?](../evaluate.md).
