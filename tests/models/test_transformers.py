"""Training steps of small real architectures from Transformers: the CPU's losses, and nothing leaves the device."""

import copy
import os

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

IDS = torch.randint(3, 90, (2, 12), generator=torch.Generator().manual_seed(0))
MASK = torch.ones(2, 12, dtype=torch.long)
MASK[1, 8:] = 0
IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1])
SMALL = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def bert():
    config = transformers.BertConfig(**SMALL, **NO_DROPOUT)
    return transformers.BertForSequenceClassification(config), {
        "input_ids": IDS,
        "attention_mask": MASK,
        "labels": LABELS,
    }


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=100, n_embd=32, n_layer=2, n_head=4, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": IDS, "labels": IDS}


def llama():
    config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2)
    return transformers.LlamaForCausalLM(config), {"input_ids": IDS, "attention_mask": MASK, "labels": IDS}


def mixtral():
    config = transformers.MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=4)
    return transformers.MixtralForCausalLM(config), {"input_ids": IDS, "attention_mask": MASK, "labels": IDS}


def t5():
    config = transformers.T5Config(
        vocab_size=100,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(config), {"input_ids": IDS, "attention_mask": MASK, "labels": IDS}


def vit():
    config = transformers.ViTConfig(
        image_size=32, patch_size=8, **{k: v for k, v in SMALL.items() if k != "vocab_size"}, **NO_DROPOUT
    )
    return transformers.ViTForImageClassification(config), {"pixel_values": IMAGES, "labels": LABELS}


def resnet():
    config = transformers.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], num_labels=2)
    return transformers.ResNetForImageClassification(config), {"pixel_values": IMAGES, "labels": LABELS}


def losses(
    model: torch.nn.Module, inputs: dict[str, torch.Tensor], device: str, bf16: bool, compiled: bool = False
) -> list[float]:
    """Three AdamW steps with clipped gradients."""
    model = copy.deepcopy(model).train().to(device)
    call = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = {name: value.to(device) for name, value in inputs.items()}
    result = []
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=bf16):
            loss = call(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        result.append(loss.item())
    return result


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("make", [bert, gpt2, llama, mixtral, t5, vit, resnet], ids=lambda f: f.__name__)
def test_training_matches_the_cpu_without_fallback(make, bf16, compiled):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, inputs = make()
    want = losses(model, inputs, "cpu", bf16)
    with torch.tpu.fallback("error"):
        got = losses(model, inputs, "tpu", bf16, compiled)
    tolerance = 2e-2 if bf16 else 1e-4
    torch.testing.assert_close(torch.tensor(got), torch.tensor(want), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("cache", [None, "static"], ids=["growing cache", "static cache, compiled"])
def test_greedy_generation_matches_the_cpu(cache):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, _ = llama()
    model.eval()
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    want = model.generate(IDS, attention_mask=torch.ones_like(IDS), **options)
    model.to("tpu")
    compiled = len([r for r in torch.tpu.compile_log() if r["op"].startswith("graph")])
    got = model.generate(IDS.tpu(), attention_mask=torch.ones_like(IDS).tpu(), cache_implementation=cache, **options)
    assert torch.equal(got.cpu(), want)
    compiled = len([r for r in torch.tpu.compile_log() if r["op"].startswith("graph")]) - compiled
    assert compiled == (0 if cache is None else 1)
