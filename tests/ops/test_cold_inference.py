"""The first use of a common op must not import PyTorch's Python meta functions: they cost a third of a second to a second."""

import subprocess
import sys

SCRIPT = """
import sys
import torch, torch_tpu
import torch.nn.functional as F

x = torch.arange(12.0).reshape(4, 3).to("tpu")
i = torch.tensor([0, 2]).to("tpu")
images = torch.zeros(1, 1, 6, 6).to("tpu")
calls = {
    "index": lambda: x[i],
    "index_put": lambda: x.clone().index_put((i,), x[:2]),
    "assignment": lambda: x.clone().__setitem__(i, x[:2]),
    "gather": lambda: x.gather(0, i.reshape(1, 2)),
    "scatter": lambda: x.scatter(0, i.reshape(1, 2), 1.0),
    "index_add": lambda: x.index_add(0, i, x[:2]),
    "index_select": lambda: x.index_select(0, i),
    "embedding": lambda: F.embedding(i, x),
    "embedding_bag": lambda: F.embedding_bag(i, x, i[:1]),
    "sort": lambda: torch.sort(x),
    "topk": lambda: torch.topk(x, 2),
    "searchsorted": lambda: torch.searchsorted(x[0], x),
    "cat": lambda: torch.cat([x, x]),
    "stack": lambda: torch.stack([x, x]),
    "flip": lambda: x.flip(0),
    "roll": lambda: x.roll(1, 0),
    "repeat": lambda: x.repeat(2, 2),
    "pad": lambda: F.pad(x, (1, 1)),
    "max_pool2d": lambda: F.max_pool2d(images, 2),
    "avg_pool2d": lambda: F.avg_pool2d(images, 2),
    "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(images, 2),
    "interpolate": lambda: F.interpolate(images, 3, mode="bilinear"),
    "grid_sample": lambda: F.grid_sample(images, torch.zeros(1, 2, 2, 2, device="tpu"), align_corners=False),
}
for name, call in calls.items():
    call()
    assert "sympy" not in sys.modules, name
"""


def test_no_python_inference():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
