"""`reglet adapt`: from weights to a table and a verdict; where they come from; what is refused; exit codes."""

import json
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import reglet.evaluate.adapted as judging
from reglet.backbones import ConvNet, Timm, vit_mini
from reglet.cli import main
from reglet.evaluate.adapted import Adapted, Row, judge_adapted, verdict_of
from reglet.export import load_encoder
from reglet.runs.by_image import ByImage, Told

SHORT = ("knn_every=0", "steps=3", "batch=16", "accelerator=cpu", "method=vicreg", "projector=16-16", "views=smi")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of two colours with labels, the same without, and the weights of two networks."""
    folder, rng = tmp_path_factory.mktemp("adapt"), np.random.default_rng(0)
    y = np.arange(120) % 2
    x = rng.integers(0, 90, (120, 16, 16, 3))
    x[np.arange(120), :, :, y] += 100
    np.savez(folder / "two.npz", images=x.astype(np.uint8), labels=y)
    np.savez(folder / "none.npz", images=x.astype(np.uint8))
    torch.manual_seed(0)
    save_file(ConvNet().state_dict(), folder / "convnet.safetensors")
    save_file(vit_mini(size=16).state_dict(), folder / "vit.safetensors")
    return folder


def adapt(here: Path, out: Path, *words: str, data: str = "two.npz", start: str = "convnet.safetensors") -> int:
    begin = [f"init_from={here / start}"] if start else []
    return main(["adapt", f"data={here / data}", *begin, *SHORT, f"out={out}", *words])


def test_it_ends_in_a_table_and_a_verdict(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert adapt(here, tmp_path / "a", "preserve=features,l2sp", "preserve.l2sp.weight=0.1") in (0, 4)
    said = capsys.readouterr().out
    for word in ("linear probe", "kNN", "few labels", "corrupted", "RankMe", "paired by image"):
        assert word in said
    numbers = json.loads((tmp_path / "a" / "adapt.json").read_text())
    assert set(numbers["rows"]) == {"linear", "knn", "few", "corrupted", "rank"}
    assert numbers["images"] == 24
    start = load_file(tmp_path / "a" / "start" / "encoder.safetensors")
    assert all(torch.equal(value, start[key]) for key, value in load_file(here / "convnet.safetensors").items())
    end = load_file(tmp_path / "a" / "encoder.safetensors")
    assert end.keys() == start.keys()
    assert any(not torch.equal(value, start[key]) for key, value in end.items())
    kept = load_file(tmp_path / "a" / "checkpoint.safetensors")
    assert torch.equal(kept["method.start.stages.0.0.weight"], start["stages.0.0.weight"])
    resolved = json.loads((tmp_path / "a" / "config.json").read_text())["resolved"]
    assert resolved["parameters"] == resolved["trained"]  # the frozen start is in neither
    assert judge_adapted(tmp_path / "a").json() == numbers


def row(told: Told) -> Row:
    return Row(ByImage(0.5, 0.5, 0.0, 0.0, 0.0, 1.0, 10), 1.0, told)


def test_verdicts_and_what_passes() -> None:
    cases = {
        ("better", "cannot be told"): ("better", True, True),
        ("worse", "cannot be told"): ("worse", False, False),
        ("worse", "better"): ("mixed", False, False),
        ("cannot be told", "none"): ("cannot be told", True, False),
        ("none",): ("no labels", True, False),
    }
    for told, (verdict, plain, strict) in cases.items():
        rows = {str(i): row(word) for i, word in enumerate(told)}  # type: ignore[arg-type]
        found = Adapted(rows, verdict_of(rows), 10, "last")
        assert (found.verdict, found.passes("not worse"), found.passes("better")) == (verdict, plain, strict)


@pytest.mark.parametrize(("ends", "require", "code"), [("worse", "", 4), ("same", "", 0), ("same", "better", 4)])
def test_exit_codes(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str, require: str, code: int
) -> None:
    """The end is made worse on purpose: its scores are all wrong.  Or it is left as good as the start."""
    real, calls = judging.scores, []

    def spoiled(*parts: object, **more: object) -> dict[str, torch.Tensor]:
        calls.append(1)
        right = real(*parts, **more)  # type: ignore[arg-type]
        worth = 0.0 if len(calls) == 2 and ends == "worse" else 1.0
        return {name: torch.full_like(value, worth) for name, value in right.items()}

    monkeypatch.setattr(judging, "scores", spoiled)
    assert adapt(here, tmp_path / "a", *([f"require={require}"] if require else [])) == code


def test_without_labels_there_is_a_rank_and_no_verdict(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert adapt(here, tmp_path / "a", data="none.npz") == 0
    assert "No verdict" in capsys.readouterr().out
    assert adapt(here, tmp_path / "b", "require=better", data="none.npz") == 2
    assert "require=better needs test images with labels" in capsys.readouterr().err
    assert not (tmp_path / "b" / "config.json").exists()


def test_lora_trains_updates_and_exports_a_plain_encoder(here: Path, tmp_path: Path, timm: ModuleType) -> None:
    pytest.importorskip("peft")
    words = ("model=vit_mini", "lora=2", "last_blocks=3", "preserve=gram", "lr=0.01", "warmup=0")
    assert adapt(here, tmp_path / "a", *words, start="vit.safetensors") in (0, 4)
    start, end = (load_file(tmp_path / "a" / part / "encoder.safetensors") for part in ("start", "."))
    assert start.keys() == end.keys() == vit_mini(size=16).state_dict().keys()
    changed = {key for key in start if not torch.equal(start[key], end[key])}
    assert changed
    assert {".".join(key.split(".")[:2]) for key in changed} <= {"blocks.3", "blocks.4", "blocks.5"}
    kept = load_file(tmp_path / "a" / "checkpoint.safetensors")
    learned = [key for key in kept if key.startswith("optimizer.") and "backbone" in key]
    assert learned
    assert all("lora_" in key for key in learned)
    # what is exported is what was trained: the update merged into the weight
    name = "blocks.5.mlp.fc1"
    a, b = (kept[f"method.method.method.backbone.{name}.lora_{x}.default.weight"] for x in "AB")
    torch.testing.assert_close(end[f"{name}.weight"], start[f"{name}.weight"] + 2 * b @ a)


def test_the_best_is_exported_too(here: Path, tmp_path: Path) -> None:
    own = [word for word in SHORT if not word.startswith(("steps", "batch"))]
    start = [f"data={here / 'two.npz'}", f"init_from={here / 'convnet.safetensors'}", f"out={tmp_path / 'a'}"]
    assert main(["adapt", *start, *own, "keep_best=rankme", "epochs=3", "batch=32"]) in (0, 4)
    assert (tmp_path / "a" / "best" / "encoder.safetensors").exists()
    assert main(["export", str(tmp_path / "a"), "which=best", f"out={tmp_path / 'e'}"]) == 0
    a, b = (load_file(folder / "encoder.safetensors") for folder in (tmp_path / "a" / "best", tmp_path / "e"))
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert adapt(here, tmp_path / "b") in (0, 4)
    assert main(["export", str(tmp_path / "b"), "which=best"]) == 2


def test_the_network_is_known_from_the_run_that_it_starts_from(here: Path, tmp_path: Path) -> None:
    words = ["pretrain", f"data={here / 'two.npz'}", *SHORT, "model=vit_mini", "model.patch=8", f"out={tmp_path / 'a'}"]
    assert main(words) == 0
    code = main(["adapt", f"data={here / 'two.npz'}", *SHORT, f"init_from={tmp_path / 'a'}", f"out={tmp_path / 'b'}"])
    assert code in (0, 4)
    encoder = load_encoder(tmp_path / "b")[0]
    assert (type(encoder).__name__, encoder.patch) == ("ViT", 8)
    lr = json.loads((tmp_path / "b" / "config.json").read_text())["lr"]
    assert lr == 1e-4  # weights that mean something bear smaller steps


def test_it_starts_from_a_folder_of_transformers(here: Path, tmp_path: Path, transformers: ModuleType) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    torch.manual_seed(0)
    config = transformers.ViTConfig(**sizes, image_size=16, patch_size=8)
    model = transformers.ViTModel(config, add_pooling_layer=False)
    model.save_pretrained(tmp_path / "vit")
    for i, words in enumerate(
        (
            [f"model=hf/{tmp_path / 'vit'}", "pretrained=true", "preserve=class,gram"],
            [f"init_from={tmp_path / 'vit'}"],
            [f"init_from=hf/{tmp_path / 'vit'}", "last_blocks=1"],
        )
    ):
        assert adapt(here, tmp_path / str(i), *words, start="") in (0, 4)
        start = load_file(tmp_path / str(i) / "start" / "encoder.safetensors")
        assert all(torch.equal(value, start[key]) for key, value in model.state_dict().items())


def test_killed_before_the_first_checkpoint_it_still_has_its_start(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reglet.engine.state import State

    torch.set_num_threads(1)
    straight = adapt(here, tmp_path / "a", "preserve=features")
    real = State.step

    def dies(self: State, steps: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(State, "step", dies)
    assert adapt(here, tmp_path / "b", "preserve=features") == 130
    monkeypatch.setattr(State, "step", real)
    assert main(["adapt", f"out={tmp_path / 'b'}", "resume=true"]) == straight
    a, b = (load_file(tmp_path / run / "checkpoint.safetensors") for run in "ab")
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["start="], "reglet adapt starts from weights: give pretrained=true"),
        (["model=resnet8"], "are of another architecture: missing: conv1.weight"),
        (["preserve=weights"], "keep must be one of features, class, gram, l2sp; got 'weights'"),
        (["preserve.weight=1"], "preserve.* are arguments of what preserve= names"),
        (["preserve=gram", "preserve.features.weight=1"], "Did you mean preserve.gram.weight=?"),
        (["preserve=gram", "preserve.weight=share:2"], "share"),
        (["pretrained=true"], "are two starts: give one of them"),
        (["last_blocks=9"], "has 4 blocks; got last_blocks=9"),
        (["keep_best=loss"], "keep_best is one of rankme, lidar, alphareq, knn"),
        (["patience=2"], "say which by keep_best="),
        (["layer_decay=2"], "layer_decay is a factor in (0, 1]"),
        (["preserve=l2sp", "strategy=fsdp"], "give a number, such as preserve.weight=0.1"),
        (["require=best"], "require is one of not worse, better"),
    ],
)
def test_bad_input_trains_nothing(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    start = "" if words == ["start="] else "convnet.safetensors"
    environment = dict(os.environ)
    assert adapt(here, tmp_path / "a", *(word for word in words if word != "start="), start=start) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "a" / "checkpoint.safetensors").exists()
    assert environment == dict(os.environ)  # no processes were launched, whose ports others would inherit


def test_a_name_that_is_not_there_says_what_to_do(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, timm: ModuleType
) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(timm.models._builder, "load_pretrained", offline)
    monkeypatch.setattr("reglet.backbones.timm.reachable", lambda: True)
    assert adapt(here, tmp_path / "a", "model=timm/test_vit", "pretrained=true", start="") == 2
    said = capsys.readouterr().err
    assert "no network" in said
    assert "init_from=FILE in place of pretrained=true" in said
    assert not (tmp_path / "a").exists()


def test_an_image_size_that_the_positions_do_not_take(timm: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"timm's test_vit takes no images of size 20: .*It was made for size=160"):
        Timm("test_vit", size=20)
