"""Encoders of others through the commands: prepared as their own library does it, and compared image by image."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from math import comb
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from reglet.backbones import ConvNet
from reglet.cli import main
from reglet.data import load
from reglet.data.memory import InMemory
from reglet.evaluate import evaluate_run, open_source
from reglet.evaluate.compute import Compute
from reglet.evaluate.embed import embed
from reglet.evaluate.features_file import read_features
from reglet.evaluate.framed import Framed
from reglet.evaluate.judge import judge
from reglet.evaluate.preparation import Preparation, of_timm, of_transformers
from reglet.evaluate.source import Encoder
from reglet.export import export

TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
PROCESSORS = {
    "ViTImageProcessor": {"size": {"height": 32, "width": 32}},
    "CLIPImageProcessor": {"size": {"shortest_edge": 40}, "crop_size": 32},
    "BitImageProcessor": {"size": {"shortest_edge": 36}, "crop_size": 32, "resample": 2},
    "ConvNextImageProcessor": {"size": {"shortest_edge": 32}, "crop_pct": 0.8},
    "MobileViTImageProcessor": {"size": {"shortest_edge": 36}, "crop_size": 32},
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def pictures(folder: Path, *, n: int = 60, sides: tuple[int, int] = (48, 48), classes: int = 3) -> Path:
    """Classes by colour, hard enough for scores to differ; smooth, as photographs are."""
    generator = np.random.default_rng(0)
    for i in range(n):
        small = generator.integers(0, 200, (6, 8, 3)).astype(np.uint8)
        small[:, :, i % 3] = np.minimum(small[:, :, i % 3] + 25, 255)
        place = folder / "abc"[i % classes] / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(small).resize(sides[::-1], Image.Resampling.BICUBIC).save(place)
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pictures(tmp_path_factory.mktemp("photos") / "photos")


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    export(ConvNet(), tmp_path / "exported", name="convnet", size=32, in_channels=3, card={"model": {}})
    return tmp_path / "exported"


def saved(transformers: ModuleType, folder: Path, processor: str = "ViTImageProcessor") -> Path:
    torch.manual_seed(0)
    model = transformers.ViTModel(transformers.ViTConfig(**TINY, image_size=32, patch_size=8))
    model.save_pretrained(folder)
    getattr(transformers, processor)(**PROCESSORS[processor]).save_pretrained(folder)
    return folder


def prepared(encoder: Encoder, folder: Path) -> Tensor:
    images = encoder.open(str(folder))
    return encoder.prepare(images.batch(torch.arange(len(images))))


def opened(folder: Path) -> list[Image.Image]:
    return [Image.open(file).convert("RGB") for file in sorted(folder.rglob("*.png"), key=lambda f: (f.parent, f.name))]


# Pillow rounds to bytes, and so do we: a pixel may differ by 1 of 255 where torchvision resizes tensors and not files.
BYTE = 1 / 255


@pytest.mark.parametrize("sides", [(48, 48), (40, 64), (64, 40)])
@pytest.mark.parametrize("name", ["test_vit", "test_resnet"])
def test_images_are_prepared_as_timm_does(timm: ModuleType, tmp_path: Path, name: str, sides: tuple[int, int]) -> None:
    folder = pictures(tmp_path / "photos", n=6, sides=sides)
    encoder = open_source(f"timm/{name}", pretrained=False)
    config = timm.data.resolve_model_data_config(timm.create_model(name))
    own = timm.data.create_transform(**config, is_training=False)
    theirs = torch.stack([own(image) for image in opened(folder)])
    ours = prepared(encoder, folder)
    assert ours.shape == theirs.shape
    apart = (ours - theirs).abs()
    if sides[0] == sides[1]:
        assert apart.max() <= 1.01 * BYTE / 0.5
    else:  # timm rounds the longer side to whole pixels, and so stretches it by less than one of them
        assert apart.mean() < 0.05
    assert encoder.words.endswith("by timm's configuration")


def test_squashing_is_followed_too() -> None:
    config = {"input_size": (3, 64, 64), "crop_pct": 1.0, "interpolation": "bicubic", "crop_mode": "squash"}
    found = of_timm({**config, "mean": (0.5,) * 3, "std": (0.5,) * 3})
    assert (found.frame, found.size, found.resize) == ("whole", 64, 64)
    config |= {"mean": (0.0,) * 3, "std": (1.0,) * 3}
    with pytest.raises(ValueError, match=r"has crop_mode=border, .*package\.module:name, that returns \(network, pre"):
        of_timm({**config, "crop_mode": "border"})
    with pytest.raises(ValueError, match=r"takes images of 64 x 32, and images are squares here; .*:name"):
        of_timm({**config, "input_size": (3, 64, 32)})


def test_lanczos_is_followed(timm: ModuleType, tmp_path: Path) -> None:
    """From files by Pillow, from memory by our own matrices: the one as timm does it, the other as the one."""
    folder, sharp = tmp_path / "photos" / "a", np.random.default_rng(0)
    folder.mkdir(parents=True)
    for i in range(6):
        pixels = sharp.integers(64, 192, (48, 48, 3)).astype(np.uint8)  # no filter leaves 0 to 255
        Image.fromarray(pixels).save(folder / f"{i}.png")
    config = {"input_size": (3, 24, 24), "crop_pct": 0.75, "interpolation": "lanczos", "crop_mode": "center"}
    config |= {"mean": (0.5,) * 3, "std": (0.5,) * 3}
    how = of_timm(config)
    assert (how.interpolation, how.remarks) == ("lanczos", ())
    own = timm.data.create_transform(**config, is_training=False)
    files = load(str(folder), size=48, once=True)
    theirs = torch.stack([own(image) for image in opened(folder)])
    ours = how(Framed(files, how).batch(torch.arange(6)))
    assert (ours - theirs).abs().max() <= 1.01 * BYTE / 0.5
    in_memory = InMemory(files.batch(torch.arange(6)), labels=files.labels, name="photos")
    assert (how(Framed(in_memory, how).batch(torch.arange(6))) - theirs).abs().max() <= 2.01 * BYTE / 0.5
    bicubic = how(Framed(files, replace(how, interpolation="bicubic")).batch(torch.arange(6)))
    assert (bicubic - theirs).abs().max() > 5 * BYTE


def test_a_transformer_that_takes_no_squares_is_refused(transformers: ModuleType, tmp_path: Path) -> None:
    config = transformers.ViTConfig(**TINY, image_size=(32, 16), patch_size=8)
    transformers.ViTModel(config).save_pretrained(tmp_path / "wide")
    with pytest.raises(ValueError, match="takes images of 32 x 16"):
        open_source(tmp_path / "wide")


OWN = """
import torch
from transformers import ViTConfig, ViTModel

def alone():
    torch.manual_seed(0)
    return ViTModel(ViTConfig(**{tiny!r}, image_size=(32, 16), patch_size=8))

def prepared():
    return alone(), lambda x: torch.nn.functional.interpolate(x.float() / 255, (32, 16))
"""


def test_a_transformer_of_ones_own_that_takes_no_squares(
    transformers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was given squares of the first side.  Now it is refused, or a function of its own makes both sides."""
    (tmp_path / "of_my_own.py").write_text(OWN.format(tiny=TINY))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"takes images of 32 x 16, .* return \(network, preprocess\) "):
        open_source("of_my_own:alone")
    encoder = open_source("of_my_own:prepared")
    x = torch.randint(0, 256, (3, 3, 224, 224), dtype=torch.uint8)
    assert encoder.prepare(x).shape == (3, 3, 32, 16)
    with torch.no_grad():
        inside = encoder.net.model(pixel_values=encoder.prepare(x)).last_hidden_state[:, 0]
        assert torch.equal(encoder.net(encoder.prepare(x)), inside)
    with pytest.raises(ValueError, match=r"does not take images of 24 x 24: .* It was made for 32 x 16$"):
        open_source("of_my_own:alone", size=24)  # it interpolates positions of squares only


@pytest.mark.parametrize("sides", [(48, 48), (40, 64)])
@pytest.mark.parametrize("processor", PROCESSORS)
def test_images_are_prepared_as_the_image_processor_does(
    transformers: ModuleType, tmp_path: Path, processor: str, sides: tuple[int, int]
) -> None:
    model = saved(transformers, tmp_path / "model", processor)
    folder = pictures(tmp_path / "photos", n=6, sides=sides)
    own = transformers.AutoImageProcessor.from_pretrained(model)
    theirs = own(opened(folder), return_tensors="pt")["pixel_values"]
    encoder = open_source(model)
    ours = prepared(encoder, folder)
    assert ours.shape == theirs.shape
    apart = (ours - theirs).abs()
    whole = PROCESSORS[processor]["size"] == {"height": 32, "width": 32}
    if whole or sides[0] == sides[1]:  # torchvision resizes a tensor of bytes, Pillow a file: 2 of 255 where they round
        assert apart.max() <= 2.01 * BYTE / 0.25
        assert apart.mean() < 0.5 * BYTE / 0.25
    else:
        assert apart.mean() < 0.08
    assert "by the configuration of its image processor" in encoder.words


def test_what_of_an_image_processor_is_not_followed_is_said() -> None:
    config = {"do_resize": True, "size": {"height": 8, "width": 8}, "resample": 5, "do_pad": True}
    said = of_transformers(config, size=8)
    assert said.remarks == ("its hamming interpolation is read as bicubic", "not followed: do_pad")
    assert of_transformers(config | {"resample": 1}, size=8).interpolation == "lanczos"
    assert said.mean == (0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match=r"resizes to .*longest_edge.*, and images of one size are needed"):
        of_transformers({"size": {"longest_edge": 8}}, size=8)


def test_smaller_images_than_the_middle_get_a_black_border() -> None:
    x = Preparation(6, 4).cut(torch.ones(1, 3, 4, 4))
    assert x.shape == (1, 3, 6, 6)
    assert (x.sum().item(), x[0, 0, 1:5, 1:5].sum().item()) == (48, 16)


@pytest.mark.parametrize("command", ["eval", "robust", "doctor", "embed"])
@pytest.mark.parametrize("kind", ["timm", "hf", "folder", "exported", "python"])
def test_every_command_takes_every_encoder(
    command: str,
    kind: str,
    timm: ModuleType,
    transformers: ModuleType,
    photos: Path,
    exported: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("from reglet.backbones import ConvNet\nmake = lambda: ConvNet(widths=(4, 8))\n")
    model = saved(transformers, tmp_path / "saved")
    spec, more = {
        "timm": ("timm/test_vit", ["pretrained=false", "size=32"]),
        "hf": (f"hf/{model}", []),
        "folder": (str(model), []),
        "exported": (str(exported), []),
        "python": ("mine:make", ["size=32"]),
    }[kind]
    extra = {"eval": ["probes=ridge"], "robust": ["images=8", "severities=3"], "doctor": [], "embed": ["out=x.npz"]}
    code = main([command, spec, f"data={photos}", *more, *extra[command], "accelerator=cpu"])
    said = capsys.readouterr()
    assert code in ((0, 1, 4) if command == "doctor" else (0,)), said.err
    if command != "embed" or kind != "exported":
        assert "mean 0." in " ".join(said.out.split()), "how images are prepared is printed"
    assert ("random weights" in said.out) == (kind == "timm") or command == "eval"


def test_features_are_those_of_the_model_itself(transformers: ModuleType, photos: Path, tmp_path: Path) -> None:
    model = saved(transformers, tmp_path / "saved")
    embed(model, str(photos), tmp_path / "x.npz", says=lambda _: None)
    own = transformers.AutoModel.from_pretrained(model).eval()
    rows, encoder = np.load(tmp_path / "x.npz"), open_source(model)
    images = encoder.open(str(photos))
    with torch.no_grad():
        theirs = own(pixel_values=encoder.prepare(images.batch(torch.arange(5)))).last_hidden_state[:, 0]
    np.testing.assert_allclose(rows["features"][:5], theirs.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
@pytest.mark.parametrize("data", ["digits", "photos"])
def test_a_file_of_features_has_the_numbers_of_what_made_it(
    data: str, suffix: str, photos: Path, exported: Path, tmp_path: Path
) -> None:
    spec = str(photos) if data == "photos" else data
    file = tmp_path / f"x.{suffix}"
    embed(exported, spec, file)
    how = {"probes": ["knn", "ridge"]}
    own = evaluate_run(exported, data=spec, out=tmp_path / "a.json", **how).json()
    alone = evaluate_run(file, **how).json()
    beside = evaluate_run(file, data=spec, **how).json()
    for found in (alone, beside):
        assert found["probes"] == own["probes"]
        assert found["representation"] == own["representation"]
        assert found["classes"] == own["classes"]
        assert [found["data"][part]["images"] for part in ("train", "test")] == [
            own["data"][part]["images"] for part in ("train", "test")
        ]
    assert main(["doctor", str(file)]) in (0, 1, 4)


def test_parts_by_name_become_a_column(exported: Path, tmp_path: Path) -> None:
    assert main(["embed", str(exported), "data=digits", "split=test,train", f"out={tmp_path / 'x.npz'}"]) == 0
    rows = read_features(tmp_path / "x.npz")
    assert rows.split is not None
    assert (rows.split[:500], set(rows.split[500:]), len(rows)) == (["test"] * 500, {"train"}, 1797)
    assert rows.of_split("test").labels.tolist() == load("digits", split="test").labels.tolist()


def features(path: Path, **changed: Any) -> Path:
    columns: dict[str, Any] = {
        "features": np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32),
        "labels": np.arange(30) % 3,
        **changed,
    }
    np.savez(path, **{key: value for key, value in columns.items() if value is not None})
    return path


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"labels": np.arange(29) % 3}, r"the rows do not match: 30 of features, and labels of shape \(29,\)"),
        ({"features": None}, "has labels, and no `features`"),
        ({"features": np.zeros((30, 2, 2))}, r"features are \(n, d\) of floating point, got float64 of shape"),
        ({"features": np.zeros((30, 2), np.int64)}, "got int64"),
        ({"labels": np.zeros(30)}, "labels are whole numbers or words, got float64"),
        ({"labels": np.arange(30) - 1}, "labels are numbers from 0, got -1"),
        ({"class": np.array(["a"] * 29 + ["b"])}, "labels and class do not match"),
        ({"labels": None}, "x/train has no labels"),
        ({"split": np.array(["train"] * 15 + ["rest"] * 15), "train": 1}, "has the splits rest, train; got 'test'"),
    ],
)
def test_a_file_of_features_that_is_refused(changed: dict[str, Any], says: str, tmp_path: Path) -> None:
    parts = {"train": "train", "test": "test"} if changed.pop("train", 0) else {}
    with pytest.raises(ValueError, match=says):
        evaluate_run(features(tmp_path / "x.npz", **changed), probes=["knn"], **parts)


def test_rows_that_do_not_match_the_images(photos: Path, exported: Path, tmp_path: Path) -> None:
    embed(exported, str(photos), tmp_path / "x.npz")
    rows = dict(np.load(tmp_path / "x.npz"))

    def refused(says: str, data: str = str(photos), **changed: Any) -> None:
        np.savez(tmp_path / "y.npz", **{k: v for k, v in {**rows, **changed}.items() if v is not None})
        with pytest.raises(ValueError, match=says):
            evaluate_run(tmp_path / "y.npz", data=data, probes=["knn"])

    names = rows["file_name"].copy()
    names[0] = "a/none.png"
    refused(r"do not match .*: 1 of \d+ images have no row, such as a/\d+.png", file_name=names)
    refused("cannot be matched with .*: it has no column `file_name`", file_name=None)
    moved = np.roll(rows["file_name"], 1)
    refused("do not match the labels of .* differ. The first has the label", file_name=moved, split=None)
    refused("30 rows of features, 1797 images", "digits", features=rows["features"][:30], **dict.fromkeys(
        ("labels", "class", "file_name", "split"))
    )  # fmt: skip


@pytest.mark.parametrize("command", ["robust", "embed"])
def test_commands_that_need_a_network_say_so(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = features(tmp_path / "x.npz")
    assert main([command, str(path), "data=digits", "out=y.npz"]) == 2
    assert f"is a file of features, and reglet {command} shows new images to a network" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["eval", "nowhere"], "there is no directory nowhere. An encoder is the directory of a run"),
        (["eval", "nowhere.npz"], "there is no file of features nowhere.npz"),
        (["eval", "timm/test_vit"], "huggingface.co is not to be reached"),
        (["eval", "timm/test_vt", "pretrained=false"], "has no model 'test_vt'. It has test_vit"),
        (["eval", "timm/test_vit", "pretrained=false"], "timm/test_vit has no data of its own: give data="),
        (["eval", "timm/test_vit", "pretrained=no"], "pretrained is true or false, got 'no'"),
        (["doctor", "timm/test_vit", "pretrained=false"], "timm/test_vit has no data of its own: give data="),
        (["eval", "hf/nobody/nothing", "data=digits"], "bring the folder here, and give hf/FOLDER"),
        (["eval", "nobody.there:x", "data=digits"], "there is no module 'nobody'"),
        (["eval", "json:nothing", "data=digits"], "json has no 'nothing'"),
        (["eval", "json:__name__", "data=digits"], "or a function without arguments that gives one"),
        (["eval", "json:dumps", "data=digits"], "Called without arguments: dumps() missing 1"),
        (["eval", "reglet.backbones:ConvNet", "pretrained=false", "data=digits"], "is for timm/NAME and hf/NAME"),
        (["eval", "x.npz", "x.npz"], "each encoder once, got x.npz more than once"),
        (["eval", "x.npz", "y.npz"], "and these are not the same: give data="),
        (["eval", "x.npz", "z.npz", "probes=few"], "a table needs an answer for each test image"),
        (["eval", "x.npz", "z.npz", "train=train"], "train= and test= are for one encoder and one set"),
        (["eval", "x.npz", "data=digits,"], "data sets have commas between them, got 'digits,'"),
        (["embed", "x.npz", "y.npz", "out=z.npz"], "out= is a folder for the files of 2 encoders"),
    ],
)
def test_mistakes(
    words: list[str],
    says: str,
    timm: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    features(tmp_path / "x.npz")
    features(tmp_path / "z.npz", split=None)
    features(tmp_path / "y.npz", labels=np.arange(30) // 10)
    assert main(words) == 2
    assert says in capsys.readouterr().err


def test_a_network_of_ones_own_may_bring_its_preprocessing(photos: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_code.py").write_text(
        "from torch import nn\ndef make():\n    return nn.Conv2d(3, 5, 3), lambda images: images.float() - 7\n"
    )
    encoder = open_source("own_code:make", size=16)
    images = encoder.open(str(photos))
    x = images.batch(torch.arange(2))
    assert x.shape == (2, 3, 16, 16)
    torch.testing.assert_close(encoder.prepare(x), x.float() - 7)
    assert encoder.net(encoder.prepare(x)).shape == (2, 5), "a map of features is pooled"


def by_hand(a: Tensor, b: Tensor) -> float:
    """McNemar's exact p, written out."""
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    m, k = only_a + only_b, min(only_a, only_b)
    return min(1.0, 2 * sum(comb(m, j) for j in range(k + 1)) / 2**m)


def holm_by_hand(p: list[float]) -> list[float]:
    """Sorted, the i-th smallest times the number that are left, never below the one before."""
    found, running = [0.0] * len(p), 0.0
    for i, j in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        running = max(running, min(1.0, p[j] * (len(p) - i)))
        found[j] = running
    return found


def test_the_table_against_an_independent_computation(tmp_path: Path) -> None:
    """Three encoders with known answers on two sets of known images."""
    generator = torch.Generator().manual_seed(0)
    n = 120
    right = {
        (s, e): torch.rand(n, generator=generator) < share
        for s in ("one", "two")
        for e, share in (("a.npz", 0.5), ("b.npz", 0.75), ("c.npz", 0.55))
    }
    opened = []
    for name in ("a.npz", "b.npz", "c.npz"):
        columns = {"features": np.zeros((2 * n, 2), np.float32), "labels": np.arange(2 * n) % 2}
        np.savez(tmp_path / name, split=np.array(["train", "test"])[np.arange(2 * n) // n], **columns)
        encoder = open_source(tmp_path / name)
        opened.append(Encoder(name, *[getattr(encoder, f) for f in ("net", "prepare", "words", "size", "channels")],
                              about={}, rows=encoder.rows))  # fmt: skip

    asked: list[str] = []

    def measure(encoder: Encoder, train: Any, test: Any) -> dict[str, Tensor]:
        asked.append(encoder.name)
        return {"linear": right["one" if len(asked) <= 3 else "two", encoder.name]}

    real = Encoder.pair
    try:
        Encoder.pair = lambda self, data="", *rest: real(self, "", *rest)  # type: ignore[method-assign]
        found = judge(opened, ["one", "two"], measure, compute=Compute())
    finally:
        Encoder.pair = real  # type: ignore[method-assign]
    pairs = [("a.npz", "b.npz"), ("a.npz", "c.npz"), ("b.npz", "c.npz")]
    want = holm_by_hand([by_hand(right[s, x], right[s, y]) for s in ("one", "two") for x, y in pairs])
    assert [(d.set, d.base, d.candidate) for d in found.duels] == [(s, x, y) for s in ("one", "two") for x, y in pairs]
    assert [d.p for d in found.duels] == pytest.approx(want, rel=1e-9)
    for duel in found.duels:
        d = right[duel.set, duel.candidate].double() - right[duel.set, duel.base].double()
        assert duel.seen.difference == pytest.approx(float(d.mean()))
        error = float(d.std()) / math.sqrt(n)  # a bootstrap of 120 images is near the normal interval
        assert duel.seen.low == pytest.approx(float(d.mean()) - 1.96 * error, abs=0.35 * error)
        assert duel.seen.high == pytest.approx(float(d.mean()) + 1.96 * error, abs=0.35 * error)
    told = {(d.set, d.base, d.candidate): d.told for d in found.duels}
    assert "better" in told.values()
    for name in ("a.npz", "b.npz", "c.npz"):
        won = sum(
            (word == "better" and y == name) or (word == "worse" and x == name) for (_, x, y), word in told.items()
        )
        lost = sum(
            (word == "worse" and y == name) or (word == "better" and x == name) for (_, x, y), word in told.items()
        )
        assert found.wins(name, "linear") == (won, lost)
    assert json.loads(json.dumps(found.json()))["duels"][0]["told"] == told["one", "a.npz", "b.npz"]


@pytest.mark.parametrize("command", ["eval", "robust"])
def test_a_table_of_several_encoders_and_sets(
    command: str,
    timm: ModuleType,
    photos: Path,
    exported: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    other = pictures(tmp_path / "other", n=45, classes=2)
    extra = {"eval": ["probes=knn,ridge"], "robust": ["images=8", "severities=5"]}[command]
    words = [str(exported), "timm/test_resnet", "pretrained=false", "size=32", f"data={photos},{other}", *extra]
    assert main([command, *words, f"out={tmp_path / 'table.json'}"]) == 0
    said = capsys.readouterr().out
    found = json.loads((tmp_path / "table.json").read_text())
    measures = {"eval": ["knn", "ridge"], "robust": ["clean", "corrupted"]}[command]
    assert list(found["scores"]) == measures
    assert len(found["duels"]) == 2 * 2
    assert found["encoders"]["timm/test_resnet"]["weights"] == "random"
    cost = found["encoders"]["timm/test_resnet"]["cost"]
    assert cost["parameters"] == sum(p.numel() for p in timm.create_model("test_resnet", num_classes=0).parameters())
    assert cost["milliseconds"] > 0
    assert "GFLOPs" in said
    assert "cannot be told" in said
    if command == "eval":
        alone = evaluate_run(exported, data=str(photos), probes=["knn", "ridge"]).json()
        assert found["scores"]["knn"][str(photos)][str(exported)] == alone["probes"]["knn"]["accuracy"]


def test_features_and_encoders_in_one_table(photos: Path, exported: Path, tmp_path: Path) -> None:
    embed(exported, str(photos), tmp_path / "x.parquet")
    out = tmp_path / "table.json"
    words = [str(exported), str(tmp_path / "x.parquet"), f"data={photos}", "probes=ridge", f"out={out}"]
    assert main(["eval", *words]) == 0
    found = json.loads(out.read_text())
    (duel,) = found["duels"]
    assert (duel["seen"]["difference"], duel["seen"]["gained"], duel["told"]) == (0.0, 0, "cannot be told")
    assert found["encoders"][str(tmp_path / "x.parquet")]["cost"] is None


def test_several_embedded_and_examined(
    photos: Path, exported: Path, tmp_path: Path, monkeypatch: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(exported), "reglet.backbones:ConvNet", "size=32"]
    assert main(["embed", *words, f"data={photos}", f"out={tmp_path / 'many'}"]) == 0
    files = sorted(file.name for file in (tmp_path / "many").iterdir())
    assert len(files) == 2
    assert files[0].endswith("-photos.npz")
    capsys.readouterr()
    assert main(["doctor", *words, f"data={photos},digits"]) in (0, 1, 4)
    said = capsys.readouterr().out
    assert said.count("reglet.backbones:") >= 2
    assert "says why; exit code" in said


@pytest.mark.parametrize("kind", ["timm", "hf", "features", "features and images"])
def test_a_page_about_an_encoder_of_others(
    kind: str,
    timm: ModuleType,
    transformers: ModuleType,
    photos: Path,
    exported: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, more = tmp_path / "page.html", ["points=20", "robust=4"]
    if kind.startswith("features"):
        embed(exported, str(photos), tmp_path / "x.npz")
        words = [str(tmp_path / "x.npz"), *([f"data={photos}"] if "images" in kind else [])]
    elif kind == "hf":
        words = [str(saved(transformers, tmp_path / "saved")), f"data={photos}"]
    else:
        words = ["timm/test_vit", "pretrained=false", "size=32", f"data={photos}"]
    assert main(["report", *words, *more, f"out={out}"]) == 0
    page = out.read_text()
    assert "it was not trained here" in page
    assert ("a file of features has no network to show images to" in page) == kind.startswith("features")
    assert ("the file has features alone" in page) == (kind == "features")
    assert "linear probe" in page
    if kind == "timm":
        assert "by timm&#39;s configuration" in page
        assert "timm/test_vit (random weights)" in page
        assert "random weights, as pretrained=false asks; images: shorter side" in capsys.readouterr().out


def test_a_page_about_several_encoders_and_sets(timm: ModuleType, photos: Path, exported: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    words = [str(exported), "timm/test_resnet", "pretrained=false", "size=32", f"data={photos},digits", "robust=0"]
    assert main(["report", *words, "points=10", f"out={out}"]) == 0
    assert "timm/test_resnet (random weights) on digits" in out.read_text()
