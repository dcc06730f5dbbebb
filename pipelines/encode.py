"""Puts the KG of a run and the vectors of its texts into the cache, spread over processes.

    accelerate launch --multi_gpu --num_processes 4 -m pipelines.encode --dataset musique    # four GPUs
    accelerate launch --multi_gpu --num_processes 2 -m pipelines.encode --dataset musique --device cpu

(With its option --cpu, accelerate starts a single process unless MPI is there; --multi_gpu serves on a CPU, too.)
The options are those of batch_eval, which finds everything there then. A text's vector does not depend on what is
encoded beside it, so any number of processes gives the same bits. What was encoded before is not encoded again, and a
process that was stopped loses only the chunk in hand. The last line of standard output is the folder of the cache.
"""

import os
from collections.abc import Iterator, Sequence

import torch
from filelock import FileLock

from kgrag_gpu.kg.store import Kg
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.types import UserError
from pipelines.batch_eval import job_of, job_parser
from pipelines.command_line import EXIT_DONE, run_command, say
from pipelines.job import Job

CHUNK = 2048
KINDS = ("passages", "entities", "relations", "triples")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = job_parser("python -m pipelines.encode", __doc__)
    parser.add_argument(
        "--texts", nargs="+", choices=KINDS, default=["passages", "entities", "relations"], help="what is encoded"
    )
    args = parser.parse_args(argv)
    rank, num_processes = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1)))
    args.num_shards = args.shard = None  # a process of ours is no shard of questions
    job = job_of(args)
    if num_processes == 1 and os.environ.get("ACCELERATE_USE_CPU") == "True" and "MASTER_PORT" in os.environ:
        say("accelerate started one process only, as it does with --cpu and without MPI; give --multi_gpu instead")
    _share_device(job, num_processes)
    num_encoded, num_texts = encode_share(job, args.texts, rank, num_processes)
    say(f"process {rank + 1} of {num_processes}: {num_encoded:,} of its {num_texts:,} texts encoded, the others known")
    if rank == 0:
        print(job.cache_dir)
    return EXIT_DONE


def encode_share(job: Job, kinds: Sequence[str], rank: int, num_processes: int) -> tuple[int, int]:
    """Encodes one process's share of the texts of a run into the cache.

    Args:
        job: The run; the KG is loaded or built here.
        kinds: Which texts, of KINDS.
        rank: The process, from 0 to num_processes - 1.
        num_processes: How many share the work.

    Returns:
        How many texts were encoded, and how many the share has.
    """
    job.cache_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(job.cache_dir / "encode.lock"):  # the first process builds the KG, the others load it
        kg = job.prepare_kg()
    resources = Resources(job.config, kg, job.cache_dir, job.device)
    texts = list(dict.fromkeys(text for kind in kinds for text in _texts(kg, resources, kind)))
    # By length, then dealt out like cards: every process gets as many long texts as the others.
    mine = sorted(texts, key=lambda text: (len(text), text))[rank::num_processes]
    for chunk in _chunks(mine):
        resources.embeddings.vectors(chunk)
        resources.embeddings.flush()
    return resources.embeddings.num_encoded, len(mine)


def _texts(kg: Kg, resources: Resources, kind: str) -> Sequence[str]:
    if kind == "passages":
        return resources.unit_texts
    return {"entities": kg.entity_names, "relations": kg.relation_texts, "triples": kg.triple_texts}[kind]


def _chunks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), CHUNK):
        yield texts[start : start + CHUNK]


def _share_device(job: Job, num_processes: int) -> None:
    """A GPU for each process of a node; on a CPU an equal part of its cores."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    num_local = int(os.environ.get("LOCAL_WORLD_SIZE", num_processes))
    if job.device.type == "cuda":
        if num_local > torch.cuda.device_count():
            raise UserError(
                f"{num_local} processes for {torch.cuda.device_count()} GPUs on this node; give --num_processes as many"
            )
        job.device = torch.device("cuda", local)
    else:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // num_local))


if __name__ == "__main__":
    run_command(main)
