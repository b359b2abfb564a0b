import pytest
import torch

import torch_tpu  # noqa: F401 (registers the device where autoload is off)


@pytest.fixture
def without_fallback():
    """For ops that have kernels of their own: a fallback would compare the CPU with itself."""
    with torch.tpu.fallback("error"):
        yield
