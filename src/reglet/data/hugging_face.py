"""Data sets of Hugging Face, from disk or by name: read lazily, with their own splits."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reglet.data.decode import open_file
from reglet.data.files import Known, numbered

IMAGE, LABEL, DOMAIN = ("image", "img", "jpg", "png"), ("label", "labels", "fine_label", "cls"), ("domain",)


class HuggingFaceFiles:
    """One split.  Images stay encoded, in the file that the library maps."""

    lengths = None

    def __init__(self, data: Any, *, name: str) -> None:
        from datasets import Image

        kinds = data.features
        image = next((c for c in (*IMAGE, *kinds) if isinstance(kinds.get(c), Image)), None)
        if image is None:
            raise ValueError(f"hf/{name} has the columns {', '.join(kinds)}, and none of them is of images")
        self.name, self.fingerprint = name, str(data._fingerprint)
        self.rows, self.column = data.select_columns([image]).cast_column(image, Image(decode=False)), image
        self.known = Known(*_column(data, LABEL), *_column(data, DOMAIN))

    def __len__(self) -> int:
        return len(self.rows)

    def file_name(self, i: int) -> str:
        return f"{i:08}"

    def open(self, i: int) -> Any:
        found = self.rows[i][self.column]
        return BytesIO(found["bytes"]) if found["bytes"] is not None else open_file(found["path"])


def open_hugging_face(name: str) -> dict[str, Any]:
    """Split -> data.  name: a folder made by `save_to_disk` or cloned from the hub, or a name on the hub."""
    try:
        import datasets
    except ImportError as error:
        raise ImportError(f"hf/{name} needs Hugging Face's library: pip install 'reglet[hf]'") from error
    folder = Path(name)
    saved = any((folder / file).is_file() for file in ("dataset_dict.json", "state.json"))
    try:
        found = datasets.load_from_disk(name) if saved else datasets.load_dataset(name)
    except Exception as error:  # of the network there are many
        if folder.is_dir():
            raise ValueError(f"{folder} cannot be read as a Hugging Face set: {error}") from error
        raise ValueError(
            f"there is no folder {name!r}, and the hub gave no set of that name ({type(error).__name__}: {error})."
            f" Without a network: where there is one, datasets.load_dataset({name!r}).save_to_disk(FOLDER); bring the "
            "folder here, and write data=hf/FOLDER"
        ) from error
    return dict(found) if isinstance(found, dict) else {"train": found}


def _column(data: Any, names: tuple[str, ...]) -> tuple[torch.Tensor | None, list[str] | None]:
    """Numbers by the names that the set has for them; words sorted.  Nothing where one is -1, as in a secret test."""
    name = next((c for c in names if c in data.features), None)
    if name is None:
        return None, None
    values = data.select_columns([name]).with_format("numpy")[:][name]
    known = getattr(data.features[name], "names", None)
    if known is None:
        return numbered([str(value) for value in values])
    return (None, None) if values.min() < 0 else (torch.from_numpy(values.astype(np.int64)), list(known))
