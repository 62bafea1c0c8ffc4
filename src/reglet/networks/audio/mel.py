"""Log-mel spectra: frames of a waveform, their power spectrum, a bank of triangular filters, the logarithm.

    htk      mel(f) = 2595 log10(1 + f / 700)
    slaney   mel(f) = 3 f / 200 up to 1000 Hz, then 15 + 27 log(f / 1000) / log 6.4

(Young et al., The HTK Book; Slaney, Auditory Toolbox.)  Filter m rises from edge m to edge m + 1 and falls to edge
m + 2.  The edges are equidistant in mel.  The flanks are straight in Hz on both scales, as in Slaney's toolbox, librosa
and torchaudio.  (In HTK they are straight in mel.)
"""

import math
from typing import Literal, get_args

import torch
from jaxtyping import Float, Float64
from torch import Tensor

Scale = Literal["htk", "slaney"]
FLOOR = 1e-10  # of the energy in a band, so that silence has a logarithm
KNEE, PER_HZ, PER_LOG = 1000.0, 3 / 200, 27 / math.log(6.4)  # Slaney's scale: where it bends, and its two slopes


def hz_to_mel(f: Float64[Tensor, "*m"], *, scale: Scale = "htk") -> Float64[Tensor, "*m"]:
    """
    >>> hz_to_mel(torch.tensor([500.0, 1000.0, 6400.0], dtype=torch.float64), scale="slaney").tolist()
    [7.5, 15.0, 42.0]
    """
    if _known(scale) == "htk":
        return 2595 * torch.log10(1 + f / 700)
    return torch.where(f < KNEE, f * PER_HZ, KNEE * PER_HZ + PER_LOG * torch.log(f.clamp_min(KNEE) / KNEE))


def mel_to_hz(m: Float64[Tensor, "*m"], *, scale: Scale = "htk") -> Float64[Tensor, "*m"]:
    if _known(scale) == "htk":
        return 700 * (10 ** (m / 2595) - 1)
    bend = KNEE * PER_HZ
    return torch.where(m < bend, m / PER_HZ, KNEE * torch.exp((m - bend).clamp_min(0) / PER_LOG))


def mel_filters(
    mels: int,
    *,
    rate: int,
    fft: int,
    low: float = 0.0,
    high: float | None = None,
    scale: Scale = "htk",
    equal_area: bool = False,
) -> Float[Tensor, "mels bins"]:
    """Weights of the fft // 2 + 1 frequencies of a spectrum in each band.

    equal_area: every filter scaled to area 1 in Hz (Slaney's), instead of a peak of 1.

    >>> mel_filters(40, rate=8000, fft=256).shape
    torch.Size([40, 129])
    """
    high = rate / 2 if high is None else high
    if not 0 <= low < high <= rate / 2 or mels < 1:
        raise ValueError(f"bands lie between 0 <= low < high <= {rate / 2:g} Hz, got {mels} of {low:g} to {high:g} Hz")
    ends = hz_to_mel(torch.tensor([low, high], dtype=torch.float64), scale=scale)
    steps = torch.arange(mels + 2, dtype=torch.float64) / (mels + 1)
    edge = mel_to_hz(ends[0] + steps * (ends[1] - ends[0]), scale=scale)[:, None]
    f = torch.arange(fft // 2 + 1, dtype=torch.float64) * rate / fft
    rise = (f - edge[:-2]) / (edge[1:-1] - edge[:-2])
    fall = (edge[2:] - f) / (edge[2:] - edge[1:-1])
    weights = torch.minimum(rise, fall).clamp_min(0)
    if len(empty := (weights.sum(1) == 0).nonzero()[:, 0]):
        raise ValueError(
            f"{len(empty)} of {mels} mel bands fall between the frequencies of a spectrum of {fft} samples at "
            f"{rate:g} Hz: ask for fewer bands or a longer window"
        )
    return (weights * 2 / (edge[2:] - edge[:-2]) if equal_area else weights).float()


def frames(x: Float[Tensor, "n samples"], *, length: int, hop: int) -> Float[Tensor, "n t length"]:
    """Windows of `length` samples, `hop` apart, those that fit; a shorter waveform is one window, padded with zeros."""
    if hop < 1 or length < 1:
        raise ValueError(f"a window and its hop have at least one sample, got {length} and {hop}")
    short = max(0, length - x.shape[1])
    return torch.nn.functional.pad(x, (0, short)).unfold(1, length, hop)


def log_mel(
    x: Float[Tensor, "n samples"],
    *,
    rate: int,
    mels: int = 40,
    window: float = 0.025,
    hop: float = 0.01,
    low: float = 0.0,
    high: float | None = None,
    scale: Scale = "htk",
    floor: float = FLOOR,
) -> Float[Tensor, "n mels t"]:
    """log max(filters |rfft(hann frame)|^2, floor), natural.  window, hop: seconds.  Silence is log floor throughout.

    >>> log_mel(torch.zeros(1, 8000), rate=8000, mels=20).shape
    torch.Size([1, 20, 98])
    """
    length = round(window * rate)
    cut = frames(x, length=length, hop=round(hop * rate)) * torch.hann_window(length, device=x.device)
    fft = 1 << max(0, length - 1).bit_length()
    power = torch.fft.rfft(cut, n=fft).abs().square()
    filters = mel_filters(mels, rate=rate, fft=fft, low=low, high=high, scale=scale).to(x.device)
    return (power @ filters.T).clamp_min(floor).log().transpose(1, 2)


def _known(scale: Scale) -> Scale:
    if scale not in get_args(Scale):
        raise ValueError(f"scale is one of {', '.join(get_args(Scale))}; got {scale!r}")
    return scale
