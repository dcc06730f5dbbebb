#!/usr/bin/env bash
# A whole evaluation on SLURM: [build the KG ->] encode -> [server and] array of tasks -> merge, each after the one before.
#
#   SHARDS=16 slurm/run_all.sh --dataset musique --method ppr --llm none
#   BUILD_KG="--from-passages corpus.json --out my_kg" slurm/run_all.sh --dataset jsonl --data q.jsonl --kg my_kg
#   SERVER_MODEL=Qwen/Qwen2.5-7B-Instruct-AWQ slurm/run_all.sh --dataset musique --method anchorrag
#
# The arguments are those of `python -m pipelines.batch_eval`, paths as seen from the project's folder. LOGS (slurm-logs)
# holds the output of the jobs; SAMPLE=1 lets the embedded sample stand in for the full set. Prints the number of each
# job. The same command again goes on with what is not done yet.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=slurm/site.env
source "${KGRAG_SITE:-slurm/site.env}"
logs=${LOGS:-slurm-logs}
mkdir -p "$logs"
logs=$(cd "$logs" && pwd)

submit() { # NAME SCRIPT [options of sbatch... --] arguments of the script...
    local name=$1 script=$2 options=() number=%j
    shift 2
    while [ "$1" != -- ]; do options+=("$1") && shift; done
    shift
    case "${options[*]}" in *--array=*) number=%A_%a ;; esac
    sbatch --parsable --kill-on-invalid-dep=yes --output="$logs/$name-$number.out" --error="$logs/$name-$number.err" \
        "${SITE_OPTIONS[@]}" "${options[@]}" "slurm/$script" "$@" | cut -d ';' -f 1
}

build_first=()
if [ -n "${BUILD_KG:-}" ]; then
    read -ra build <<<"$BUILD_KG"
    job=$(submit build build_kg.sbatch "${BUILD_RESOURCES[@]}" -- "${build[@]}")
    echo "build $job"
    build_first=("--dependency=afterok:$job")
fi
job=$(submit encode encode.sbatch "${build_first[@]}" "${ENCODE_RESOURCES[@]}" -- "$@")
echo "encode $job"
after="afterok:$job"
if [ -n "${SERVER_MODEL:-}" ]; then
    KGRAG_SERVER=$logs/server-$job.url
    export KGRAG_SERVER
    server=$(submit server vllm_server.sbatch "--dependency=$after" "${SERVER_RESOURCES[@]}" -- \
        --address "$KGRAG_SERVER" --model "$SERVER_MODEL")
    echo "server $server"
    after="$after,after:$server"
    set -- "$@" --set "llm.model=$SERVER_MODEL"
fi
eval_job=$(submit eval batch_eval.sbatch "--dependency=$after" "--array=0-$((${SHARDS:-4} - 1))" \
    "${EVAL_RESOURCES[@]}" -- "$@")
echo "eval $eval_job"
job=$(submit merge merge.sbatch "--dependency=afterok:$eval_job" "${MERGE_RESOURCES[@]}" -- "$logs/eval-${eval_job}_0.out")
echo "merge $job"
if [ -n "${SERVER_MODEL:-}" ]; then # whatever becomes of the tasks, the server goes with them
    sbatch --parsable --job-name=kgrag-stop --output=/dev/null --time=5 "${SITE_OPTIONS[@]}" \
        "--dependency=afterany:$eval_job" --wrap "scancel $server" >/dev/null
fi
