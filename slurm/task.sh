# Sourced by the job scripts: the site's settings, and how a job stops and goes on.
# shellcheck shell=bash
set -uo pipefail
# shellcheck source=slurm/site.env
source "${KGRAG_SITE:-slurm/site.env}"
site_setup

# run_task ARGUMENTS...: python with these arguments. Shortly before the time limit SLURM sends USR1 to this shell
# (--signal=B:USR1@120). Python gets it, finishes the batch in hand and ends with 4; the job then queues itself again and
# goes on where it was. A stop from outside (scancel, scontrol requeue, preemption) is handed on and not requeued here.
run_task() {
    local code=0 warned=0 woken=0 job=$SLURM_JOB_ID
    # The last task of an array has the number of the whole array for its own: requeue the task, not the array.
    if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi
    "${LAUNCH[@]}" python "$@" &
    local child=$!
    trap 'warned=1 woken=1; kill -USR1 "$child" 2>/dev/null' USR1
    trap 'woken=1; kill -TERM "$child" 2>/dev/null' TERM
    wait "$child" || code=$?
    while [ "$woken" = 1 ] && [ "$code" -gt 128 ]; do # the signal ended `wait`, not python
        woken=0 code=0
        wait "$child" || code=$?
    done
    # 138: the signal came before python was ready for it. Whatever was finished is on disk in any case.
    if [ "$warned" = 1 ] && { [ "$code" = 4 ] || [ "$code" = 138 ]; }; then
        echo "stopped shortly before the time limit; job $job queues itself again" >&2
        scontrol requeue "$job" && exit 0
        echo "error: it could not be requeued; the same sbatch command goes on where it stopped" >&2
    fi
    # Killed, by a lack of memory as a rule: worth another try, which goes on where this one was, but not for ever.
    if [ "$code" = 137 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt "$MAX_RESTARTS" ]; then
        echo "python was killed (SIGKILL; out of memory?); job $job queues itself again" >&2
        scontrol requeue "$job" && exit 0
    fi
    # A task with questions that failed has done its work: the merge, which waits for it, reports them.
    if [ "$code" = 3 ] && [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then code=0; fi
    exit "$code"
}
