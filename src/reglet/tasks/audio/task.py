"""A network that names the class of a clip, by cross-entropy; accuracy and macro F1 on clips that it has not seen."""

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reglet.networks.audio import TDNN, CAMPPlus, ERes2Net, Res2Net
from reglet.probes.metrics import accuracy, macro_f1
from reglet.tasks.audio.clips import Clips, prepared
from reglet.tasks.audio.config import AudioConfig
from reglet.tasks.audio.made import made_clips
from reglet.tasks.audio.npz import read_npz
from reglet.tasks.audio.wav import read_folder
from reglet.tasks.config import AUTO
from reglet.tasks.fit import batches, fit
from reglet.tasks.task import Outcome

NETWORKS: dict[str, type[TDNN] | type[Res2Net] | type[ERes2Net] | type[CAMPPlus]] = {
    "tdnn": TDNN,
    "res2net": Res2Net,
    "eres2net": ERes2Net,
    "campplus": CAMPPlus,
}


class AudioTask:
    """classify clips of sound, from log-mel features or .wav files"""

    config = AudioConfig
    main = "accuracy"

    def load(self, config: AudioConfig) -> Clips:
        """A .npz, a folder of .wav, or tones."""
        x, y, tested, classes = _reader(config)()
        return prepared(x, y, tested, classes=classes, frames=config.frames, pool=config.pool)

    def train(self, config: AudioConfig, data: Clips, *, seed: int, sim: bool) -> Outcome:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = NETWORKS[config.model](mels=data.x.shape[1], classes=len(data.classes))
        x, y = data.x[data.train], data.y[data.train]

        def loss(some: Tensor) -> Tensor:
            return F.cross_entropy(network(x[some]), y[some])

        where = list(network.sim_blocks) if config.sim in ("", AUTO) else config.sim
        blocks = fit(
            network,
            loss,
            batches(len(x), batch=config.batch, steps=config.steps, seed=seed),
            config=config,
            blocks=where if sim else None,
            example=x[: config.batch],
            channel_dim=1,
            seed=seed,
        )
        scores = predict(network, data.x[data.test])
        truth = data.y[data.test]
        return Outcome({"accuracy": accuracy(scores, truth), "f1": macro_f1(scores.argmax(1), truth)}, network, blocks)


@torch.no_grad()
def predict(network: nn.Module, x: Tensor) -> Tensor:
    network.eval()
    return torch.cat([network(part) for part in x.split(256)])


def _reader(config: AudioConfig) -> Callable[[], tuple[Tensor, Tensor, Tensor, tuple[str, ...]]]:
    path = Path(config.data)
    if not config.data:
        return lambda: made_clips(mels=config.mels, window=config.window, hop=config.hop)
    if path.is_dir():
        if config.fold:
            raise ValueError(f"fold={config.fold} was asked for, and {path} is a folder: folds are those of a .npz")
        return lambda: read_folder(path, mels=config.mels, window=config.window, hop=config.hop, frames=config.frames)
    if not path.exists():
        raise FileNotFoundError(f"no data at {path}: expected a .npz of log-mel clips or a folder class/*.wav")
    return lambda: read_npz(path, fold=config.fold)
