"""What the task reads: clips of sound as log-mel features, from a .npz, a folder of .wav, or tones."""

import math
import wave
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

from reglet.networks.audio.mel import FLOOR, log_mel


class Clips(NamedTuple):
    """Every band of x has mean 0 and deviation 1 over the training clips."""

    x: Float[Tensor, "n mels t"]
    y: Int64[Tensor, " n"]
    train: Int64[Tensor, " a"]
    test: Int64[Tensor, " b"]
    classes: tuple[str, ...]


def prepared(
    x: Float[Tensor, "n mels t"],
    y: Int64[Tensor, " n"],
    tested: Tensor,
    *,
    classes: tuple[str, ...],
    frames: int = 0,
    pool: int = 1,
) -> Clips:
    """Checked, brought to `frames`, averaged over `pool` bands and frames, standardised.  tested: bool, by clip."""
    if not bool(torch.isfinite(x).all()):
        bad = int((~torch.isfinite(x)).flatten(1).any(1).sum())
        raise ValueError(
            f"{bad} of {len(x)} clips have values that are not finite: give silence a floor before the log"
        )
    x = fitted(x, frames or x.shape[2], silence=float(x.min()))
    if pool > min(x.shape[1:]):
        raise ValueError(f"pool={pool} is more than the {x.shape[1]} bands or the {x.shape[2]} frames")
    x = avg_pool2d(x, pool)
    train, test = ((~tested).nonzero()[:, 0], tested.nonzero()[:, 0])
    check_parts(y, train, test, classes)
    deviation = x[train].std((0, 2), keepdim=True)
    if float(deviation.max()) < 1e-6:
        raise ValueError(f"all {len(train)} training clips are the same in every frame: they are silent")
    # a band that is silent in training stays as it is, less its mean
    return Clips(
        (x - x[train].mean((0, 2), keepdim=True)) / deviation.where(deviation > 1e-6, 1.0), y, train, test, classes
    )


def fitted(x: Float[Tensor, "n mels t"], frames: int, *, silence: float) -> Float[Tensor, "n mels frames"]:
    """The first `frames` frames; where there are fewer, silence after them."""
    x = x[:, :, :frames]
    return pad(x, (0, frames - x.shape[2]), value=silence)


def check_parts(y: Tensor, train: Tensor, test: Tensor, classes: tuple[str, ...]) -> None:
    if len(train) < 2 or not len(test):
        raise ValueError(f"expected clips to train on and to test on, got {len(train)} and {len(test)}")
    known = set(y[train].tolist())
    if len(known) < 2:
        raise ValueError(f"all {len(train)} training clips are of the class {classes[int(y[train[0]])]!r}")
    if unknown := sorted(set(y[test].tolist()) - known):
        raise ValueError(f"{classes[unknown[0]]!r} is tested and has no training clip")


CLASSES = ("falls", "rises", "stays", "trembles")
RATE, SECONDS, PER_CLASS = 4000, 0.4, 50


def made_clips(*, mels: int, window: float, hop: float) -> tuple[Tensor, Tensor, Tensor, tuple[str, ...]]:
    """200 clips of four classes under noise, every fifth tested; the same ones always."""
    g = torch.Generator().manual_seed(0)
    n = PER_CLASS * len(CLASSES)
    y = torch.arange(n) % len(CLASSES)
    t = torch.arange(round(RATE * SECONDS)) / RATE
    u = torch.rand(n, 2, generator=g)
    start = (400 + 600 * u[:, :1]).expand(n, len(t))
    slope = torch.tensor([-0.5, 0.5, 0.0, 0.0])[y][:, None] * start / SECONDS
    tremor = torch.tensor([0.0, 0.0, 0.0, 0.3])[y][:, None] * start * torch.sin(2 * math.pi * 8 * (t + u[:, 1:]))
    phase = 2 * math.pi * (start + slope * t + tremor).cumsum(1) / RATE
    x = phase.sin() + 0.3 * torch.randn(n, len(t), generator=g)
    tested = torch.arange(n) // len(CLASSES) % 5 == 4
    return log_mel(x, rate=RATE, mels=mels, window=window, hop=hop), y, tested, CLASSES


KEYS = "features (n, mels, frames) or images (n, mels, frames, 1), labels (n,), and split or fold (n,)"


def read_npz(path: Path, *, fold: int) -> tuple[Tensor, Tensor, Tensor, tuple[str, ...]]:
    """Clips, labels, whether each is tested, and the names of the classes.

    features: float (n, mels, frames).  images: the same as uint8 with an axis of one channel, 0 and 255 being the two
    values of db_range where that is given.  labels: numbers or names.  split: 0 or "train", 1 or "test".
    """
    known = _read(path)
    x = _features(path, known)
    names, y = np.unique(known["labels"], return_inverse=True)
    if "classes" in known and known["labels"].dtype.kind in "ui" and int(names.max()) < len(known["classes"]):
        names, y = known["classes"], known["labels"]
    tested = _tested(path, known, fold)
    for key, column in (("labels", y), ("fold" if fold else "split", tested)):
        if column.shape != (len(x),):
            raise ValueError(f"{path} has {len(x)} clips, and {key} of shape {column.shape}")
    return x, torch.from_numpy(y.astype(np.int64)), torch.from_numpy(tested), tuple(str(name) for name in names)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            known = {key: archive[key] for key in archive.files}
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as .npz: {error}") from error
    if not {"features", "images"} & known.keys() or "labels" not in known:
        raise ValueError(f"{path} has {', '.join(known) or 'nothing'}; expected {KEYS}")
    return known


def _features(path: Path, known: dict[str, NDArray[Any]]) -> Tensor:
    x = known["features"] if "features" in known else known["images"]
    if x.ndim == 4 and x.shape[3] == 1:
        x = x[..., 0]
    if x.ndim != 3 or 0 in x.shape:
        raise ValueError(f"{path} has clips of shape {x.shape}; expected (n, mels, frames)")
    values = torch.from_numpy(np.ascontiguousarray(x)).float()
    if x.dtype == np.uint8 and "db_range" in known:
        low, high = known["db_range"].tolist()
        return low + values / 255 * (high - low)
    return values


def _tested(path: Path, known: dict[str, NDArray[Any]], fold: int) -> NDArray[np.bool_]:
    if fold:
        if "fold" not in known:
            raise ValueError(f"fold={fold} was asked for, and {path} has no folds")
        if not bool((tested := known["fold"] == fold).any()):
            have = ", ".join(str(f) for f in np.unique(known["fold"]))
            raise ValueError(f"there is no fold {fold} in {path}; there are {have}")
        return np.asarray(tested)
    if "split" not in known:
        folds = (
            f"folds {', '.join(map(str, np.unique(known['fold'])))}: say fold=" if "fold" in known else "no fold either"
        )
        raise ValueError(f"{path} has no split to train and test by, and {folds}")
    split = known["split"]
    return np.asarray(split == ("test" if split.dtype.kind == "U" else 1))


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
