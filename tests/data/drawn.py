"""Image files to test with."""

from pathlib import Path

import numpy as np
from PIL import Image


def noise(seed: int, height: int = 24, width: int = 32) -> Image.Image:
    """A picture that no other seed has."""
    small = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def fill(root: Path, *folders: str, each: int = 10, seed: int = 0, suffix: str = "png") -> Path:
    """`each` pictures in every folder, all different and of one size."""
    for k, folder in enumerate(folders):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            noise(1000 * seed + 100 * k + i).save(root / folder / f"{i:02}.{suffix}")
    return root
