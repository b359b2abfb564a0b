"""Every public function says what was wrong, and the device is usable afterwards."""

import pytest
import torch

from torch_tpu._internal import execution_mode

DEVICE_FUNCTIONS = [
    "set_device",
    "synchronize",
    "get_device_name",
    "get_device_properties",
    "get_device_capability",
    "current_stream",
    "default_stream",
    "Stream",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
    "mem_get_info",
    "memory_summary",
    "get_per_process_memory_fraction",
    "get_rng_state",
]


@pytest.fixture(autouse=True)
def usable_afterwards():
    yield
    assert (torch.ones(2, device="tpu") + 1).sum().item() == 4 and torch.tpu.current_device() == 0


@pytest.mark.parametrize("name", DEVICE_FUNCTIONS)
def test_functions_of_a_device(name):
    function = getattr(torch.tpu, name)
    for valid in ("tpu", "tpu:0", torch.device("tpu", 0), 0):
        function(valid)
    for missing in (99, "tpu:99", torch.device("tpu", 99)):
        with pytest.raises(RuntimeError, match="tpu: device index out of range, got <tpu:99>, expected <tpu:0>"):
            function(missing)
    with pytest.raises(RuntimeError, match="out of range"):
        function(1000)
    with pytest.raises(ValueError, match="Expected a tpu device, but got: cpu"):
        function("cpu")
    with pytest.raises(TypeError, match="expected a device"):
        function(1.5)


def test_device_contexts():
    with torch.tpu.device(-1), torch.tpu.device(None), torch.tpu.device_of(torch.ones(1)), torch.tpu.device(0):
        assert torch.tpu.current_device() == 0
    with pytest.raises(RuntimeError, match="out of range"), torch.tpu.device(99):
        pass
    with pytest.raises(ValueError, match="Expected a tpu device"):
        torch.tpu.device("cpu")
    torch.tpu.set_device(-1)
    torch.accelerator.set_device_index(0)
    with pytest.raises(RuntimeError, match="out of range"):
        torch.accelerator.set_device_index(99)


def test_own_local_rank_is_another_name_of_the_one_device(monkeypatch):
    if torch.tpu.device_count() != 1:
        pytest.skip("needs a process with one device")
    monkeypatch.setenv("LOCAL_RANK", "3")
    torch.tpu.set_device(3)
    torch.tpu.set_device("tpu:3")
    with pytest.raises(RuntimeError, match="out of range"):
        torch.tpu.set_device(2)


def test_a_missing_device_is_an_error_everywhere():
    x = torch.ones(2)
    for call in (
        lambda: torch.ones(2, device="tpu:99"),
        lambda: x.to("tpu:99"),
        lambda: x.tpu(99),
        lambda: torch.tpu.can_device_access_peer(0, 99),
    ):
        with pytest.raises(RuntimeError, match="out of range|99"):
            call()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: torch.tpu.fallback("never"), ValueError, "torch.tpu.fallback: unknown mode, got <never>"),
        (lambda: torch.tpu.index_check("never"), ValueError, "torch.tpu.index_check: unknown mode, got <never>"),
        (lambda: torch.tpu.set_sync_debug_mode("loud"), ValueError, "set_sync_debug_mode: unknown mode, got <loud>"),
        (lambda: torch.tpu.set_sync_debug_mode(3), ValueError, "expected 0, 1 or 2, got <3>"),
        (lambda: torch.tpu.fallback(3), TypeError, "str"),
        (lambda: setattr(torch.backends.tpu, "allow_excess_precision", 1), TypeError, "expected a bool"),
        (lambda: torch.tpu.distributed.set_tpu_launch_env(0), ValueError, "at least one process"),
        (lambda: torch.tpu.distributed.set_tpu_launch_env(2, local_rank=2), ValueError, "local rank below 2"),
        (lambda: execution_mode.set_eager_mode("strict"), TypeError, "expected an EagerMode"),
        (lambda: torch.tpu.no_such_name, AttributeError, "no attribute 'no_such_name'"),
        (lambda: torch.tpu.manual_seed("x"), ValueError, "invalid literal"),
    ],
)
def test_wrong_values(call, error, text):
    before = (torch.tpu.get_sync_debug_mode(), torch.backends.tpu.allow_excess_precision)
    with pytest.raises(error, match=text):
        call()
    assert before == (torch.tpu.get_sync_debug_mode(), torch.backends.tpu.allow_excess_precision)


REFUSED = {
    "to_sparse": lambda x: x.to_sparse(),
    "to_sparse_csr": lambda x: x.reshape(1, 2).to_sparse_csr(),
    "sparse constructor": lambda x: torch.sparse_coo_tensor([[0]], [1.0], device="tpu"),
    "sparse csr constructor": lambda x: torch.sparse_csr_tensor([0, 1], [0], [1.0], device="tpu"),
    "sparse to device": lambda x: torch.eye(2).to_sparse().to("tpu"),
    "quantize": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    "quantized to device": lambda x: torch.quantize_per_tensor(x.cpu(), 0.1, 0, torch.qint8).to("tpu"),
    "nested": lambda x: torch.nested.nested_tensor([x, x]),
    "mkldnn": lambda x: x.to_mkldnn(),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_refused_layouts(name):
    with pytest.raises(NotImplementedError, match="supported on the tpu device; ") as caught:
        REFUSED[name](torch.ones(2, device="tpu"))
    assert "\n" not in str(caught.value).strip()


def test_switches_return_to_what_they_were():
    torch.tpu.index_check("late")
    mode = execution_mode.get_eager_mode()
    with torch.tpu.debug_mode(), torch.tpu.index_check("off"), torch.tpu.fallback("quiet"):
        assert execution_mode.get_eager_mode() is execution_mode.EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING
    assert execution_mode.get_eager_mode() is mode
    # Debug mode overrides the index check while it lasts; the block must not make that permanent.
    out_of_range = torch.arange(3.0, device="tpu")[torch.tensor([7], device="tpu")]
    with pytest.raises(IndexError):
        out_of_range.cpu()
    with execution_mode.eager_mode(execution_mode.EagerMode.DEFER_NEVER_AND_LAUNCH_BLOCKING):
        x = torch.ones(3, device="tpu") + 1
    assert x.sum().item() == 6
    torch.tpu.set_sync_debug_mode(1)
    try:
        with pytest.warns(UserWarning, match="synchronizing tpu operation at .*test_public_errors.py"):
            x.sum().item()
    finally:
        torch.tpu.set_sync_debug_mode(0)


def test_excess_precision_may_skip_a_narrow_cast():
    x = torch.full((64,), 1.001, device="tpu")
    strict = x.to(torch.bfloat16).to(torch.float32)
    torch.backends.tpu.allow_excess_precision = True
    try:
        assert torch.backends.tpu.allow_excess_precision
        assert torch.equal(x.to(torch.bfloat16).to(torch.float32), strict)
    finally:
        torch.backends.tpu.allow_excess_precision = False


def test_legacy_tensor_types():
    x = torch.tpu.FloatTensor([1, 2])
    assert x.device.type == "tpu" and x.dtype is torch.float32 and isinstance(x, torch.tpu.FloatTensor)
    assert not isinstance(x, torch.tpu.LongTensor) and not isinstance(torch.ones(1), torch.tpu.FloatTensor)
    assert torch.tpu.LongTensor(2, 3).shape == (2, 3) and torch.tpu.BoolTensor(torch.Size([4])).shape == (4,)
    assert x.type() == "torch.tpu.FloatTensor" and repr(torch.tpu.FloatTensor) == "<class 'torch.tpu.FloatTensor'>"
    assert x.type(torch.tpu.LongTensor).dtype is torch.int64 and torch.ones(1).type("torch.tpu.IntTensor").is_tpu


def test_library_registration_under_the_key_tpu():
    library = torch.library.Library("torch_tpu_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "TPU")
    assert torch.equal(torch.ops.torch_tpu_test.twice(torch.ones(2, device="tpu")).cpu(), torch.full((2,), 2.0))
