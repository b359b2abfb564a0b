"""Every change that is made to PyTorch at run time works, and is still needed."""

import re

import pytest
import torch
import torch._tensor_str

from torch_tpu import patches


def test_each_patch_is_in_place_and_names_a_test_here():
    for patch in patches.PATCHES:
        assert getattr(patch.owner, patch.name) is not patches.ORIGINALS[patch.name]
        file, test = patch.test.split("::")
        assert file == "tests/package/test_patches.py" and test in globals()
    before = [getattr(p.owner, p.name) for p in patches.PATCHES]
    patches.apply()
    assert before == [getattr(p.owner, p.name) for p in patches.PATCHES]


def test_dlpack_device_needs_patch():
    x = torch.ones(2, device="tpu")
    assert x.__dlpack_device__() == (torch.utils.dlpack.DLDeviceType.kDLExtDev, 0)
    assert torch.ones(2).__dlpack_device__() == (torch.utils.dlpack.DLDeviceType.kDLCPU, 0)
    with pytest.raises(ValueError, match="Unknown device type tpu"):
        patches.ORIGINALS["__dlpack_device__"](x)


def test_printing_needs_patch():
    x = torch.linspace(-3, 3, 24, device="tpu").reshape(4, 6)
    before = torch.tpu.stats()
    for view in (x, x.T, x[1:, ::2], x[0, 0], x.expand(2, 4, 6)):
        assert re.sub(r",\s+device='tpu:0'", "", repr(view)) == repr(view.cpu())
    assert "grad_fn=<MulBackward0>" in repr(torch.ones(2, device="tpu", requires_grad=True) * 1)
    repr(x > 0), repr(torch.view_as_complex(x.reshape(12, 2)).conj())
    after = torch.tpu.stats()
    # The product above is the one program of this test that may be new, the comparison the other.
    assert after["compiles"] + after["disk_hits"] - before["compiles"] - before["disk_hits"] <= 5
    executed = torch.tpu.execute_count()
    repr(x)
    assert torch.tpu.execute_count() == executed
    patches.ORIGINALS["_tensor_str"](x, 0)
    assert torch.tpu.execute_count() > executed


def test_share_memory_needs_patch():
    x = torch.ones(2, device="tpu")
    for share in (x.share_memory_, x.untyped_storage().share_memory_, torch.nn.Linear(2, 2).tpu().share_memory):
        with pytest.raises(NotImplementedError, match="cannot be shared between processes"):
            share()
    assert torch.ones(2).share_memory_().is_shared()
    assert patches.ORIGINALS["share_memory_"](x.untyped_storage()) is not None


def test_sending_a_device_tensor_to_another_process_is_an_error():
    from multiprocessing.reduction import ForkingPickler

    with pytest.raises((RuntimeError, NotImplementedError)):
        ForkingPickler.dumps(torch.ones(2, device="tpu"))


def test_compile_needs_patch():
    x = torch.ones(3, device="tpu")
    assert torch.compile(lambda x: x + 1)(x).tolist() == [2.0] * 3
    wrapper = torch._TorchCompileInductorWrapper("default", None, None)
    module = torch.fx.symbolic_trace(lambda x: x + 1)
    with pytest.raises(Exception, match=r"tpu|jax"):
        patches.ORIGINALS["__call__"](wrapper, module, [x])(x)


def test_tracing_needs_patch():
    from torch._dynamo import trace_rules

    code = torch.tpu.get_rng_state.__code__
    torch.compile(lambda x: x)
    assert trace_rules.check_file(code.co_filename).skipped
    rule = next(d for d in trace_rules.SKIP_DIRS if "torch_tpu" in d)
    trace_rules.SKIP_DIRS.remove(rule)
    trace_rules._recompile_re()
    try:
        assert not trace_rules.check_file(code.co_filename).skipped
    finally:
        trace_rules.add("torch_tpu")


def test_random_numbers_under_a_forked_generator_compile():
    def draw(x):
        with torch.random.fork_rng(["tpu:0"], device_type="tpu"):
            torch.manual_seed(3)
            return x + torch.rand_like(x)

    x = torch.zeros(4, device="tpu")
    assert torch.equal(torch.compile(draw)(x).cpu(), draw(x).cpu())
