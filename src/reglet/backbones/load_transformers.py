"""transformers' vision models by name or from a folder, with a check that no weight is missing."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reglet.backbones.hugging_face_hub import reachable
from reglet.backbones.protocol import Grid
from reglet.backbones.transformers import Pool, Transformers, has_dense_pooler, vision_part

PROCESSOR = "preprocessor_config.json"
STEPS = ("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_flip_channel_order")


def load_transformers(
    name: str, *, size: int | Grid | None = None, in_channels: int = 3, pretrained: bool = True, pool: Pool = "auto"
) -> Transformers:
    """The vision model `name` of the Hugging Face Hub, or in a folder that transformers saved.

    pretrained: False builds it from its configuration, with random weights.  Weights are read from safetensors only.
    A head that the weights have besides, such as a classifier, is left out.

    >>> import transformers
    >>> from tempfile import TemporaryDirectory
    >>> sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    >>> model = transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=32, patch_size=8))
    >>> with TemporaryDirectory() as folder:
    ...     model.save_pretrained(folder)
    ...     load_transformers(folder).dim
    32
    """
    transformers = _import(name)
    config = _fetch(name, transformers.AutoConfig.from_pretrained)
    if hasattr(config, "mask_ratio"):
        config.mask_ratio = 0.0
    inner = getattr(config, "vision_config", config)
    if in_channels != getattr(inner, "num_channels", 3):
        if pretrained:
            raise ValueError(f"hf/{name} takes images of {inner.num_channels} channels, and these have {in_channels}")
        inner.num_channels = in_channels
    with _quiet(transformers):
        if pretrained:
            options = {"config": config, "use_safetensors": True, "output_loading_info": True}
            model, info = _fetch(name, transformers.AutoModel.from_pretrained, **options)
            _require_whole(name, model, info)
        else:
            model = transformers.AutoModel.from_config(config)
    return _backbone(model, size=size, pool=pool)


def from_architecture(config: dict[str, Any], *, size: int | Grid | None = None) -> Transformers:
    """The model of this configuration, with random weights; see `reglet.backbones.transformers.architecture`."""
    transformers = _import(str(config.get("model_type")))
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**config))
    return _backbone(model, size=size)


def _backbone(model: Any, *, size: int | Grid | None, pool: Pool = "auto") -> Transformers:
    model = vision_part(model)
    if has_dense_pooler(model):  # never used here: a parameter without a gradient would stop a distributed run
        model.pooler = None
    return Transformers(model.float(), size=size, pool=pool)


def _import(name: str) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ImportError(f"hf/{name} needs transformers: pip install 'reglet[transformers]'") from error
    return transformers


def _fetch(name: str, load: Any, **options: Any) -> Any:
    """From the folder or the cache; from the network only if it is in neither."""
    for alone in (True, False):
        if not alone and (Path(name).exists() or not reachable()):
            break
        try:
            return load(name, trust_remote_code=False, local_files_only=alone, **options)
        except (OSError, ValueError) as error:
            failed = error
    raise ValueError(_not_there(name, failed)) from failed


def processor_config(name: str) -> dict[str, Any] | None:
    """How images are prepared for the model `name`: what its image processor says, or its preprocessor_config.json
    where the processor cannot be made here (some need torchvision); None where it has neither."""
    transformers = _import(name)
    try:
        with _quiet(transformers):
            found = _fetch(name, transformers.AutoImageProcessor.from_pretrained)
        asked = {key: bool(getattr(found, key, False)) for key in STEPS}  # those that it leaves out it does not take
        return {key: value for key, value in found.to_dict().items() if value is not None} | asked
    except (ImportError, ValueError):
        return _stored_processor(name)


def _stored_processor(name: str) -> dict[str, Any] | None:
    file: Any = Path(name) / PROCESSOR
    if not Path(name).exists():
        from huggingface_hub import try_to_load_from_cache

        file = try_to_load_from_cache(name, PROCESSOR)
    if not isinstance(file, str | Path) or not Path(file).is_file():
        return None
    return dict(json.loads(Path(file).read_text(encoding="utf-8")))


def _not_there(name: str, error: Exception) -> str:
    said = " ".join(str(error).split())
    said = said if len(said) < 300 else f"{said[:300]} ..."
    if Path(name).exists():
        return f"{name} is no folder of a vision model that transformers saved with safetensors: {said}"
    return (
        f"hf/{name} could not be loaded: {said} Without network, save it where there is one, with "
        f"AutoModel.from_pretrained({name!r}).save_pretrained('FOLDER') and the same of AutoImageProcessor; bring the "
        "folder here, and give hf/FOLDER"
    )


def _require_whole(name: str, model: Any, info: dict[str, Any]) -> None:
    """Raise if weights are missing, or if there are more than a part of the model takes."""
    missing = [key for key in info["missing_keys"] if "pooler.dense" not in key]
    parts = {child for child, _ in model.named_children()}
    prefix = f"{model.base_model_prefix}."
    extra = [key for key in info["unexpected_keys"] if key.removeprefix(prefix).split(".")[0] in parts]
    if missing or extra:
        lists = {"missing": sorted(missing), "extra": sorted(extra)}
        said = "; ".join(
            f"{what}: {', '.join(keys[:8])}{f' and {len(keys) - 8} more' if len(keys) > 8 else ''}"
            for what, keys in lists.items()
            if keys
        )
        raise ValueError(f"the weights of hf/{name} do not fit {type(model).__name__}: {said}")


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Silences transformers, whose reports are checked here."""
    log = transformers.utils.logging
    before, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(before)
        if bars:
            log.enable_progress_bar()
