"""The classes of transformers that nearfar's modules name. They import them from here, where that costs less."""

from nearfar.runtime.garbage_collection import paused

with paused():
    from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["AttentionInterface", "PreTrainedModel", "PreTrainedTokenizerBase", "PretrainedConfig"]
