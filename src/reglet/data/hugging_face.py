"""Data sets of Hugging Face, by name or from disk: read lazily, with their own splits."""

from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from reglet.data.decode import open_file
from reglet.data.files import Known, numbered

IMAGE, LABEL, DOMAIN = ("image", "img", "jpg", "png"), ("label", "labels", "fine_label", "cls"), ("domain",)


class HuggingFaceFiles:
    """One split.  Images stay encoded, in the file that the library maps."""

    def __init__(self, data: Any, *, name: str) -> None:
        from datasets import Image  # type: ignore[import-not-found,unused-ignore]

        columns = data.features
        image = next((c for c in IMAGE if c in columns), None)
        if image is None:
            raise ValueError(f"hf/{name} has the columns {', '.join(columns)}; expected one of {', '.join(IMAGE)}")
        self.name, self.fingerprint = name, str(data._fingerprint)
        self.rows = data.select_columns([image]).cast_column(image, Image(decode=False)).rename_column(image, "image")
        self.known = Known(*_column(data, LABEL), *_column(data, DOMAIN))

    def __len__(self) -> int:
        return len(self.rows)

    def file_name(self, i: int) -> str:
        return f"{i:08}"

    def open(self, i: int) -> Any:
        found = self.rows[i]["image"]
        return BytesIO(found["bytes"]) if found["bytes"] is not None else open_file(found["path"])

    def length(self, i: int) -> int:
        return 0


def open_hugging_face(name: str) -> dict[str, Any]:
    """Split -> data, of the set saved in the folder `name`, or of that name on the hub."""
    try:
        import datasets  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ImportError(f"hf/{name} needs Hugging Face's library: pip install datasets") from error
    found = datasets.load_from_disk(name) if Path(name).is_dir() else datasets.load_dataset(name)
    return dict(found) if isinstance(found, dict) else {"train": found}


def _column(data: Any, names: tuple[str, ...]) -> tuple[torch.Tensor | None, list[str] | None]:
    """Numbers by the names that the set has for them; words sorted."""
    name = next((c for c in names if c in data.features), None)
    if name is None:
        return None, None
    values = data[name][:]
    known = getattr(data.features[name], "names", None)
    if known is not None:
        return torch.tensor(values), list(known)
    return numbered([str(value) for value in values])
