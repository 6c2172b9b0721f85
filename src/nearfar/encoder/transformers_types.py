"""The classes of transformers that nearfar uses, imported with the garbage collector paused, which is faster."""

from nearfar.runtime.garbage_collection import paused

with paused():
    from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["AttentionInterface", "PreTrainedModel", "PreTrainedTokenizerBase", "PretrainedConfig"]
