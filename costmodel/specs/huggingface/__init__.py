"""Models from HuggingFace's `config.json`."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.specs.huggingface.config import KEYS_OF_CONFIGS as KEYS_OF_CONFIGS
    from costmodel.specs.huggingface.config import from_config as from_config

door.hang(__name__)
