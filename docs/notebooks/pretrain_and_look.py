# ---
# jupyter:
#   kernelspec: {name: python3, display_name: Python 3}
# ---
# %% [markdown]
# # Pretrain and look
#
# An encoder is pretrained on images without labels. Then we look at what it has learned: a probe, a map of its
# features, the spectrum. The images are the digits inside scikit-learn; for your own, write `data="photos/"`.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from reglet.engine.config import from_flat
from reglet.train import run

folder = Path(tempfile.mkdtemp()) / "run"
settings = {"data": "digits", "model": "convnet_deep", "method": "visreg", "views": "digits-strong", "epochs": 8}
settings |= {"batch": 64, "lr": 3e-3, "projector": "512-512-32", "loss.lam": 0.6, "loss.slices": 256}
result = run(from_flat({"command": "pretrain", "out": str(folder), **settings}), shown=False)
print(sorted(p.name for p in folder.iterdir()))

# %% [markdown]
# The run has left its configuration, its numbers, a checkpoint, and an encoder with a card. Here is the loss over time.

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
# `evaluate_run` is what `reglet eval` does: features once, then probes.

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
# Every point is a test image. Colours are the labels, which the encoder has never seen.

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
# The card has the code that loads the encoder without reglet. It was run, and its features compared, before it was
# written.

# %%
print(card["load"][:400])

# %% [markdown]
# `reglet report` shows all of this and more as one page to open or to mail. Next: [is it any good?](../evaluate.md).
