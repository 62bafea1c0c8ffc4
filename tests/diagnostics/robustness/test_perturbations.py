import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from reglet.diagnostics.robustness import PERTURBATIONS, frames_of
from reglet.diagnostics.robustness.perturbations import NOISES


def pictures(n: int = 3, side: int = 32, c: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return F.interpolate(torch.rand(n, c, 6, 6, generator=generator), size=(side, side), mode="bilinear")


def stack(x: Tensor, name: str, **how: int) -> Tensor:
    return torch.stack(list(frames_of(x, name, **how)))


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_frames_change_little_by_little_and_repeat(name: str) -> None:
    x = pictures()
    frames = stack(x, name)
    assert frames.shape == (31, *x.shape)
    assert frames.isfinite().all()
    assert 0 <= float(frames.min()) <= float(frames.max()) <= 1
    steps = frames.diff(dim=0).square().mean((1, 2, 3, 4)).sqrt()
    assert 1e-4 < float(steps.max()) < 0.12
    some = torch.tensor([2, 0])
    again = torch.stack(list(frames_of(x[some], name, index=some)))
    torch.testing.assert_close(again, frames[:, some], rtol=0, atol=1e-5)
    few = stack(x, name, frames=4)
    if name not in NOISES and name != "zoom_blur":  # the same range in larger steps
        torch.testing.assert_close(few, frames[::10], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_harder_is_further_away(name: str) -> None:
    for c in (1, 3):
        x = pictures(side=48, c=c)
        easy, hard = (float((stack(x, name, frames=7, severity=s) - x).square().mean()) for s in (1, 5))
        assert hard > 1.3 * easy


@pytest.mark.parametrize("name", ["translate", "rotate", "shear", "tilt", "brightness"])
def test_the_middle_frame_is_the_image(name: str) -> None:
    x = pictures()
    torch.testing.assert_close(stack(x, name)[15], x, rtol=0, atol=1e-5)


def test_noises_start_clean_and_draw_anew() -> None:
    x = pictures()
    for name in NOISES:
        frames = stack(x, name, frames=4)
        assert torch.equal(frames[0], x)
        assert (frames[1] - frames[2]).abs().max() > 0.01
    assert float((stack(x * 0 + 0.5, "gaussian_noise", frames=9)[1:] - 0.5).std()) == pytest.approx(
        0.03 * (32 / 224) ** 0.5, rel=0.02
    )


def test_motions_go_where_they_say() -> None:
    x = torch.zeros(1, 3, 224, 224)
    x[..., 100:124, 100:124] = 1

    def centre(y: Tensor) -> tuple[float, float]:
        axis = torch.arange(224.0) - 111.5
        mass = y.sum((0, 1))
        return float((mass.sum(0) * axis).sum() / mass.sum()), float((mass.sum(1) * axis).sum() / mass.sum())

    frames = stack(x, "translate")
    assert centre(frames[0])[0] == pytest.approx(-20, abs=0.1)
    assert centre(frames[-1])[0] == pytest.approx(20, abs=0.1)
    assert centre(frames[-1])[1] == pytest.approx(0, abs=0.1)
    area = [float(f.mean() / x.mean()) for f in stack(x, "scale")]
    assert area[24] == pytest.approx(1, rel=0.01)
    assert area[-1] == pytest.approx(1.15**2, rel=0.02)
    small = stack(x, "scale")[0, 0, 0, 111]  # a line through the middle, of which mirror images are far
    assert float(small[90:134].sum()) == pytest.approx(0.4 * 24, abs=1)
    tilted = stack(x, "tilt")
    assert float(tilted[0].mean()) < float(x.mean())  # seen at an angle it is smaller


def test_drops_run_down() -> None:
    x = torch.zeros(1, 3, 224, 224)
    frames = stack(x, "spatter", frames=31)
    shift = 18  # 0.6 px a frame
    torch.testing.assert_close(frames[-1][:, :, shift:], frames[0][:, :, :-shift], rtol=0, atol=1e-4)
    assert 0.01 < float((frames[0][:, 0] > 0.01).double().mean()) < 0.06


def test_bad_input_says_so() -> None:
    with pytest.raises(ValueError, match=r"no perturbation 'tild'. Did you mean 'tilt'"):
        next(frames_of(pictures(), "tild"))
    with pytest.raises(ValueError, match="got 1 and 1"):
        next(frames_of(pictures(), "tilt", frames=1))
