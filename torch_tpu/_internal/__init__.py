"""Names that existing scripts import from an earlier package; shims over ``torch.tpu``."""

from torch_tpu._internal import execution_mode as execution_mode
from torch_tpu._internal import sync as sync
