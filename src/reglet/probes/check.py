"""What every probe asks of the features that it is given."""

import torch
from torch import Tensor


def check_features(train: Tensor, labels: Tensor, test: Tensor) -> None:
    if len(train) != len(labels) or not len(train):
        raise ValueError(f"a probe needs one label for each training feature, got {len(train)} and {len(labels)}")
    if train.shape[1:] != test.shape[1:] or not len(test):
        shapes = f"{tuple(train.shape)} and {tuple(test.shape)}"
        raise ValueError(f"training and test features must agree in d, got {shapes}")
    for name, x in (("training", train), ("test", test)):
        if not bool(torch.isfinite(x).all()):
            raise ValueError(f"{int((~torch.isfinite(x)).sum())} of {x.numel()} {name} features are not finite")
    if int(labels.min()) < 0:
        raise ValueError(f"labels are class numbers from 0, got {int(labels.min())}")


def check_classes(labels: Tensor) -> None:
    """What a probe that is fitted asks besides: something to tell apart, and samples of it."""
    present, classes = len(labels.unique()), int(labels.max()) + 1
    if present < 2:
        raise ValueError(f"all {len(labels)} training labels are {int(labels[0])}: there is one class only")
    if len(labels) < classes:
        raise ValueError(f"{len(labels)} training features are fewer than the {classes} classes that labels count")
