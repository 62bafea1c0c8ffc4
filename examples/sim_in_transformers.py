"""SIM on the layers of a transformers model by a callback of its Trainer, with the doctor.

    pip install 'reglet[transformers,accelerate,data]'
    python examples/sim_in_transformers.py          about ten seconds

A small ViT learns digits.  At the end the model is as if nobody had been there, and the heads are in a file beside it.
"""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import reglet
from reglet.integrations.transformers import AttachLoss, WatchWithDoctor


class Digits(Dataset[dict[str, Tensor]]):
    def __init__(self, part: slice) -> None:
        digits = load_digits()
        self.x = torch.tensor(digits.images[part, None], dtype=torch.float32) / 16
        self.y = torch.tensor(digits.target[part])

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        return {"pixel_values": self.x[i], "labels": self.y[i]}


parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("runs/sim_in_transformers"))
parser.add_argument("--quick", action="store_true")
given = parser.parse_args()

torch.manual_seed(0)
sizes = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96}
model = ViTForImageClassification(ViTConfig(image_size=8, patch_size=2, num_channels=1, num_labels=10, **sizes))
train, test = Digits(slice(1200)), Digits(slice(1200, None))
sim = AttachLoss("vit.layers.*", reglet.SIM(skip_tokens=1), weight="share:0.2", example={"pixel_values": train.x[:2]})
doctor = WatchWithDoctor(
    embeddings="vit.layernorm",
    read=lambda tokens: tokens[:, 0],  # the class token
    doctor=reglet.Doctor(every=10, grace=40, classes=10),
)
arguments = TrainingArguments(
    output_dir=str(given.out), max_steps=30 if given.quick else 150, per_device_train_batch_size=32,
    gradient_accumulation_steps=2, learning_rate=3e-3, warmup_steps=5, logging_steps=20, use_cpu=True, report_to=[],
    save_strategy="no", disable_tqdm=True, dataloader_pin_memory=False, label_names=["labels"],
)  # fmt: skip
trainer = Trainer(model, arguments, train_dataset=train, eval_dataset=test, callbacks=[sim, doctor])
trainer.train()
found = trainer.predict(test)
accuracy = (found.predictions.argmax(1) == found.label_ids).mean()
print(f"accuracy on {len(test)} other digits: {accuracy:.1%}")
print("the doctor:", [f"{row['step']}: {row['verdict']}" for row in doctor.doctor.timeline])
print("heads of", sim.penalty.attachment.blocks, "in", (given.out / "reglet.safetensors").name)
