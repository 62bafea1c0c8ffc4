"""Checks of the features that a probe gets."""

from torch import Tensor

from reglet import check


def check_features(train: Tensor, labels: Tensor, test: Tensor) -> None:
    check.tensor("training features", train, None, None)
    check.tensor("test features", test, None, None)
    if not isinstance(labels, Tensor) or len(train) != labels.numel():
        got = labels.numel() if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"a probe needs one label for each training feature, got {len(train)} and {got}")
    if train.shape[1] != test.shape[1]:
        shapes = f"{tuple(train.shape)} and {tuple(test.shape)}"
        raise ValueError(f"training and test features must agree in d, got {shapes}")
    check.all_finite(training_features=train, test_features=test)
    check.class_numbers(len(train), labels=labels)


def check_classes(labels: Tensor) -> None:
    """Raise unless there are two classes, and at least as many samples as classes."""
    present, classes = len(labels.unique()), int(labels.max()) + 1
    if present < 2:
        raise ValueError(f"all {len(labels)} training labels are {int(labels[0])}: there is one class only")
    if len(labels) < classes:
        raise ValueError(f"{len(labels)} training features are fewer than the {classes} classes that labels count")
