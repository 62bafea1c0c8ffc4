"""A detector of your own on a frozen backbone: its patch tokens, as a map, are what the detector sees.

    python examples/detector.py --out runs/detector                      a minute or two
    python examples/detector.py --seeds 5                                seeds of scenes, weights and batches
    python examples/detector.py --encoder runs/mine                      an encoder of `reglet pretrain model=vit_...`

Scenes of 64 px are made of four canvases, with a digit on each or none.  `PatchMap` is all that is reglet's: it takes
any backbone with `tokens(x)` -> ((n, t, d), grid), so every ViT and ConvNet of `reglet.backbones`, `Timm(...)`, and
`Adapter(model, ...)` around a network of yours.  The detector is what a user would bring: two convolutions that say of
every cell whether the middle of a digit is in it, where its box is, and which digit.  The same detector is trained on
the tokens of the transformer with random weights; printed is the average precision of both, and over several seeds
the mean, its 95 % interval (Student's t) and that of the paired difference.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from reglet import views
from reglet.backbones import ViT, projector
from reglet.backbones.protocol import Tokens
from reglet.data import InMemory
from reglet.data.digits import MaskedDigits, masked_digits
from reglet.engine.feed import ImageFeed
from reglet.engine.settings import Settings
from reglet.export import load_encoder, preprocessing
from reglet.losses import VISRegLoss
from reglet.methods import JointEmbedding
from reglet.runs import interval
from reglet.train import fit

SIDE, DIGITS = 64, 10


class PatchMap(nn.Module):
    """The tokens of a frozen backbone in their places: images (n, c, h, w) -> map (n, d, rows, columns)."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        if not isinstance(backbone, Tokens):
            raise TypeError(f"{type(backbone).__name__} has no tokens(x); reglet.backbones.Adapter gives it some")
        self.backbone = backbone.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> "PatchMap":
        """Batch norm and drop path of the backbone stay as they are in use, whatever the detector does."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d rows columns"]:
        y, grid = self.backbone.tokens(x)
        return y.transpose(1, 2).unflatten(2, grid)


class Detector(nn.Module):
    """For every cell a score, a box (middle and logarithm of the size, in cells) and the logits of ten digits."""

    def __init__(self, dim: int, *, width: int = 64) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.BatchNorm2d(dim), nn.Conv2d(dim, width, 3, padding=1), nn.ReLU())
        self.end = nn.Conv2d(width, 1 + 4 + DIGITS, 1)

    def forward(self, y: Float[Tensor, "n d r c"]) -> tuple[Tensor, Tensor, Tensor]:
        score, box, digit = self.end(self.body(y)).split([1, 4, DIGITS], dim=1)
        return score[:, 0], box, digit


class Scenes(NamedTuple):
    images: Tensor  # uint8 (n, 3, 64, 64)
    boxes: Float[Tensor, "n 4 4"]  # of each quarter's digit: middle and size, y before x, in pixels
    digits: Tensor  # (n, 4)
    there: Bool[Tensor, "n 4"]  # whether the quarter has a digit


def scenes(source: MaskedDigits, n: int, *, first: int, last: int, seed: int) -> Scenes:
    """Four canvases of the digits `first` to `last`, side by side; a third of them are without their digit."""
    generator = torch.Generator().manual_seed(seed)
    which = torch.randint(first, last, (n, 4), generator=generator)
    there = torch.rand(n, 4, generator=generator) < 2 / 3
    shown = there[:, :, None, None, None]
    tiles = torch.where(shown, source.digits.images[which], source.grounds[which])
    images = tiles.view(n, 2, 2, 3, 32, 32).permute(0, 3, 1, 4, 2, 5).reshape(n, 3, SIDE, SIDE)
    corner = torch.tensor([[0, 0], [0, 32], [32, 0], [32, 32]])
    boxes = torch.stack([_box(mask) for mask in source.masks[which].flatten(0, 1)]).view(n, 4, 4)
    boxes[:, :, :2] += corner
    return Scenes(images, boxes, source.digits.labels[which], there)


def _box(mask: Tensor) -> Float[Tensor, "4"]:
    spans = [(mask > 0).any(1 - axis).nonzero()[[0, -1], 0] for axis in (0, 1)]
    low, high = torch.stack(spans).T.float()
    return torch.cat([(low + high + 1) / 2, high + 1 - low])


def loss(found: tuple[Tensor, Tensor, Tensor], truth: Scenes, *, cell: float) -> Tensor:
    """The cell with the middle of a digit answers for it."""
    score, box, digit = found
    n, quarter = truth.there.nonzero(as_tuple=True)
    boxes = truth.boxes[n, quarter] / cell
    row, column = boxes[:, :2].long().T
    wanted = torch.zeros_like(score)
    wanted[n, row, column] = 1
    offset = torch.cat([boxes[:, :2] - boxes[:, :2].floor() - 0.5, boxes[:, 2:].log()], dim=1)
    told = F.binary_cross_entropy_with_logits(score, wanted, pos_weight=torch.tensor(20.0))
    placed = F.smooth_l1_loss(box[n, :, row, column], offset)
    return told + placed + F.cross_entropy(digit[n, :, row, column], truth.digits[n, quarter])


def detections(
    found: tuple[Tensor, Tensor, Tensor], *, cell: float, most: int = 8
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """For every image scores, boxes in pixels and digits of the `most` cells that score above their neighbours."""
    score, box, digit = found
    peak = score.where(F.max_pool2d(score, 3, stride=1, padding=1) == score, -torch.inf)
    result = []
    for i, scores in enumerate(peak.flatten(1)):
        value, at = scores.topk(most)
        at = at[value.isfinite()]
        middle = torch.stack([at // score.shape[2], at % score.shape[2]], 1) + 0.5
        own = box[i].flatten(1)[:, at].T
        boxes = cell * torch.cat([own[:, :2] + middle, own[:, 2:].exp()], dim=1)
        chance, label = digit[i].flatten(1)[:, at].softmax(0).max(0)
        result.append((scores[at].sigmoid() * chance, boxes, label))
    return result


def iou(a: Float[Tensor, "n 4"], b: Float[Tensor, "m 4"]) -> Float[Tensor, "n m"]:
    low = torch.maximum((a[:, :2] - a[:, 2:] / 2)[:, None], (b[:, :2] - b[:, 2:] / 2)[None])
    high = torch.minimum((a[:, :2] + a[:, 2:] / 2)[:, None], (b[:, :2] + b[:, 2:] / 2)[None])
    both = (high - low).clamp(min=0).prod(2)
    return both / (a[:, 2:].prod(1)[:, None] + b[:, 2:].prod(1)[None] - both)


def average_precision(found: list[tuple[Tensor, Tensor, Tensor]], truth: Scenes, *, digits: bool) -> float:
    """Area under precision over recall; right is a box that overlaps by half one that is not taken yet, of the same
    digit where `digits` count."""
    scores, right = [], []
    for i, (score, boxes, label) in enumerate(found):
        real, names = truth.boxes[i][truth.there[i]], truth.digits[i][truth.there[i]]
        fits = iou(boxes, real) > 0.5
        if digits:
            fits &= label[:, None] == names[None]
        free = torch.ones(len(real), dtype=torch.bool)
        for j in score.argsort(descending=True):
            candidates = (fits[j] & free).nonzero()[:1, 0]
            free[candidates] = False
            scores.append(float(score[j]))
            right.append(len(candidates))
    hit = torch.tensor(right)[torch.tensor(scores).argsort(descending=True)]
    precision = hit.cumsum(0) / torch.arange(1, len(hit) + 1)
    best = precision.flip(0).cummax(0).values.flip(0)
    return float((best * hit).sum() / truth.there.sum())


def measured(backbone: nn.Module, train: Scenes, test: Scenes, *, steps: int, seed: int = 0) -> dict[str, float]:
    """A frozen backbone gives the same map every time: it runs once, and the detector is trained on what it gave."""
    maps = PatchMap(backbone)
    prepare = preprocessing(SIDE)
    y, y_test = (torch.cat([maps(prepare(some)) for some in part.images.split(50)]) for part in (train, test))
    cell = SIDE / y.shape[2]
    torch.manual_seed(seed)
    detector = Detector(y.shape[1])
    optimizer = torch.optim.AdamW(detector.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        some = torch.randint(len(y), (32,))
        value = loss(detector(y[some]), Scenes(*(part[some] for part in train)), cell=cell)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        found = detections(detector.eval()(y_test), cell=cell)
    return {
        "boxes": average_precision(found, test, digits=False),
        "digits": average_precision(found, test, digits=True),
    }


def pretrained(source: MaskedDigits, out: Path, *, epochs: int, seed: int = 0) -> ViT:
    """VISReg on single canvases.  Without [CLS], so that the loss is on the mean of the patch tokens."""
    net = untrained(seed)
    loss = VISRegLoss(lam=0.6, slices=256, seed=seed)
    learner = JointEmbedding(net, loss, projector=projector(net.dim, widths=(512, 512, 32)))
    images = InMemory(source.digits.images[:1297], name="digits")
    settings = Settings(
        out=str(out), epochs=epochs, batch=64, lr=2e-3, seed=seed, resume=out.exists(), save_every=10**9
    )
    feed = ImageFeed(images, views.policy("digits-strong", size=32), batch=settings.batch, seed=settings.seed)
    fit(learner, feed, settings)
    return net


def untrained(seed: int = 0) -> ViT:
    torch.manual_seed(seed)
    return ViT(dim=64, depth=4, heads=2, size=32, patch=4, cls_layer=None)


def main(out: Path, *, encoder: Path | None, quick: bool, seeds: int = 1) -> None:
    source = masked_digits()
    scores: dict[str, list[dict[str, float]]] = {"random weights": [], "pretrained": []}
    for seed in range(seeds):
        train = scenes(source, 40 if quick else 600, first=0, last=1297, seed=2 * seed)
        test = scenes(source, 20 if quick else 200, first=1297, last=1797, seed=2 * seed + 1)
        own = out if seed == 0 else out.with_name(f"{out.name}-{seed}")
        trained = load_encoder(encoder)[0] if encoder else pretrained(source, own, epochs=1 if quick else 20, seed=seed)
        for name, backbone in (("random weights", untrained(seed)), ("pretrained", trained)):
            found = measured(backbone, train, test, steps=5 if quick else 400, seed=seed)
            scores[name].append(found)
            said = f"boxes {found['boxes']:.3f}, boxes with digits {found['digits']:.3f}"
            print(f"seed {seed}, {name:>14}: average precision of {said}", flush=True)
    if seeds > 1:
        summarise(scores)


def summarise(scores: dict[str, list[dict[str, float]]]) -> None:
    """The mean over seeds with its 95 % interval, and that of the difference, paired by seed."""
    for what in ("boxes", "digits"):
        values = {name: [score[what] for score in found] for name, found in scores.items()}
        for name, given in values.items():
            seen = interval(given)
            print(f"{what}, {name}: {seen.mean:.3f} ({seen.low:.3f} to {seen.high:.3f}), {seen.n} seeds")
        gain = interval([b - a for a, b in zip(values["random weights"], values["pretrained"], strict=True)])
        print(f"{what}, pretrained minus random weights: {gain.mean:+.3f} ({gain.low:+.3f} to {gain.high:+.3f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=Path("runs/detector"))
    parser.add_argument("--encoder", type=Path, help="a folder with an encoder that `reglet pretrain` left")
    parser.add_argument("--quick", action="store_true", help="one epoch and a few steps, to see that it runs")
    parser.add_argument("--seeds", type=int, default=1, help="of scenes, weights and batches")
    given = parser.parse_args()
    main(given.out, encoder=given.encoder, quick=given.quick, seeds=given.seeds)
