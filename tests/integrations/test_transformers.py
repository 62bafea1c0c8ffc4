"""Callbacks of transformers' Trainer, with the real one."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.integrations.small import X, Y, same
from torch import Tensor, nn
from torch.utils.data import Dataset

import reglet
from reglet.doctor import Doctor, DoctorWarning

pytestmark = pytest.mark.filterwarnings("default")  # of transformers and accelerate about themselves
BLOCKS, WEIGHT = "vit.layers.*", 0.5


@pytest.fixture(scope="module")
def hf(torchvision: ModuleType) -> ModuleType:
    pytest.importorskip("accelerate")
    return pytest.importorskip("transformers")


class Digits(Dataset[dict[str, Tensor]]):
    """Notes the order in which it is read, so that a loop by hand can follow."""

    def __init__(self, n: int = 80) -> None:
        self.n, self.order = n, list[int]()

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        self.order.append(i)
        return {"pixel_values": X[i], "labels": Y[i]}


def vit(hf: ModuleType) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = hf.ViTConfig(image_size=8, patch_size=2, num_channels=1, num_labels=10, **sizes)
    return hf.ViTForImageClassification(config)


def arguments(hf: ModuleType, out: Path, **given: Any) -> Any:
    said = {
        "output_dir": str(out), "per_device_train_batch_size": 8, "num_train_epochs": 1, "learning_rate": 1e-2,
        "use_cpu": True, "report_to": [], "save_strategy": "no", "disable_tqdm": True, "dataloader_pin_memory": False,
        "max_grad_norm": 0.0, "lr_scheduler_type": "constant",
    }  # fmt: skip
    return hf.TrainingArguments(**said | given)


def sim() -> reglet.SIM:
    return reglet.SIM(rho=0.5, dim=8, skip_tokens=1)


def attached(**given: Any) -> Any:
    from reglet.integrations.transformers import AttachLoss

    said = {"weight": WEIGHT, "example": {"pixel_values": X[:2]}} | given
    return AttachLoss(said.pop("where", BLOCKS), sim(), **said)


def attached_to(model: Any) -> Any:
    return reglet.attach(model, BLOCKS, sim(), example={"pixel_values": X[:2]})


def by_hand(model: Any, order: list[int], *, parts: int = 1, bf16: bool = False) -> Any:
    """Batches of 8 x parts; of the last one what is left.  All samples of a batch count alike."""
    penalty = attached_to(model)
    model.train()
    every = [*model.parameters(), *penalty.parameters()]
    optimizer = torch.optim.AdamW(every, lr=1e-2, weight_decay=0.0)
    micro = [order[i : i + 8] for i in range(0, len(order), 8)]
    for window in (micro[i : i + parts] for i in range(0, len(micro), parts)):
        count = sum(map(len, window))
        for rows in window:
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                logits = model(pixel_values=X[rows]).logits
            task = nn.functional.cross_entropy(logits.float(), Y[rows], reduction="sum") / count
            (task + WEIGHT * (len(rows) / count) * penalty.loss()).backward()
        optimizer.step()
        optimizer.zero_grad()
    penalty.remove()
    return penalty


@pytest.mark.parametrize(
    ("parts", "n", "bf16"), [(1, 80, False), (2, 80, False), (4, 80, False), (2, 76, False), (2, 80, True)]
)
def test_it_is_the_loop_by_hand(hf: ModuleType, tmp_path: Path, parts: int, n: int, bf16: bool) -> None:
    """Also where the last batch has fewer parts (4 x 8 of 80), a part fewer samples (76), and in bfloat16.

    Parts are summed in another order than by hand: to 1e-5 of the largest weight.
    """
    model, data, callback = vit(hf), Digits(n), attached()
    given = {"gradient_accumulation_steps": parts, "bf16": bf16, "optim": "adamw_torch"}
    hf.Trainer(model, arguments(hf, tmp_path, **given), train_dataset=data, callbacks=[callback]).train()
    assert len(data.order) == n
    other = vit(hf)
    penalty = by_hand(other, data.order, parts=parts, bf16=bf16)
    assert list(model.state_dict()) == list(other.state_dict())
    for (name, a), b in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}")
    for a, b in zip(callback.penalty.parameters(), penalty.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    start, heads = dict(vit(hf).named_parameters()), attached_to(vit(hf)).parameters()
    assert max((p - start[name]).abs().max() for name, p in model.named_parameters()) > 0.01
    assert max((p - q).abs().max() for p, q in zip(callback.penalty.parameters(), heads, strict=True)) > 0.01


class Words(Digits):
    """The pixels of a digit as words, some of which do not count."""

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        words = (16 * X[i]).long().flatten()[8:24]
        return {"input_ids": words, "labels": torch.where(words == 0, -100, words)}


def gpt(hf: ModuleType) -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 17, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    config = hf.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0)
    return hf.GPT2LMHeadModel(config)


def test_a_killed_run_goes_on_with_its_heads(hf: ModuleType, tmp_path: Path) -> None:
    """Killed after 5 of 10 steps and resumed: the bits of a run that was not.  A language model, with dropout.

    (transformers 5.22 does not resume its own ViT: it renames weights when it saves.)
    """

    def train(model: Any, resume: str | None = None) -> Any:
        callback = attached(where="transformer.h.*", example={"input_ids": torch.zeros(2, 16, dtype=torch.int64)})
        said = arguments(hf, tmp_path, save_strategy="steps", save_steps=5)
        hf.Trainer(model, said, train_dataset=Words(), callbacks=[callback]).train(resume_from_checkpoint=resume)
        return callback.penalty

    whole, model = gpt(hf), gpt(hf)
    heads = train(whole)
    assert set(load_file(tmp_path / "reglet.safetensors")) == set(heads.state_dict())
    half = tmp_path / "checkpoint-5"
    numbers = [key for key in load_file(half / "model.safetensors") if key.startswith("reglet.")]
    assert sorted(numbers) == sorted(f"reglet.{i}" for i in range(len(heads.state_dict())))
    resumed = train(model, str(half))
    same(model, whole)
    same(resumed, heads)


def test_at_the_end_the_model_is_as_it_was(hf: ModuleType, tmp_path: Path) -> None:
    model = vit(hf)
    hf.Trainer(model, arguments(hf, tmp_path), train_dataset=Digits(16), callbacks=[attached()]).train()
    assert not any(name.startswith("reglet") for name, _ in model.named_modules())
    assert not model._forward_hooks
    assert list(model.state_dict()) == list(vit(hf).state_dict())
    model.save_pretrained(tmp_path / "clean")
    same(hf.ViTForImageClassification.from_pretrained(tmp_path / "clean"), model)


def test_a_share_of_the_gradient(hf: ModuleType, tmp_path: Path) -> None:
    callback = attached(weight="share:0.25")
    given = {"max_steps": 3, "gradient_accumulation_steps": 2}
    hf.Trainer(vit(hf), arguments(hf, tmp_path, **given), train_dataset=Digits(), callbacks=[callback]).train()
    assert callback.penalty.weight.now_weight > 0
    assert "weight.now_weight" in load_file(tmp_path / "reglet.safetensors")


def test_evaluation_knows_nothing_of_it(hf: ModuleType, tmp_path: Path) -> None:
    model = vit(hf)
    trainer = hf.Trainer(model, arguments(hf, tmp_path), eval_dataset=Digits(16), callbacks=[attached()])
    plain = hf.Trainer(vit(hf), arguments(hf, tmp_path), eval_dataset=Digits(16))
    assert trainer.evaluate()["eval_loss"] == plain.evaluate()["eval_loss"]


def test_items_of_a_language_model() -> None:
    from reglet.integrations.transformers import portion

    class Causal(nn.Module):
        loss_type = "ForCausalLM"

    labels = torch.tensor([[5, 6, -100, 7], [5, 6, 7, 8]])
    assert portion(Causal(), {"labels": labels, "num_items_in_batch": 10}) == 0.5  # without the first of each
    assert portion(nn.Identity(), {"labels": labels, "num_items_in_batch": 14}) == 0.5
    assert portion(nn.Identity(), {"labels": labels}) == 1.0


def test_errors(hf: ModuleType, tmp_path: Path) -> None:
    def trainer(callback: Any, **given: Any) -> Any:
        return hf.Trainer(vit(hf), arguments(hf, tmp_path, **given), train_dataset=Digits(), callbacks=[callback])

    with pytest.raises(LookupError, match=r"no module matches 'blocks\.\*'.* This model has: vit, vit.embeddings"):
        trainer(attached(where="blocks.*"))
    with pytest.raises(ValueError, match="with label_smoothing_factor the Trainer computes a loss of its own"):
        trainer(attached(), label_smoothing_factor=0.1)
    with pytest.raises(ValueError, match="the model has a part 'vit' already"):
        trainer(attached(name="vit"))
    late = hf.Trainer(vit(hf), arguments(hf, tmp_path), train_dataset=Digits())
    late.add_callback(attached())
    with pytest.raises(RuntimeError, match=re.escape("must be given to Trainer(callbacks=[...])")):
        late.train()
    own = hf.Trainer(
        vit(hf), arguments(hf, tmp_path), train_dataset=Digits(), callbacks=[attached()],
        compute_loss_func=lambda outputs, labels, num_items_in_batch: outputs.logits.mean(),
    )  # fmt: skip
    with pytest.raises(ValueError, match="gave no loss, to which the one on its blocks could be added"):
        own.train()


@pytest.mark.parametrize("sick", [True, False])
def test_the_doctor(hf: ModuleType, tmp_path: Path, sick: bool) -> None:
    from reglet.integrations.transformers import WatchWithDoctor

    model, patches = vit(hf), "vit.embeddings.patch_embeddings"
    if sick:  # all images look alike
        model.get_submodule(patches).register_forward_hook(lambda _, __, out: 0 * out + 1 + 1e-5 * out)
    doctor = Doctor(every=4, grace=0, keep=64, action="stop", classes=10)
    callback = WatchWithDoctor(embeddings=patches, read=lambda tokens: tokens.flatten(1), doctor=doctor)
    said = arguments(hf, tmp_path, per_device_train_batch_size=32, max_steps=20, logging_steps=4)
    trainer = hf.Trainer(model, said, train_dataset=Digits(160), callbacks=[callback])
    if sick:
        with pytest.warns(DoctorWarning, match="complete collapse"):
            trainer.train()
    else:
        trainer.train()
    assert (trainer.state.global_step < 20) == sick
    assert doctor.timeline[-1]["verdict"] == ("complete collapse" if sick else "healthy")
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_the_doctor_takes_vectors(hf: ModuleType, tmp_path: Path) -> None:
    from reglet.integrations.transformers import WatchWithDoctor

    wrong = WatchWithDoctor(embeddings="vit.layernorm", doctor=Doctor())
    trainer = hf.Trainer(vit(hf), arguments(hf, tmp_path), train_dataset=Digits(), callbacks=[wrong])
    with pytest.raises(ValueError, match=r"'vit.layernorm' gives \(8, 17, 16\), and the doctor takes one vector"):
        trainer.train()
