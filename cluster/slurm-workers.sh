#!/usr/bin/env bash
# Further nodes for a sweep that runs as a Slurm job (cluster/slurm.sh): an array of small jobs, each of
# which joins the sweep's Ray cluster when Slurm has a gap for it. From the same folder:
#
#   sbatch cluster/slurm.sh sweeps/window_stride.py ...                   Submitted batch job 1234
#   sbatch --array=1-40 cluster/slurm-workers.sh 1234
#   sbatch --array=1-400%40 --time=00:30:00 cluster/slurm-workers.sh 1234      40 at a time, short ones
#
# A node leaves when the sweep's job has ended, a minute before its own time limit, or when it is
# cancelled or pre-empted. A trial that ran on it goes on elsewhere, from its last checkpoint.
# Where the sweep's job still waits, add --dependency=after:1234. The sweep's job writes the address and
# the password of its cluster into ranksweep-JOB.head in the folder of the checkout, which only you can read.
#
# Tests run it under Slurm 22.05 with nodes that are one machine: a node joins, its CPU is used, it leaves.

#SBATCH --job-name=ranksweep-worker
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=1
#SBATCH --mem=48G
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@60
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
leaves=
trap 'leaves="its time is up, or it was cancelled"' USR1 TERM INT

# The sweep's job may have been requeued, or starts just now.
while ! test -f "$head"; do
    state=$(squeue --noheader "--jobs=$job" --format=%T 2> /dev/null || true)
    if test -z "$state"; then
        echo "job $job has ended, or never was: there is nothing to join"
        exit 0
    elif test "$state" = PENDING || test $SECONDS -gt 600 || test -n "$leaves"; then
        echo "error: the sweep's job $job is $state and has no cluster to join; where it still waits," \
            "submit this with --dependency=after:$job" >&2
        exit 1
    fi
    sleep 2
done
mapfile -t known < "$head"
export RAY_AUTH_TOKEN=${known[1]} RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
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
while kill -0 "$node" 2> /dev/null && test -z "$leaves"; do
    if ! test -f "$head"; then leaves="job $job has ended"; fi
    sleep 2 & # a signal ends `wait` at once
    wait $! || true
done
echo "done" >&"$orders"
code=0
wait "$node" || code=$?
if test -n "$leaves"; then
    echo "leaves job $job: $leaves"
    exit 0
fi
exit "$code"
