"""``torch.compile`` for tensors on ``tpu``: one program per graph.

Dynamo finds ``backend`` under the name "tpu" (entry point ``torch_dynamo_backends``); graphs with tensors on ``tpu`` come
here from the default backend too (``torch_tpu/patches.py``). Nothing here is imported before the first compile.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from torch_tpu.compile import dynamo
from torch_tpu.compile.graphs import compiler

__all__ = ["backend"]

dynamo.prepare()

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def _checked(mode: str | None, options: dict[str, Any] | None) -> None:
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"torch.compile: mode {mode!r} is unknown on tpu, expected one of {', '.join(MODES)}")
    for name in options or ():
        raise RuntimeError(f"torch.compile: option {name!r} is unknown on tpu, which has none yet")


def _is_fullgraph() -> bool:
    """Was ``fullgraph=True`` asked for? Dynamo keeps that from backends."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    translator = InstructionTranslator.current_tx()
    return bool(getattr(translator, "one_graph", False))


def backend(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """The Dynamo backend "tpu".

    AOTAutograd makes functional graphs of ATen calls out of ``module``: one for inference, or one for the forward and
    one for the backward pass. Each becomes one program when it is called first, and one more for every other layout of
    arguments (sizes, strides, sharing). ``mode`` is accepted and changes nothing: there is one way to compile.

    Raises:
        RuntimeError: an unknown mode or option.
        NotImplementedError: with ``fullgraph=True``, at the first call, an op that cannot be part of a program.
    """
    _checked(mode, options)
    compile_graph = compiler(_is_fullgraph())
    call: Callable[..., Any] = aot_autograd(
        fw_compiler=compile_graph("forward"),
        bw_compiler=compile_graph("backward"),
        inference_compiler=compile_graph("inference"),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )(module, inputs)
    return call
