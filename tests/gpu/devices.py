"""The device of a test: small cases on the CPU at night, where they show that the tests work, all cases on a GPU."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

GPU = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="There is no GPU: torch sees no CUDA device."),
)


def on_each_device(names: str, *, small: Sequence[Any], whole: Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrise ``device`` and ``names``: with the values ``small`` on the CPU and ``whole`` on a GPU."""

    def values(case: Any) -> tuple[Any, ...]:
        return case if isinstance(case, tuple) else (case,)

    def label(device: str, case: Any) -> str:
        return "-".join([device, *(str(value).removeprefix("torch.") for value in values(case))])

    on_cpu = [pytest.param("cpu", *values(case), id=label("cpu", case), marks=pytest.mark.nightly) for case in small]
    on_gpu = [pytest.param("cuda", *values(case), id=label("cuda", case), marks=GPU) for case in whole]
    return pytest.mark.parametrize(f"device, {names}".rstrip(", "), [*on_cpu, *on_gpu])


class Repeater:
    """Repeats a computation where a GPU would repeat what it has recorded."""

    def __init__(self, _: torch.device) -> None:
        pass

    @contextmanager
    def preparing(self) -> Iterator[None]:
        state = torch.get_rng_state()
        yield
        torch.set_rng_state(state)

    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        return compute

    def upload(self, values: torch.Tensor, into: torch.Tensor) -> None:
        into.copy_(values)


class NoReadingBack(TorchDispatchMode):
    """Refuses operations whose result Python reads or whose shape depends on values; a CUDA graph cannot have them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "equal"), name
        return func(*args, **(kwargs or {}))


class StrictRepeater(Repeater):
    """A repeater of computations that read nothing back."""

    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        def repeat() -> None:
            with NoReadingBack():
                compute()

        return repeat
