#!/usr/bin/env bash
# Further nodes for a sweep that runs as a Slurm job (cluster/slurm.sh): an array of small jobs, each of
# which joins the sweep's Ray cluster when Slurm has a gap for it. From the same folder:
#
#   sbatch cluster/slurm.sh sweeps/window_stride.py ...                   Submitted batch job 1234
#   sbatch --array=1-40 cluster/slurm-workers.sh 1234
#   sbatch --array=1-400%40 --time=00:30:00 cluster/slurm-workers.sh 1234      40 at a time, short ones
#
# A node leaves when the sweep's job has ended, a minute before its own time limit, or when it is
# cancelled or pre-empted. A trial that runs on it saves its state first (30 seconds at most) and goes on
# elsewhere.
# Where the sweep's job waits in the queue, as after a requeue, a task goes back to the queue: it keeps no
# node meanwhile and joins the next time. With --dependency=after:1234 it does not begin before that job.
# The sweep's job writes the address and the password of its cluster into ranksweep-JOB.head in the folder
# of the checkout, which only you can read.
#
# Tests run it under Slurm 22.05 with nodes that are one machine: a node joins, its CPU is used, it leaves;
# the sweep's job is requeued, and the node joins it again.

#SBATCH --job-name=ranksweep-worker
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=1
#SBATCH --mem=48G
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=ranksweep-%A_%a.log

set -euo pipefail
if test -z "${SLURM_JOB_ID:-}" || test $# != 1; then
    echo "usage: sbatch --array=1-N [...] cluster/slurm-workers.sh JOB, the number of the sweep's job" >&2
    exit 2
fi
cd "$SLURM_SUBMIT_DIR"
if ! test -f cluster/slurm-node.sh; then
    echo "error: $PWD has no cluster/slurm-node.sh: submit from the root of the checkout" >&2
    exit 2
fi
# shellcheck source=cluster/slurm-node.sh
. cluster/slurm-node.sh
job=$1
head=ranksweep-$job.head
leaves= stays=
trap 'leaves="its time is up, or it was cancelled"' USR1 TERM INT

# Slurm's word for the sweep's job; empty where it has ended. Where Slurm does not answer, it may live.
state_of_sweep() {
    local seen
    if seen=$(squeue --noheader "--jobs=$job" --format=%T 2>&1); then
        echo "$seen"
    elif [[ $seen != *"Invalid job id"* ]]; then
        echo UNKNOWN
    fi
}
pause() {
    sleep "$1" & # a signal ends `wait` at once
    wait $! || true
}
# A node that waits for a job in the queue would be kept from others, for hours perhaps.
back_to_the_queue() {
    if test -n "$stays"; then return; fi
    echo "job $job $1: this task goes back to the queue"
    if scontrol requeue "$SLURM_JOB_ID"; then exit 0; fi
    echo "Slurm does not requeue it: it waits here"
    stays=yes
}
# Waits for a cluster of the sweep's job; fails where it leaves without one.
find_head() {
    local since=$SECONDS state
    while test -z "$leaves"; do
        state=$(state_of_sweep)
        case $state in
            "") leaves="job $job has ended" ;;
            PENDING | REQUEUED) back_to_the_queue "is $state" ;;
            RUNNING) if test -f "$head"; then return 0; fi ;; # else it starts, or ends just now
        esac
        if test $((SECONDS - since)) -gt 900; then back_to_the_queue "is $state without a cluster"; fi
        if test -z "$leaves"; then pause 5; fi
    done
    return 1
}

if ! find_head; then
    echo "there is nothing to join: $leaves"
    exit 0
fi
mapfile -t known < "$head"
export RAY_AUTH_TOKEN=${known[1]} RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export RANKSWEEP_MPS=${RANKSWEEP_MPS:-${known[3]:-no}} RANKSWEEP_DRAIN=30
make_environment
seen=$(versions)
if test "$seen" != "${known[2]}"; then
    printf 'error: job %s runs other versions:\n%s\n%s\n' "$job" "${known[2]}" "$seen" >&2
    exit 2
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkfifo "$scratch/orders"
exec {orders}<> "$scratch/orders"
run_ray "--address=${known[0]}" < "$scratch/orders" &
node=$!
echo "joins job $job at ${known[0]} with ${SLURM_CPUS_PER_TASK:-1} CPUs and ${SLURM_GPUS_ON_NODE:-0} GPUs"
while kill -0 "$node" 2> /dev/null && test -z "$leaves" && test -f "$head"; do
    pause 2
done
order=done
if test -n "$leaves" && test -f "$head"; then order=leave; fi
echo "$order" >&"$orders"
wait "$node" || true # what went wrong is said
if find_head; then # another cluster, after a requeue; or the first one, which this node has lost
    back_to_the_queue "has lost this node"
    rm -rf "$scratch"
    exec "$BASH" "$0" "$job"
fi
echo "leaves job $job: $leaves"
