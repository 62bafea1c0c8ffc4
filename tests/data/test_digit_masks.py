import torch
import torch.nn.functional as F

from reglet.data import canvas_digits
from reglet.data.digits import masked_digits


def test_masks_are_of_the_ink_and_say_the_digit() -> None:
    found = masked_digits()
    every = canvas_digits("all")
    assert torch.equal(found.digits.images, every.images)
    ink = found.masks > 0
    share = ink.flatten(1).float().mean(1)
    assert 0.01 < share.min() < share.max() < 0.4
    assert torch.equal(found.masks.flatten(1).max(1).values.long(), 1 + every.labels)
    near = F.max_pool2d(ink[:, None].float(), 7, stride=1, padding=3)[:, 0] > 0
    apart = (every.images.float() - found.grounds).abs().mean(1)
    assert apart[~near].max() < 5  # away from the ink there is the ground, but for a stroke that fades
    light = every.images.float().mean(1)
    brighter = torch.stack([image[i].mean() > image[~i].mean() for image, i in zip(light, ink, strict=True)])
    assert brighter.all()


def test_another_seed_places_the_digits_elsewhere() -> None:
    assert not torch.equal(masked_digits(seed=1).masks, masked_digits().masks)
