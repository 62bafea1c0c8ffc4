import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from reglet import diagnostics, probes
from reglet.backbones import ConvNet, ViT
from reglet.data import Images, InMemory, load, load_pair
from reglet.evaluate import evaluate, evaluate_run
from reglet.evaluate import untrained as untrained_module
from reglet.evaluate.labelled import labels_of, split
from reglet.export import export, fresh_encoder, preprocessing

SIZE = 16


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def coloured(n: int, seed: int, *, classes: int = 3, name: str = "coloured", shift: int = 40) -> InMemory:
    """Classes by the brightness of one channel, in two domains."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % classes
    images = torch.randint(0, 120, (n, 3, SIZE, SIZE), generator=generator)
    images[torch.arange(n), labels % 3] += shift * (1 + labels[:, None, None] // 3)
    return InMemory(
        images.clamp(max=255).to(torch.uint8),
        labels=labels,
        domain=torch.arange(n) // 2 % 2,
        domains=["day", "night"],
        name=name,
    )


def net() -> ConvNet:
    torch.manual_seed(0)
    return ConvNet(widths=(4, 8))


def prepare() -> Callable[[Tensor], Tensor]:
    return preprocessing(SIZE)


def features(encoder: nn.Module, images: Images) -> Tensor:
    with torch.no_grad():
        return encoder.eval()(prepare()(images.batch(torch.arange(len(images)))))


def test_numbers_are_those_of_the_probes_and_diagnostics(monkeypatch: pytest.MonkeyPatch) -> None:
    small = partial(probes.mlp_probe, width=16)
    monkeypatch.setattr("reglet.evaluate.probing.mlp_probe", small)
    train, test = coloured(120, 0, shift=3), coloured(60, 1, shift=3)
    found = evaluate(net(), train, test, prepare(), probes=["knn", "linear", "exact", "ridge", "mlp", "few"], batch=7)
    z, z_test = features(net(), train), features(net(), test)
    parts = z, train.labels, z_test, test.labels
    assert found.probes["knn"]["accuracy"] == probes.knn_probe(*parts)
    assert found.probes["linear"]["accuracy"] == probes.linear_sgd_probe(*parts).accuracy
    assert found.probes["exact"]["accuracy"] == probes.linear_probe(*parts).accuracy
    assert found.probes["ridge"]["accuracy"] == probes.ridge_probe(*parts).accuracy
    assert found.probes["mlp"]["accuracy"] == pytest.approx(
        small(*parts).accuracy, abs=0.02
    )  # features in batches of 7
    assert found.probes["few"]["accuracy"] == probes.few_label_probe(*parts).mean
    assert found.representation["rankme"] == pytest.approx(diagnostics.rankme(z), rel=1e-5)
    assert found.representation["uniformity"] == pytest.approx(diagnostics.uniformity(z), rel=1e-4)
    linear = found.probes["linear"]
    assert linear["interval"][0] < linear["accuracy"] <= linear["interval"][1]
    assert 0.35 < linear["accuracy"] < 1  # something to tell probes apart by
    assert len(linear["log_likelihood_by_rate"]) == 13
    assert linear["by_domain"].keys() == {"day", "night"}
    assert sum(linear["by_domain"].values()) / 2 == pytest.approx(linear["accuracy"])  # half of the images each


def test_the_json_is_plain_and_the_same_again() -> None:
    train, test = coloured(60, 0), coloured(30, 1)
    first, second = (evaluate(net(), train, test, prepare()).json() for _ in range(2))
    assert json.loads(json.dumps(first, allow_nan=False)) == first
    for each in (first, second):
        each.pop("seconds")
    assert first == second


def test_a_collapsed_encoder_gets_its_numbers_too() -> None:
    class Constant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ones(len(x), 5)

    found = evaluate(
        Constant(), coloured(60, 0), coloured(30, 1), prepare(), probes=["knn", "linear", "exact", "ridge"]
    )
    assert all(row["accuracy"] == pytest.approx(1 / 3) for row in found.probes.values())
    z = found.representation
    assert (z["rankme"], z["components_90"], z["alpha_req"], z["uniformity"]) == (
        pytest.approx(1, abs=1e-3),
        0,
        None,
        pytest.approx(0, abs=1e-6),  # of unit vectors in float32
    )
    assert z["constant_features"] == 5
    json.dumps(found.json(), allow_nan=False)


def test_linear_probes_see_the_last_blocks_and_knn_the_last() -> None:
    torch.manual_seed(0)
    vit = ViT(dim=8, depth=3, heads=2, size=SIZE, patch=4).eval()
    train, test = coloured(90, 0, shift=3), coloured(60, 1, shift=3)
    one, two = (evaluate(vit, train, test, prepare(), blocks=blocks) for blocks in (1, 2))
    assert one.probes["knn"] == two.probes["knn"]
    assert one.representation == two.representation
    with torch.no_grad():
        wide = [
            probes.last_blocks(vit, prepare()(images.batch(torch.arange(len(images)))), blocks=2)
            for images in (train, test)
        ]
    expected = probes.linear_sgd_probe(wide[0], train.labels, wide[1], test.labels)
    assert two.probes["linear"]["log_likelihood_by_rate"] == pytest.approx(expected.validation, rel=1e-3)
    assert one.probes["linear"]["log_likelihood_by_rate"] != pytest.approx(expected.validation, rel=1e-3)


def test_classes_of_a_long_tail_are_scored_apart() -> None:
    train, test = coloured(300, 0), coloured(60, 1)
    assert train.labels is not None
    keep = torch.cat([(train.labels == c).nonzero()[:k, 0] for c, k in ((0, 100), (1, 30), (2, 5))])
    rare = InMemory(train.images[keep], labels=train.labels[keep], name="rare")
    row = evaluate(net(), rare, test, prepare()).probes["knn"]
    assert row["by_frequency"].keys() == {"medium", "few"}
    assert "by_frequency" not in evaluate(net(), train, test, prepare()).probes["knn"]


def test_labels_go_by_name() -> None:
    images = torch.zeros(6, 3, 4, 4, dtype=torch.uint8)
    train = InMemory(images, labels=torch.arange(6) % 3, classes=["ant", "bee", "cow"], name="train")
    test = InMemory(images[:4], labels=torch.tensor([0, 1, 1, 0]), classes=["bee", "cow"], name="test")
    assert labels_of(train, test)[1].tolist() == [1, 2, 2, 1]
    with pytest.raises(ValueError, match="train has classes that test has not: ant"):
        labels_of(test, train)


def test_without_test_images_there_is_no_score() -> None:
    images = coloured(50, 0)
    assert split(images, images) == (images, images)
    with pytest.raises(ValueError, match="has no images to test on"):
        split(images, None)


class Wrong(nn.Module):
    def __init__(self, make: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Tensor) -> object:
        return self.make(x)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda x: x, r"expected from Wrong features \(n, d\) with n = 2, got torch.float32 of shape \(2, 3, 16, 16\)"),
        (lambda x: x.mean((0, 2, 3)), r"got torch.float32 of shape \(3,\)"),
        (lambda x: x[:1].flatten(1), r"got torch.float32 of shape \(1, 768\)"),
        (lambda x: x.flatten(1).long(), r"got torch.int64"),
        (lambda x: (x, x), "got tuple"),
    ],
)
def test_an_encoder_whose_output_does_not_fit(make: Callable[[Tensor], object], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        evaluate(Wrong(make), coloured(60, 0), coloured(30, 1), prepare())


def test_an_encoder_that_takes_other_images_or_gives_no_numbers() -> None:
    with pytest.raises(ValueError, match=r"ConvNet takes no images of shape \(3, 16, 16\): Given groups=1"):
        evaluate(ConvNet(in_channels=1), coloured(60, 0), coloured(30, 1), prepare())
    with pytest.raises(ValueError, match="not finite for 60 of 60 images"):
        evaluate(Wrong(lambda x: x.flatten(1) / 0), coloured(60, 0), coloured(30, 1), prepare())


def test_labels_that_make_no_task() -> None:
    train, test = coloured(60, 0), coloured(30, 1)
    bare = InMemory(train.images, name="photos")
    for parts in ((bare, test), (train, bare)):
        with pytest.raises(ValueError, match="photos has no labels, so there is nothing to score"):
            evaluate(net(), *parts, prepare())
    one = InMemory(train.images, labels=torch.ones(60, dtype=torch.int64), classes=["0", "1", "2"], name="one")
    with pytest.raises(ValueError, match="all 60 training labels are 1: there is one class only"):
        evaluate(net(), one, test, prepare())
    few = InMemory(train.images[:5], labels=torch.tensor([0, 1, 2, 3, 9]), name="few")
    with pytest.raises(ValueError, match="5 training features are fewer than the 10 classes"):
        evaluate(net(), few, test, prepare())
    with pytest.raises(ValueError, match="no probe is called 'liner'"):
        evaluate(net(), train, test, prepare(), probes=["liner"])


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported encoder, without a run."""
    folder = tmp_path_factory.mktemp("runs") / "a"
    export(build_convnet(), folder, name="convnet", size=SIZE, in_channels=3, card={})
    return folder


def build_convnet() -> nn.Module:
    torch.manual_seed(0)
    return ConvNet()


def write(path: Path, images: InMemory, **more: object) -> Path:
    np.savez(path, images=images.images.numpy(), **more)  # type: ignore[arg-type]
    return path


def test_an_exported_encoder_on_an_archive(encoder: Path, tmp_path: Path) -> None:
    images = coloured(90, 0)
    assert images.labels is not None
    names = np.array(["fit", "val", "extra"])[np.arange(90) // 3 % 3]
    path = write(tmp_path / "x.npz", images, labels=images.labels.numpy(), split=names)
    found = evaluate_run(encoder, data=str(path), train="fit", test="val")
    assert (found.data["train"]["name"], found.data["test"]["name"]) == ("x/fit", "x/val")
    assert found.data["train"]["images"] == found.data["test"]["images"] == 30
    written = json.loads((encoder / "eval.json").read_text())
    assert written["probes"] == found.json()["probes"]
    assert written["encoder"]["name"] == "convnet"
    assert not list(encoder.glob("*.tmp"))
    whole = evaluate_run(encoder, data=str(path), out=tmp_path / "other.json")
    assert (whole.data["train"]["images"], whole.data["test"]["images"]) == (72, 18)
    assert json.loads((tmp_path / "other.json").read_text())["data"] == whole.json()["data"]
    assert json.loads((encoder / "eval.json").read_text()) == written


def test_mistakes_leave_no_report(encoder: Path, tmp_path: Path) -> None:
    (encoder / "eval.json").unlink(missing_ok=True)
    unlabelled = write(tmp_path / "x.npz", coloured(30, 0))
    with pytest.raises(ValueError, match=r"x/train has no labels.*a .npz archive as an array `labels`"):
        evaluate_run(encoder, data=str(unlabelled))
    with pytest.raises(ValueError, match="is an exported encoder, without its data: give data="):
        evaluate_run(encoder)
    with pytest.raises(ValueError, match="test=val needs train= beside it"):
        evaluate_run(encoder, data="digits", test="val")
    with pytest.raises(ValueError, match="name parts of data=, which is missing"):
        evaluate_run(encoder, train="train", test="test")
    grey = tmp_path / "grey.npz"
    pixels = np.arange(30, dtype=np.uint8)[:, None, None].repeat(SIZE, 1).repeat(SIZE, 2)
    np.savez(grey, images=pixels, labels=np.arange(30) % 2)
    with pytest.raises(ValueError, match=r"ConvNet takes no images of shape \(1, 16, 16\)"):
        evaluate_run(encoder, data=str(grey))
    assert not (encoder / "eval.json").exists()


def test_a_directory_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no directory .*nowhere"):
        evaluate_run(tmp_path / "nowhere")
    with pytest.raises(
        ValueError, match=r"is no directory of a run or of an exported encoder: no config.json and no card"
    ):
        evaluate_run(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="has left no encoder yet"):
        evaluate_run(tmp_path)
    (tmp_path / "card.json").write_text("{}")
    with pytest.raises(ValueError, match=r"card.json is no card of an encoder: it has no 'architecture'"):
        evaluate_run(tmp_path)


def test_digits_by_their_own_split(encoder: Path, tmp_path: Path) -> None:
    found = evaluate_run(encoder, data="digits", probes=["ridge"], out=tmp_path / "eval.json")
    assert found.data["test"]["fingerprint"] == load("digits", split="test").fingerprint
    assert not math.isnan(found.probes["ridge"]["accuracy"])


def test_a_classifiers_own_accuracy_and_its_classes(tmp_path: Path) -> None:
    """By names: the head has another order of classes, and one more."""
    train, test = coloured(60, 0), coloured(30, 1)
    head = nn.Linear(8, 4)
    with torch.no_grad():  # it always says "1", which is number 2 of its own
        head.weight.zero_()
        head.bias.copy_(torch.tensor([0.0, 0, 5, 0]))
    found = evaluate(net(), train, test, prepare(), probes=["knn"], head=(head, ["2", "x", "1", "0"]))
    assert list(found.probes) == ["classifier", "knn"]
    assert found.probes["classifier"]["accuracy"] == pytest.approx(1 / 3)
    assert found.classes is not None
    assert (found.classes.by, found.classes.accuracy, found.classes.counts) == ("classifier", [0, 1, 0], [10] * 3)
    assert found.classes.table == [[0, 10, 0], [0, 10, 0], [0, 10, 0]]
    assert found.classes.mistakes(1) == [("0", "1", 10)]
    assert found.data["chance"] == ("0", pytest.approx(1 / 3))
    other = evaluate(net(), train, test, prepare(), probes=["knn"], head=(head, ["2", "x", "1", "y"]))
    assert list(other.probes) == ["knn"]
    assert other.classes is not None
    assert other.classes.by == "knn"


def test_random_weights_and_raw_pixels_are_kept(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.npz", coloured(90, 0), labels=np.arange(90) % 3)
    found = evaluate_run(encoder, data=str(path), probes=["knn"], out=tmp_path / "e.json")
    assert found.untrained.keys() == {"random weights", "raw pixels, 16 x 16"}
    images, held = load_pair(str(path))
    assert held is not None
    random = fresh_encoder(json.loads((encoder / "card.json").read_text()), seed=0)
    parts = features(random, images), images.labels, features(random, held), held.labels
    assert found.untrained["random weights"]["knn"]["accuracy"] == probes.knn_probe(*parts)
    pixels = [prepare()(part.batch(torch.arange(len(part)))).flatten(1) for part in (images, held)]
    expected = probes.knn_probe(pixels[0], images.labels, pixels[1], held.labels)
    assert found.untrained["raw pixels, 16 x 16"]["knn"]["accuracy"] == expected

    probed = []
    real = untrained_module._probed
    monkeypatch.setattr(untrained_module, "_probed", lambda *a, **k: probed.append(k["probes"]) or real(*a, **k))
    again = evaluate_run(encoder, data=str(path), probes=["knn", "ridge"], out=tmp_path / "e.json")
    assert probed == [["ridge"], ["ridge"]], "what is known is not computed again"
    assert again.untrained["random weights"]["knn"] == found.untrained["random weights"]["knn"]
    evaluate_run(encoder, data=str(path), probes=["ridge", "knn"], out=tmp_path / "e.json")
    assert len(probed) == 2
    evaluate_run(encoder, data=str(path), probes=["knn"], seed=1, out=tmp_path / "e.json")
    assert len(probed) == 4, "another seed is another answer"
