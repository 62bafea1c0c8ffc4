"""The log-mel front end against the published formulas and other people's code."""

import math

import pytest
import torch

from reglet.networks.audio.mel import FLOOR, frames, hz_to_mel, log_mel, mel_filters, mel_to_hz


def mel(f: float, scale: str) -> float:
    if scale == "htk":
        return 2595 * math.log10(1 + f / 700)
    return 3 * f / 200 if f < 1000 else 15 + 27 * math.log(f / 1000) / math.log(6.4)


def hz(m: float, scale: str) -> float:
    """By bisection of `mel`, so that no inverse has to be trusted."""
    low, high = 0.0, 1e5
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if mel(middle, scale) < m else (low, middle)
    return (low + high) / 2


@pytest.mark.parametrize("scale", ["htk", "slaney"])
def test_scales_are_the_published_ones(scale: str) -> None:
    f = torch.tensor([0.0, 60.0, 440.0, 999.0, 1000.0, 1001.0, 4000.0, 11025.0], dtype=torch.float64)
    expected = torch.tensor([mel(float(v), scale) for v in f], dtype=torch.float64)
    torch.testing.assert_close(hz_to_mel(f, scale=scale), expected)
    torch.testing.assert_close(mel_to_hz(expected, scale=scale), f)


def test_known_values() -> None:
    """1000 Hz is 1000 mel by HTK to a part in 1e4, and Slaney's 15; 6400 Hz is 27 steps above that."""
    f = torch.tensor([1000.0, 6400.0], dtype=torch.float64)
    assert abs(float(hz_to_mel(f)[0]) - 1000) < 0.1
    assert hz_to_mel(f, scale="slaney").tolist() == pytest.approx([15, 42])


@pytest.mark.parametrize("scale", ["htk", "slaney"])
@pytest.mark.parametrize("equal_area", [False, True])
def test_filters_by_the_formula(scale: str, equal_area: bool) -> None:
    mels, rate, fft, low, high = 20, 8000, 512, 50.0, 3800.0
    a, b = mel(low, scale), mel(high, scale)
    edges = [hz(a + (b - a) * i / (mels + 1), scale) for i in range(mels + 2)]
    expected = torch.zeros(mels, fft // 2 + 1)
    for m in range(mels):
        left, middle, right = edges[m : m + 3]
        for k in range(fft // 2 + 1):
            f = k * rate / fft
            if left < f <= middle:
                expected[m, k] = (f - left) / (middle - left)
            elif middle < f < right:
                expected[m, k] = (right - f) / (right - middle)
        if equal_area:
            expected[m] *= 2 / (right - left)
    got = mel_filters(mels, rate=rate, fft=fft, low=low, high=high, scale=scale, equal_area=equal_area)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("scale", ["htk", "slaney"])
@pytest.mark.filterwarnings("ignore")  # of transformers, about itself
def test_filters_are_transformers(scale: str) -> None:
    theirs = pytest.importorskip("transformers.audio_utils", reason="transformers is not installed")
    bank = theirs.mel_filter_bank(
        num_frequency_bins=257,
        num_mel_filters=40,
        min_frequency=0.0,
        max_frequency=8000.0,
        sampling_rate=16000,
        norm="slaney",
        mel_scale=scale,
    )
    got = mel_filters(40, rate=16000, fft=512, scale=scale, equal_area=True)
    torch.testing.assert_close(got, torch.from_numpy(bank).T.float())


def test_frames_are_slices() -> None:
    x = torch.randn(2, 23)
    got = frames(x, length=8, hop=3)
    assert got.shape == (2, 6, 8)  # the last that fits begins at 15
    for i in range(6):
        assert torch.equal(got[:, i], x[:, 3 * i : 3 * i + 8])


def test_a_short_waveform_is_one_padded_frame() -> None:
    got = frames(torch.ones(1, 5), length=8, hop=3)
    assert got.tolist() == [[[1.0] * 5 + [0.0] * 3]]


def test_spectrum_is_that_of_stft() -> None:
    x = torch.randn(2, 2000, generator=torch.Generator().manual_seed(0))
    n = 200  # 25 ms, brought to 256 by zeros
    window = torch.hann_window(n)
    stft = torch.stft(
        torch.nn.functional.pad(x, (0, 56)),
        256,
        80,
        256,
        torch.nn.functional.pad(window, (0, 56)),
        False,
        return_complex=True,
    )
    energy = mel_filters(30, rate=8000, fft=256) @ stft.abs().square()
    torch.testing.assert_close(log_mel(x, rate=8000, mels=30), energy.clamp_min(FLOOR).log(), atol=1e-4, rtol=1e-4)


def test_a_tone_is_in_its_band() -> None:
    t = torch.arange(8000) / 8000
    got = log_mel(torch.sin(2 * math.pi * 1000 * t)[None], rate=8000, mels=40).mean(2)[0]
    centres = mel_to_hz(torch.arange(1, 41, dtype=torch.float64) / 41 * hz_to_mel(torch.tensor(4000.0).double()))
    assert int(got.argmax()) == int((centres - 1000).abs().argmin())


def test_silence_is_the_floor() -> None:
    got = log_mel(torch.zeros(1, 800), rate=8000, mels=20)
    assert torch.equal(got, torch.full_like(got, math.log(FLOOR)))


@pytest.mark.parametrize(
    ("says", "options"),
    [
        ("fewer bands or a longer window", {"mels": 80, "rate": 8000, "fft": 128}),
        ("low < high", {"mels": 20, "rate": 8000, "fft": 512, "high": 5000.0}),
        ("low < high", {"mels": 20, "rate": 8000, "fft": 512, "low": 3000.0, "high": 2000.0}),
        ("one of htk, slaney", {"mels": 20, "rate": 8000, "fft": 512, "scale": "bark"}),
    ],
)
def test_bad_banks(says: str, options: dict) -> None:
    error = Exception if "scale" in options else ValueError  # a type checker may be first to object
    with pytest.raises(error, match=says if "scale" not in options else None):
        mel_filters(options.pop("mels"), **options)


def test_the_floor_changes_nothing_above_it() -> None:
    x = torch.randn(1, 800, generator=torch.Generator().manual_seed(0))
    free, floored = (log_mel(x, rate=8000, mels=20, floor=floor) for floor in (1e-30, math.exp(4)))
    assert float(free.min()) < 4 < float(free.max())
    torch.testing.assert_close(floored, free.clamp_min(4), atol=1e-5, rtol=0)
