"""SIM in a loop of Accelerate: the heads are saved and loaded with its states.

pip install 'reglet[accelerate,data]'
python examples/sim_in_accelerate.py          a few seconds; or: accelerate launch examples/sim_in_accelerate.py
"""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import reglet
from reglet.backbones import resnet8
from reglet.integrations import Penalty
from reglet.integrations.accelerate import save_with

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("runs/sim_in_accelerate"))
parser.add_argument("--quick", action="store_true")
given = parser.parse_args()

digits = load_digits()
x = torch.tensor(digits.images[:, None], dtype=torch.float32).repeat(1, 3, 1, 1) / 16
y = torch.tensor(digits.target)
loader = DataLoader(TensorDataset(x[:1200], y[:1200]), batch_size=32, shuffle=True, drop_last=True)

torch.manual_seed(0)
accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
model = resnet8(num_classes=10)
penalty = Penalty(model, "layer*.*", reglet.SIM(), weight=5e-3, example=x[:2])  # before prepare
optimizer = torch.optim.AdamW([*model.parameters(), *penalty.parameters()], lr=3e-3)
save_with(accelerator, penalty)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
penalty.to(accelerator.device)

for epoch in range(1 if given.quick else 2):
    for images, labels in loader:
        with accelerator.accumulate(model):
            loss = penalty(nn.functional.cross_entropy(model(images), labels))
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.print(f"epoch {epoch}  loss {float(loss.detach()):.3f}, of which SIM {float(penalty.last):.4f}")

accelerator.save_state(str(given.out))
accelerator.load_state(str(given.out))
model.eval()
with torch.no_grad():
    correct = (model(x[1200:].to(accelerator.device)).argmax(1).cpu() == y[1200:]).float().mean()
accelerator.print(f"accuracy on {len(x) - 1200} other digits: {correct:.1%}")
accelerator.print("saved:", sorted(path.name for path in given.out.glob("*.safetensors")))
