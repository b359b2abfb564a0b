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
from torch_tpu.compile.graphs import Settings, compiler

__all__ = ["backend"]

dynamo.prepare()

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def _settings(mode: str | None, options: dict[str, Any] | None) -> Settings:
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"torch.compile: mode {mode!r} is unknown on tpu, expected one of {', '.join(MODES)}")
    options = dict(options or {})
    xla = options.pop("xla", {})
    if options:
        raise RuntimeError(f"torch.compile: option {next(iter(options))!r} is unknown on tpu, expected xla")
    if not isinstance(xla, dict):
        raise RuntimeError(f"torch.compile: option 'xla' must be a dict of XLA options, got {type(xla).__name__}")
    for name, value in xla.items():
        if not isinstance(name, str) or not isinstance(value, (bool, int, float, str)):
            raise RuntimeError(f"torch.compile: XLA option {name!r} must be a bool, int, float or str, got {value!r}")
    return Settings(_is_fullgraph(), xla)


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
    ``options={"xla": {name: value}}`` are options of XLA for these programs (bool, int, float or str).

    Raises:
        RuntimeError: an unknown mode or option.
        ValueError: at the first call, an option that the engine does not know.
        NotImplementedError: with ``fullgraph=True``, at the first call, an op that cannot be part of a program.
    """
    compile_graph = compiler(_settings(mode, options))
    call: Callable[..., Any] = aot_autograd(
        fw_compiler=compile_graph("forward"),
        bw_compiler=compile_graph("backward"),
        inference_compiler=compile_graph("inference"),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )(module, inputs)
    return call
