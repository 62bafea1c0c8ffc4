"""Log-mel clips from a folder of .wav files: class/*.wav, or train/class/*.wav and test/class/*.wav."""

import wave
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from reglet.networks.audio.mel import FLOOR, log_mel
from reglet.tasks.audio.clips import fitted

EVERY = 5  # without test/, one clip in five of each class is tested


def read_wav(path: Path) -> tuple[Float[Tensor, " samples"], int]:
    """Samples in [-1, 1], channels averaged, and their rate.  PCM of 8, 16, 24 or 32 bits."""
    try:
        with wave.open(str(path), "rb") as file:
            rate, channels, width = file.getframerate(), file.getnchannels(), file.getsampwidth()
            raw = np.frombuffer(file.readframes(file.getnframes()), dtype=np.uint8)
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{path} cannot be read as PCM .wav: {error}") from error
    if not len(raw):
        raise ValueError(f"{path} holds no samples")
    if width == 1:
        values = raw.astype(np.float32) / 128 - 1
    else:  # little-endian integers, put into the upper bytes of 32 bits
        wide = np.zeros((len(raw) // width, 4), dtype=np.uint8)
        wide[:, 4 - width :] = raw.reshape(-1, width)
        values = wide.view("<i4")[:, 0].astype(np.float32) / 2**31
    return torch.from_numpy(values.reshape(-1, channels).mean(1)), rate


def read_folder(
    root: Path, *, mels: int, window: float, hop: float, frames: int
) -> tuple[Tensor, Tensor, Tensor, tuple[str, ...]]:
    """Clips, labels, whether each is tested, and the names of the classes.

    All files have one sample rate.  A clip shorter than `frames` (0: than the longest) ends in silence, a longer one is
    cut; a silent clip is the floor of the logarithm throughout.
    """
    files, classes = _files(root)
    clips, labels, tested = [], [], []
    first: int | None = None
    for path, label, held in files:
        samples, rate = read_wav(path)
        first = first or rate
        if rate != first:
            raise ValueError(f"{path} has {rate} samples a second, and {files[0][0]} has {first}: resample to one rate")
        clips.append(log_mel(samples[None], rate=rate, mels=mels, window=window, hop=hop))
        labels.append(label)
        tested.append(held)
    longest = frames or max(clip.shape[2] for clip in clips)
    silence = float(np.log(FLOOR))
    x = torch.cat([fitted(clip, longest, silence=silence) for clip in clips])
    return x, torch.tensor(labels), torch.tensor(tested), classes


def _files(root: Path) -> tuple[list[tuple[Path, int, bool]], tuple[str, ...]]:
    """(path, class, tested) in order."""
    parts = [root / "train", root / "test"]
    given = all(part.is_dir() for part in parts)
    found: dict[str, list[tuple[Path, bool]]] = {}
    for part in parts if given else [root]:
        for folder in sorted(p for p in part.iterdir() if p.is_dir()):
            paths = sorted(p for p in folder.iterdir() if p.suffix.lower() == ".wav")
            some = [(p, part.name == "test" if given else i % EVERY == EVERY - 1) for i, p in enumerate(paths)]
            found.setdefault(folder.name, []).extend(some)
    found = {name: clips for name, clips in found.items() if clips}
    if not found:
        raise ValueError(f"no class/*.wav in {root}")
    for name, clips in found.items():
        if not given and len(clips) < EVERY:
            raise ValueError(f"{root / name} has {len(clips)} clips; at least {EVERY}, of which one is tested")
    classes = tuple(sorted(found))
    return [(path, i, held) for i, name in enumerate(classes) for path, held in found[name]], classes
