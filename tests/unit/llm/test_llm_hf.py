"""The transformers engine on a tiny random Qwen: exact in float32, whatever the batch."""

import json

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.llm.hf_engine import HfBackend
from kgrag_gpu.llm.models import find_model
from kgrag_gpu.llm.records import Prompt, Sampling
from kgrag_gpu.prompts.schemas import Entities

CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory):
    """A two-layer Qwen2 with random weights over single bytes."""
    folder = tmp_path_factory.mktemp("tiny-qwen")
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: number for number, piece in enumerate([*special, *alphabet])}
    raw = Tokenizer(models.BPE(vocabulary, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>", additional_special_tokens=special[1:2]
    )
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,
        tie_word_embeddings=False,
        eos_token_id=2,
        pad_token_id=0,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def _backend(folder, batch_size: int) -> HfBackend:
    files = find_model(str(folder))
    assert files is not None
    return HfBackend(files, torch.device("cpu"), "float32", batch_size, 512)


@pytest.fixture(scope="module")
def backend(tiny_folder):
    return _backend(tiny_folder, 4)


def _prompts(backend: HfBackend, ask, texts: list[str]) -> list[Prompt]:
    return [Prompt(ask(text).messages, backend.render(ask(text).messages)) for text in texts]


def test_hf_greedy_replies_are_the_same_in_any_batch(tiny_folder, ask):
    texts = ["a", "what is this?", "北京 " * 9, "x" * 70, "and the last one"]
    expected = None
    for size in (1, 2, 5):
        backend = _backend(tiny_folder, size)
        found = dict(backend.complete(_prompts(backend, ask, texts), Sampling(max_tokens=12)))
        expected = expected or found
        assert found == expected
    assert expected is not None
    assert len({completion.text for completion in expected.values()}) > 1


def test_hf_counts_tokens_by_its_own_ids(backend, ask):
    (prompt,) = _prompts(backend, ask, ["abc"])
    ((_, completion),) = backend.complete([prompt], Sampling(max_tokens=5))
    assert completion.prompt_tokens == backend.count_tokens([prompt.text])[0]
    assert completion.completion_tokens <= 5
    assert (completion.finish_reason == "length") == (completion.completion_tokens == 5)


def test_hf_sampled_replies_depend_on_seed_and_prompt_alone(tiny_folder, ask):
    texts = ["one", "another question", "three"]
    seen = {}
    for size, order in ((1, [0, 1, 2]), (3, [2, 0, 1])):
        backend = _backend(tiny_folder, size)
        prompts = _prompts(backend, ask, [texts[row] for row in order])
        sampling = Sampling(max_tokens=8, temperature=1.0, top_p=0.9, seed=5)
        for row, completion in backend.complete(prompts, sampling):
            assert seen.setdefault(order[row], completion) == completion
    (prompt,) = _prompts(backend, ask, ["one"])
    ((_, other),) = backend.complete([prompt], Sampling(max_tokens=8, temperature=1.0, top_p=0.9, seed=6))
    assert other.text != seen[0].text


def test_hf_choice_scores_equal_a_plain_forward_pass(backend, ask):
    prompts = _prompts(backend, ask, ["short", "a much longer question " * 3])
    choices = [["Yes", "No", "a longer choice"], ["Paris"]]
    found = {row: scores for row, scores, _ in backend.choice_logprobs(prompts, choices)}
    model, tokenizer = backend._model, backend._tokenizer
    for row, prompt in enumerate(prompts):
        prefix = tokenizer(prompt.text, add_special_tokens=False)["input_ids"]
        for choice, score in zip(choices[row], found[row], strict=True):
            ids = tokenizer(choice, add_special_tokens=False)["input_ids"]
            with torch.inference_mode():
                logits = model(torch.tensor([prefix + ids])).logits[0].log_softmax(-1)
            steps = [logits[len(prefix) - 1 + place, token].item() for place, token in enumerate(ids)]
            assert score == pytest.approx(sum(steps) / len(steps), abs=1e-4)


def test_hf_choice_scores_do_not_depend_on_the_batch(tiny_folder, ask):
    texts, choices = ["a", "bb " * 20, "ccc"], [["Yes", "No"], ["Yes", "Nope"], ["x"]]
    results = []
    for size in (1, 3):
        backend = _backend(tiny_folder, size)
        found = {row: scores for row, scores, _ in backend.choice_logprobs(_prompts(backend, ask, texts), choices)}
        results.append([score for row in range(3) for score in found[row]])
    assert results[0] == pytest.approx(results[1], abs=1e-5)


def test_hf_structured_reply_is_valid_even_from_a_random_model(backend, ask):
    pytest.importorskip("llguidance")
    engine = Engine(backend)
    requests = [ask("list", Entities), ask("free text"), ask("another list", Entities)]
    replies = engine.generate(requests, Sampling(max_tokens=200))
    for reply in (replies[0], replies[2]):
        assert reply.text.startswith('{"entities":[')
        if reply.finish_reason == "stop":
            assert isinstance(json.loads(reply.text)["entities"], list)


def test_hf_stop_text_ends_the_reply(backend, ask):
    (prompt,) = _prompts(backend, ask, ["abc"])
    ((_, whole),) = backend.complete([prompt], Sampling(max_tokens=20))
    stop = whole.text[3:5]
    ((_, stopped),) = backend.complete([prompt], Sampling(max_tokens=20, stop=(stop,)))
    assert stopped.text == whole.text[: whole.text.index(stop)]
    assert stopped.finish_reason == "stop"
