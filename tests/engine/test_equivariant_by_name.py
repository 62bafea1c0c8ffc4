"""Equivariance by names: `equivariant=ser equivariant.layer=2 ...` of the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from reglet.cli import main
from reglet.engine.build import build_parts
from reglet.engine.build_equivariant import EQUIVARIANT
from reglet.engine.config import from_flat
from reglet.engine.state import State
from reglet.methods.equivariant import Equivariant
from reglet.methods.equivariant_views import AlignedViews
from reglet.methods.regularized import Regularized

TERMS = {
    "ser": ["equivariance"],
    "augself": ["augself_crop", "augself_color"],
    "equimod": ["equimod"],
    "essl": ["rotation"],
    "stl": ["stl_equivariance", "stl_transformation"],
}
VIT = ("model=vit_mini", "model.cls_layer=2")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "small.npz"
    split = np.array(["train"] * 32 + ["test"] * 8)
    np.savez(path, images=rng.integers(0, 255, (40, 16, 16, 3), dtype=np.uint8), labels=np.arange(40) % 2, split=split)
    return path


def words(data: Path, out: Path, *more: str) -> list[str]:
    fixed = ["projector=16-8", "method=vicreg", "batch=16", "accelerator=cpu", "epochs=1", "log_every=1"]
    return ["pretrain", f"data={data}", f"out={out}", *fixed, *more]


def logged(out: Path) -> list[dict]:
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "loss" in row]


@pytest.mark.parametrize("name", EQUIVARIANT)
def test_every_one_trains_logs_its_terms_and_leaves_the_encoder_alone(data: Path, tmp_path: Path, name: str) -> None:
    torch.set_num_threads(1)
    share = ["equivariant.fraction=0.25"] if name == "ser" else []
    given = [*VIT, f"equivariant={name}", "equivariant.layer=2", *share]
    assert main(words(data, tmp_path / "a", *given)) == 0
    rows = logged(tmp_path / "a")
    assert all(row[term] > 0 for row in rows for term in TERMS[name])
    kept, exported = load_file(tmp_path / "a/checkpoint.safetensors"), load_file(tmp_path / "a/encoder.safetensors")
    inside = {key.removeprefix("method.method.backbone.") for key in kept if key.startswith("method.method.backbone.")}
    assert set(exported) == inside, "nothing but the backbone"
    assert torch.equal(exported["pos_embed"], kept["method.method.backbone.pos_embed"])


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The elements of the group are drawn anew in every step, and from its number alone."""
    torch.set_num_threads(1)
    given = [*VIT, "equivariant=ser", "equivariant.fraction=0.25", "equivariant.layer=2", "save_every=1"]
    assert main(words(data, tmp_path / "a", *given)) == 0
    steps: list[int] = []

    def stopped(self: State, steps_: int) -> None:
        if steps:
            raise KeyboardInterrupt
        steps.append(1)
        real(self, steps_)

    real = State.step
    monkeypatch.setattr(State, "step", stopped)
    assert main(words(data, tmp_path / "b", *given)) == 130
    monkeypatch.setattr(State, "step", real)
    assert main(["pretrain", f"out={tmp_path / 'b'}", "resume=true"]) == 0
    whole, again = (load_file(tmp_path / name / "checkpoint.safetensors") for name in "ab")
    assert all(torch.equal(value, again[key]) for key, value in whole.items())


def test_words_reach_the_method_the_group_and_the_views(data: Path) -> None:
    given = {"equivariant": "ser", "equivariant.fraction": 0.25, "equivariant.weight": 2.0, "equivariant.layer": 1}
    given |= {"equivariant.turns": False, "equivariant.area": None, "equivariant.crop": None}
    given |= {"equivariant.grad_mode": "released", "model": "vit_mini", "method": "moco", "accumulate": 2, "batch": 16}
    parts = build_parts(from_flat({"data": str(data), **given}))
    m, policy = parts.method, parts.policy
    assert isinstance(m, Equivariant)
    assert (m.fraction, m.balance.weight, m.blocks, m.grad_mode) == (0.25, 2.0, ["blocks.0"], "released")
    assert (m.group.turns, m.group.flips, m.group.area) == (False, True, None)
    assert isinstance(policy, AlignedViews)
    assert (policy.fraction, policy.crop, policy.ranks) == (0.25, "none", 2)
    crops = policy.draw(16, torch.Generator().manual_seed(0))[0].crop[:, 2:]
    whole = [i for i, sides in enumerate(crops.tolist()) if sides == [1, 1]]
    assert whole == [6, 7, 14, 15], "the last quarter of each of the two parts"


def test_on_a_convolutional_network_and_with_sim(data: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    conv = ["model=convnet", "equivariant=ser", "equivariant.fraction=0.25", "equivariant.layer=stages.1"]
    assert main(words(data, tmp_path / "a", *conv, "equivariant.patch=4", "sim=stages.1", "sim.channel_dim=1")) == 0
    assert all(row["equivariance"] > 0 and row["sim"] > 0 for row in logged(tmp_path / "a"))
    named = {"data": str(data), "model": "convnet", "equivariant": "augself", "sim": "stages.1"}
    assert isinstance(build_parts(from_flat(named)).method, Regularized)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["equivariant.layer=2"], "equivariant= names: one of ser, augself, equimod, essl, stl"),
        (["equivariant=sir"], "equivariant is one of ser, augself, equimod, essl, stl; got 'sir'"),
        (["equivariant=ser", "equivariant.lyer=2"], "Did you mean equivariant.layer=?"),
        (["equivariant=essl", "equivariant.turns=false"], "unknown key 'equivariant.turns'"),
        (["equivariant=ser", "equivariant.area=0.5"], "equivariant.area=none leaves scale out"),
        (["equivariant=ser", "equivariant.layer=9"], "this backbone has the layers 1 to 6, got layer=9"),
        (["equivariant=ser"], "fraction=0.01 of 16 images is 0 on each of 1 ranks"),
    ],
)
def test_bad_input(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], says: str) -> None:
    assert main(words(data, tmp_path / "a", *VIT, *more)) == 2
    assert says in capsys.readouterr().err


def test_not_for_classifiers(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", f"data={data}", "model=vit_mini", "equivariant=ser", "accelerator=cpu"]) == 2
    assert "two views of each image" in capsys.readouterr().err


def test_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "equivariant"]) == 0
    assert "ser, augself, equimod, essl, stl" in capsys.readouterr().out


def test_older_runs_said_share() -> None:
    words = {"model": "vit_mini", "equivariant": "ser", "equivariant.share": 0.25}
    assert from_flat(words).of("equivariant") == {"fraction": 0.25}
