"""A network that names the class of a clip, by cross-entropy; accuracy and macro F1 on clips that it has not seen."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from reglet.engine.build import latent_loss, mixed
from reglet.engine.feed import TensorFeed
from reglet.engine.monitor import AtEnd, Trained, class_logits
from reglet.method import Batch
from reglet.methods import Supervised
from reglet.probes.metrics import accuracy, macro_f1
from reglet.tasks.audio.config import NETWORKS, AudioConfig
from reglet.tasks.audio.data import Clips, made_clips, prepared, read_folder, read_npz
from reglet.tasks.batches import digest, shuffled
from reglet.tasks.task import Setup


class AudioTask:
    """classify clips of sound, from log-mel features or .wav files"""

    config = AudioConfig
    main = "accuracy"

    def load(self, config: AudioConfig) -> Clips:
        """A .npz, a folder of .wav, or tones."""
        x, y, tested, classes = _reader(config)()
        return prepared(x, y, tested, classes=classes, frames=config.frames, pool=config.pool)

    def setup(self, config: AudioConfig, data: Clips) -> Setup:
        network = NETWORKS[config.model](mels=data.x.shape[1], **config.of("model"))
        classes = len(data.classes)
        method = Supervised(network, classes=classes, latent=latent_loss(config, network.dim))
        x, y = data.x[data.train], data.y[data.train]

        def batch(index: Tensor, _: torch.Generator) -> Batch:
            return Batch([x[index]], labels=y[index])

        mark = digest(data.x, data.y, data.test)
        return Setup(
            mixed(config, method, classes=classes),
            TensorFeed(batch, shuffled(len(x), config), name=config.data or "tones", fingerprint=mark),
            [AtEnd(partial(scores, data=data))],
            sim_blocks=list(network.sim_blocks),
            channel_dim=1,
        )


def scores(model: Trained, *, data: Clips) -> dict[str, float]:
    """accuracy, and the mean of the classes' F1, on the test clips."""
    x, truth = data.x[data.test], data.y[data.test].to(model.device)
    logits = torch.cat([model.call(class_logits, part) for part in x.split(256)])
    return {"accuracy": accuracy(logits, truth), "f1": macro_f1(logits.argmax(1), truth)}


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
