"""nearfar fine-tunes sentence encoders by contrastive learning and proves that they got better.

>>> from nearfar import Encoder
>>> from nearfar.train import train
>>> from nearfar.evaluate import evaluate
>>> from nearfar.compare import compare

``Encoder`` is loaded when first used: importing nearfar costs no torch.
"""

from typing import TYPE_CHECKING

from nearfar.types import NearfarError

if TYPE_CHECKING:
    from nearfar.encoder.encoder import Encoder

__all__ = ["Encoder", "NearfarError"]


def __getattr__(name: str) -> object:
    if name == "Encoder":
        from nearfar.encoder.encoder import Encoder

        return Encoder
    raise AttributeError(f"module 'nearfar' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
