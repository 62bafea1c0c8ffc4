"""Whether weights of the Hugging Face Hub are on this machine, or can be downloaded."""

import os
import socket
from urllib.parse import urlparse

SECONDS = 5.0


def in_cache(repository: str, *files: str) -> bool:
    """Whether one of `files` was downloaded before."""
    from huggingface_hub import try_to_load_from_cache

    return any(isinstance(try_to_load_from_cache(repository, file), str) for file in files)


def reachable() -> bool:
    """Whether the hub answers.  Behind a proxy this cannot be known, and counts as yes.

    The libraries themselves try for a minute before they give up.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    if any(os.environ.get(key) for key in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    where = urlparse(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    try:
        with socket.create_connection((where.hostname or "huggingface.co", where.port or 443), timeout=SECONDS):
            return True
    except OSError:
        return False
