"""What an evaluation costs beside extracting the features, and how near the SGD probe is to logistic regression.

`python -m benchmarks.evaluate`.  10,000 images of 32 px in ten classes, four fifths of them to train on, through a conv
net and a small ViT; then 20-NN, the linear probe at 13 rates and the diagnostics.  And that probe alone on features of
512 dimensions whose spectrum falls as 1/k, as a network's does, beside scikit-learn's solver at the same penalty.
"""

import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from benchmarks.rows import Row, at_most, lines
from benchmarks.timing import Clock, spread
from benchmarks.views import smooth
from reglet import backbones
from reglet.data import InMemory
from reglet.evaluate import evaluate
from reglet.export import preprocessing
from reglet.probes import linear_sgd_probe

IMAGES, SIZE, CLASSES = 10_000, 32, 10
SAMPLES, WIDTH = 10_000, 512
RATIO, SECONDS, POINTS = 2.0, 10.0, 0.3  # the targets
SEEDS = 3


def run(*, clock: Clock = time.perf_counter) -> Iterator[Row]:
    torch.manual_seed(0)
    nets: dict[str, Callable[[], nn.Module]] = {
        "conv net": backbones.ConvNet,
        "ViT 192 x 6": lambda: backbones.vit_mini(size=SIZE, patch=8),
    }
    for name, net in nets.items():
        yield from _evaluation(name, net(), clock)
    for weight_decay in (1e-3, 1e-2):
        yield from _probe(weight_decay, clock)


def _evaluation(name: str, net: nn.Module, clock: Clock) -> Iterator[Row]:
    train, test = _images(8_000, 0), _images(2_000, 1)
    where = f"evaluate, {name}", f"{IMAGES:,} x {SIZE} px"
    evaluate(net, _images(500, 2), _images(500, 3), preprocessing(SIZE))  # libraries and pages
    ratios, seconds = [], []
    for _ in range(SEEDS):
        start = clock()
        found = evaluate(net, train, test, preprocessing(SIZE))
        seconds.append(clock() - start)
        ratios.append(seconds[-1] / found.seconds["features"])
    ratio, whole = spread(ratios), spread(seconds)
    yield at_most(
        *where, "time over the", against="features", value=ratio.median, target=RATIO, low=ratio.low, high=ratio.high
    )
    yield Row(*where, "seconds", whole.median, low=whole.low, high=whole.high)


def _probe(weight_decay: float, clock: Clock) -> Iterator[Row]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    seconds, theirs, points = [], [], []
    for seed in range(SEEDS):
        (x, y), (x_test, y_test) = _features(SAMPLES, 2 * seed), _features(SAMPLES, 2 * seed + 1)
        start = clock()
        score = linear_sgd_probe(x, y, x_test, y_test, weight_decay=weight_decay, epochs=20)
        seconds.append(clock() - start)
        start = clock()
        scaler = StandardScaler().fit(x.double())
        exact = LogisticRegression(C=1 / (SAMPLES * weight_decay), max_iter=5000).fit(scaler.transform(x.double()), y)
        theirs.append(clock() - start)
        points.append(100 * abs(score.accuracy - float(exact.score(scaler.transform(x_test.double()), y_test))))
    where = "linear probe, 13 rates", f"{SAMPLES:,} x {WIDTH}"
    took, apart, reference = spread(seconds), spread(points), spread(theirs)
    decay = f"L2 {weight_decay:g}"
    yield at_most(*where, f"seconds, {decay}", took.median, SECONDS, low=took.low, high=took.high)
    yield at_most(*where, f"points, {decay}, from", apart.high, POINTS, against="exact", low=apart.low, high=apart.high)
    yield Row(*where, "seconds,", reference.median, against="scikit-learn", low=reference.low, high=reference.high)


def _images(n: int, seed: int) -> InMemory:
    """Blurred noise with the class in its colour."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % CLASSES
    images = smooth(torch.randint(256, (n, 3, SIZE, SIZE), generator=generator).to(torch.uint8))
    darker = (1 + labels[:, None, None] // 3).to(torch.uint8)
    images[torch.arange(n), labels % 3] //= darker
    return InMemory(images, labels=labels, name=f"noise-{seed}")


def _features(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Classes that overlap, in directions whose variance falls as 1/k; every feature is a mixture of all of them."""
    generator, fixed = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(99)
    deviation = torch.arange(1, WIDTH + 1).rsqrt()
    mixing = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=fixed)).Q
    centres = 0.35 * torch.randn(CLASSES, WIDTH, generator=fixed)
    labels = torch.arange(n) % CLASSES
    z = centres[labels] / 3 + torch.randn(n, WIDTH, generator=generator)
    return z * deviation @ mixing, labels


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in lines(run()):
        print(line, flush=True)
