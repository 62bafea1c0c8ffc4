import sys

import pytest
import torch

from reglet.data import Digits, canvas_digits
from reglet.data.digits import ANGLES, STYLES, place
from reglet.probes import linear_probe


@pytest.fixture(scope="module")
def every() -> Digits:
    return canvas_digits("all")


def rows(data: Digits) -> set[bytes]:
    return {image.numpy().tobytes() for image in data.images}


def test_parts_are_disjoint_and_complete(every: Digits) -> None:
    train, test = canvas_digits("train"), canvas_digits("test")
    assert (len(train.images), len(test.images)) == (1297, 500)
    assert rows(train).isdisjoint(rows(test))
    assert rows(train) | rows(test) == rows(every)
    assert len(rows(every)) == 1797


def test_every_class_and_domain_is_in_both_parts() -> None:
    for part in (canvas_digits("train"), canvas_digits("test")):
        assert part.labels.bincount().min() > 0.07 * len(part.labels)
        assert part.style.bincount(minlength=len(STYLES)).min() > 0.2 * len(part.labels)
        assert part.angle.bincount(minlength=len(ANGLES)).min() > 0.25 * len(part.labels)


def test_labels_are_the_source_s() -> None:
    from sklearn.datasets import load_digits

    assert canvas_digits("all").labels.tolist() == load_digits().target.tolist()


def test_a_canvas_depends_on_seed_and_index_alone(every: Digits) -> None:
    glyphs, labels = torch.rand(3, 8, 8), torch.tensor([4, 7, 1])
    index = torch.tensor([5, 9, 1200])
    whole = place(glyphs, labels, index, seed=3)
    for i in range(3):
        one = place(glyphs[i : i + 1], labels[i : i + 1], index[i : i + 1], seed=3)
        torch.testing.assert_close(one.images[0], whole.images[i], rtol=0, atol=1)  # rounding to uint8
        assert (one.style, one.angle) == (whole.style[i], whole.angle[i])
    assert torch.equal(canvas_digits("all").images, every.images)
    assert not torch.equal(place(glyphs, labels, index, seed=4).images, whole.images)


def test_a_global_seed_changes_nothing_and_is_left_alone(every: Digits) -> None:
    torch.manual_seed(7)
    state = torch.get_rng_state()
    again = canvas_digits("all")
    assert torch.equal(again.images, every.images)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("bin", range(len(ANGLES)))
def test_angles_are_degrees_anticlockwise(bin: int) -> None:
    """A vertical bar, found again on its canvas: its direction lies in the bin that is reported."""
    bar = torch.zeros(1, 8, 8)
    bar[:, :, 3:5] = 1
    index = torch.arange(120)
    data = place(bar.expand(120, 8, 8), torch.zeros(120).long(), index, seed=0)
    plain = data.images[(data.angle == bin) & (data.style == 0)].float().mean(1)
    assert len(plain) > 2
    low, high = ANGLES[bin]
    for image in plain:
        ink = (image - 150).clamp_min(0)  # grounds are darker than 0.5, digits brighter than 0.7
        ink /= ink.sum()
        y, x = torch.meshgrid(-torch.arange(32.0), torch.arange(32.0), indexing="ij")
        dy, dx = y - (ink * y).sum(), x - (ink * x).sum()
        covariance = torch.stack([(ink * dx * dx).sum(), (ink * dx * dy).sum(), (ink * dy * dy).sum()])
        a, b, c = covariance.tolist()
        axis = torch.linalg.eigh(torch.tensor([[a, b], [b, c]])).eigenvectors[:, 1]
        tilt = torch.rad2deg(torch.atan(-axis[0] / axis[1]))  # of the upright axis, anticlockwise
        assert low - 3 < tilt < high + 3  # pixels of a bar 12 to 24 px long


def test_digits_are_brighter_than_their_ground(every: Digits) -> None:
    full, empty = torch.ones(200, 8, 8), torch.zeros(200, 8, 8)
    labels, index = torch.zeros(200).long(), torch.arange(200)
    luminance = torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)
    inked, bare = ((place(g, labels, index, seed=0).images * luminance).sum(1) for g in (full, empty))
    assert inked.flatten(1).max(1).values.min() > 0.65 * 255
    assert bare.max() < 0.55 * 255


def test_raw_pixels_hardly_tell_the_digits() -> None:
    train, test = canvas_digits("train"), canvas_digits("test")
    x, x_test = (part.images.flatten(1) / 255 for part in (train, test))
    score = linear_probe(x, train.labels, x_test, test.labels, strengths=[1.0])
    assert 0.15 < score.accuracy < 0.30


def test_unknown_split() -> None:
    with pytest.raises(Exception, match=r"train.*test.*all"):  # beartype's, in the test run
        canvas_digits("valid")


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"pip install reglet\[data\]"):
        canvas_digits("test")
