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
