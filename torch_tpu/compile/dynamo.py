"""What Dynamo must know of this package before it traces user code. Imported when ``torch.compile`` is called first."""

import functools

from torch._dynamo import trace_rules


@functools.cache
def prepare() -> None:
    """Makes Dynamo call the functions of this package instead of tracing into them, as it does with PyTorch's own."""
    trace_rules.add("torch_tpu")
