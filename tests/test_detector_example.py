"""The parts of examples/detector.py that can be wrong without anything failing."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from reglet.backbones import ConvNet, ViT
from reglet.data.digits import masked_digits


@pytest.fixture(scope="module")
def detector() -> ModuleType:
    path = Path(__file__).parent.parent / "examples/detector.py"
    spec = importlib.util.spec_from_file_location("detector_example", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "backbone",
    [ViT(dim=32, depth=1, heads=1, size=32, patch=4, drop_path=0.5), ConvNet(widths=(8, 16))],
    ids=["vit", "convnet"],
)
def test_the_map_is_of_frozen_tokens_in_their_places(detector: ModuleType, backbone: nn.Module) -> None:
    maps = detector.PatchMap(backbone)
    nn.Sequential(maps, nn.Conv2d(1, 1, 1)).train()
    x = torch.randn(2, 3, 32, 64)
    y = maps(x)
    tokens, (rows, columns) = backbone.tokens(x)
    assert y.shape[2:] == (rows, columns)
    assert columns == 2 * rows
    torch.testing.assert_close(y[:, :, 1, 3], tokens[:, columns + 3])
    assert not y.requires_grad
    assert not any(m.training for m in maps.modules())
    with pytest.raises(TypeError, match="Linear has no tokens"):
        detector.PatchMap(nn.Linear(2, 2))


def test_boxes_are_around_the_ink_and_perfect_answers_score_one(detector: ModuleType) -> None:
    scenes = detector.scenes(masked_digits(), 30, first=0, last=100, seed=0)
    assert 0.5 < scenes.there.float().mean() < 0.8
    cell, grid = 4.0, 16
    score, box = torch.full((30, grid, grid), -20.0), torch.zeros(30, 4, grid, grid)
    digit = torch.zeros(30, 10, grid, grid)
    for n, quarter in scenes.there.nonzero().tolist():
        y, x, h, w = scenes.boxes[n, quarter].tolist()
        top, left = 32 * (quarter // 2), 32 * (quarter % 2)
        assert top <= y - h / 2 < y + h / 2 <= top + 32
        assert left <= x - w / 2 < x + w / 2 <= left + 32
        row, column = int(y / cell), int(x / cell)
        score[n, row, column] = 20.0
        place = torch.tensor([y / cell - row - 0.5, x / cell - column - 0.5])
        box[n, :, row, column] = torch.cat([place, (torch.tensor([h, w]) / cell).log()])
        digit[n, scenes.digits[n, quarter], row, column] = 50.0
    found = detector.detections((score, box, digit), cell=cell)
    assert detector.average_precision(found, scenes, digits=True) == pytest.approx(1.0)
    assert detector.loss((score, box, digit), scenes, cell=cell) < 1e-3
    twice = [(torch.cat([s, s / 2]), boxes.repeat(2, 1), names.repeat(2)) for s, boxes, names in found]
    assert detector.average_precision(twice, scenes, digits=True) == pytest.approx(1.0)  # a digit is found once
    wrong = detector.detections((score, box, digit.roll(1, dims=1)), cell=cell)
    assert detector.average_precision(wrong, scenes, digits=False) == pytest.approx(1.0)
    assert detector.average_precision(wrong, scenes, digits=True) < 0.05
    aside = detector.detections((score.roll(4, dims=1), box.roll(4, dims=2), digit), cell=cell)
    assert detector.average_precision(aside, scenes, digits=False) < 0.5


def test_overlap_of_boxes(detector: ModuleType) -> None:
    a = torch.tensor([[5.0, 5.0, 10.0, 10.0]])
    b = torch.tensor([[5.0, 5.0, 10.0, 10.0], [10.0, 5.0, 10.0, 10.0], [30.0, 30.0, 4.0, 4.0]])
    torch.testing.assert_close(detector.iou(a, b), torch.tensor([[1.0, 1 / 3, 0.0]]))


def test_seeds_are_summed_up(detector: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    plain = [{"boxes": 0.5, "digits": 0.2}, {"boxes": 0.7, "digits": 0.2}]
    better = [{"boxes": score["boxes"] + 0.1, "digits": 0.1} for score in plain]
    detector.summarise({"random weights": plain, "pretrained": better})
    said = capsys.readouterr().out
    assert "boxes, pretrained: 0.700" in said
    assert "boxes, pretrained minus random weights: +0.100 (+0.100 to +0.100)" in said
    assert "digits, pretrained minus random weights: -0.100" in said
    a, b = detector.untrained(1), detector.untrained(2)
    assert not torch.equal(a.pos_embed, b.pos_embed)
    assert torch.equal(a.pos_embed, detector.untrained(1).pos_embed)
