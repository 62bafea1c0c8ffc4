"""SIM on the blocks of a network in a loop of your own, with a share of the gradient and the doctor beside it.

    python examples/sim_in_torch.py          a few seconds

Printed are the two losses, the weight that keeps SIM at a fifth of the gradient, and the doctor's verdict.
"""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

import reglet
from reglet.backbones import resnet8
from reglet.integrations import Penalty

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("runs/sim_in_torch"))
parser.add_argument("--quick", action="store_true")
given = parser.parse_args()

digits = load_digits()
x = torch.tensor(digits.images[:, None], dtype=torch.float32).repeat(1, 3, 1, 1) / 16
y = torch.tensor(digits.target)

torch.manual_seed(0)
model = resnet8(num_classes=10)
penalty = Penalty(model, "layer*.*", reglet.SIM(), weight="share:0.2", example=x[:2])
optimizer = torch.optim.AdamW([*model.parameters(), *penalty.parameters()], lr=3e-3)
doctor = reglet.Doctor(every=5, grace=5, classes=10)
features: list[torch.Tensor] = []
model.fc.register_forward_pre_hook(lambda _, args: features.append(args[0]))

for step, rows in enumerate(torch.randperm(1500)[: 640 if given.quick else 1500].split(64)):
    features.clear()
    task = nn.functional.cross_entropy(model(x[rows]), y[rows])
    loss = penalty(task)
    doctor.observe(features[0], loss=loss)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    weight = float(penalty.weight.now_weight)
    print(
        f"step {step:2}  task {float(task.detach()):.3f}  SIM {float((loss - task).detach()):.4f}  weight {weight:.3g}"
    )

model.eval()
correct = (model(x[1500:]).argmax(1) == y[1500:]).float().mean()
said = "no verdict yet" if doctor.verdict is None else doctor.verdict.name
print(f"accuracy on {len(x) - 1500} other digits: {correct:.1%}; the doctor: {said}")
given.out.mkdir(parents=True, exist_ok=True)
penalty.save(given.out / "heads.safetensors")
penalty.remove()
