#!/usr/bin/env bash
# A sweep as one Slurm job: Ray's head runs on the first node, a worker on each other node, then the
# sweep in the arguments. From the root of this repository, which all nodes see or have a copy of:
#
#   sbatch cluster/slurm.sh sweeps/window_stride.py --num-seeds 5 --storage "$SCRATCH/rank" \
#       --backbone bert-base-uncased
#   sbatch --nodes=4 --gpus-per-node=4 cluster/slurm.sh sweeps/window_stride.py --num-workers 4 \
#       --storage "$SCRATCH/rank"                      each trial on 4 GPUs, 4 trials at a time
#   sbatch --nodes=1 --gpus-per-node=4 --cpus-per-task=32 --mem=128G cluster/slurm.sh \
#       sweeps/window_stride.py --storage "$SCRATCH/rank"          four trials at a time on a node
#   sbatch --nodes=1 --gpus-per-node=0 cluster/slurm.sh sweeps/window_stride.py --prepare \
#       --collection msmarco-doc --backbone bert-base-uncased      the inputs, in advance
#   .venv/bin/ranksweep status "$SCRATCH"/rank/window_stride/COLLECTION          its progress
#
# With --dependency=singleton a job waits for the earlier ones, such as the one that prepares.
#
# While it runs, further jobs may join it and leave it, each with a node (cluster/slurm-workers.sh).
#
# Repeat it after an interruption: a sweep resumes from its finished trials. Two minutes before its
# time limit the job interrupts the sweep and requeues itself, if it has finished or checkpointed
# anything since it started; else it ends and says which limit would do. Slurm requeues a job that it
# pre-empts, or whose node fails, where the cluster is set up so (`PreemptMode=REQUEUE`, `JobRequeue`).
#
# Ray's files, with its own lines, are in /tmp/ray-JOB of each node, and kept after an error.
#
# Home folders are small: set these before sbatch, which passes them on (sizes: docs/cluster.md). A
# shared cache is prepared once, one on a node's own disk by every node.
#   export RANKSWEEP_CACHE=$SCRATCH/ranksweep IR_DATASETS_HOME=$SCRATCH/ir_datasets HF_HOME=$SCRATCH/hf
#
# Where nodes have several networks and Ray takes the wrong one, `export RANKSWEEP_HOST=ADDRESS` names the
# first node's address in the right one.
#
# With a part of a GPU for each trial (--gpus-per-worker .5) each node runs CUDA MPS, without which such
# trials compute in turns; `export RANKSWEEP_MPS=no` leaves it out, `yes` starts it in any case.
#
# Nodes that do not see --storage write it through Ray to the first node (docs/cluster.md). Where that
# node has it on a disk of its own, name the node, so that a requeued job finds it: `--nodelist=NODE`.
#
# All nodes use the virtual environment .venv of the folder that the job is submitted from; the job
# makes it or completes it, on each node that has a copy of the folder. Where compute nodes have no network, make it on the login node first:
#   python3.11 -m venv .venv && .venv/bin/pip install -c cluster/constraints.txt -e '.[sweep]'
#
# Tests run this script under Slurm 22.05 with two nodes that are one machine, without GPUs: to its end,
# with --export=NONE, into its time limit, with a node that is lost, from a folder with a space, two jobs
# at once, and nodes with disks of their own. It has not been run on two machines, nor on a node with a GPU.

#SBATCH --job-name=ranksweep
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=1
#SBATCH --mem=48G
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=ranksweep-%j.log

set -euo pipefail
if test -z "${SLURM_JOB_ID:-}" || test $# = 0; then
    echo "usage: sbatch [--nodes=N ...] cluster/slurm.sh sweeps/NAME.py [options of the sweep]" >&2
    exit 2
fi
cd "$SLURM_SUBMIT_DIR"
if ! test -f cluster/slurm-node.sh; then
    echo "error: $PWD has no cluster/slurm-node.sh: submit from the root of the checkout" >&2
    exit 2
fi
# shellcheck source=cluster/slurm-node.sh
. cluster/slurm-node.sh
# After `sbatch --export=NONE`, the rule of some clusters, srun would pass nothing on either.
export SLURM_EXPORT_ENV=ALL
if test -z "${RANKSWEEP_MPS:-}" && shares_gpus "$@"; then
    export RANKSWEEP_MPS=yes
fi
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} # srun does not inherit it from sbatch

scratch=$(mktemp -d) # the times of its files tell what was done since the start
touch "$scratch/started"
progress=$scratch/progress # made by an interrupted sweep that got on
head=ranksweep-$SLURM_JOB_ID.head # how slurm-workers.sh finds this job
waited=         # the process that the script waits for
nodes_of_ray=() # process ids, those of the head last
orders=()       # for each the standard input of its node, from which it learns that it ends
cleanup() {
    local word=$1 number
    trap - EXIT
    trap '' USR1 TERM INT
    rm -f "$head"
    test -z "$waited" || kill "$waited" 2> /dev/null || true
    # Not `ray stop`, which would end the Ray of the user's other jobs on a machine.
    for number in "${!nodes_of_ray[@]}"; do
        echo "$word" >&"${orders[$number]}"
        wait "${nodes_of_ray[$number]}" || true
    done
    rm -rf "$scratch"
}
trap 'cleanup failed' EXIT
# Runs a command in the background, because a signal ends `wait` at once.
heedfully() {
    "$@" &
    waited=$!
    wait "$waited"
    waited=
}

# Ends a job that was interrupted by its time limit and would be at the same point each time.
end_without_progress() {
    local sweep=$((SECONDS - ${began:-$SECONDS})) limit
    # As long as it took to start, also after a requeue, twice what the sweep had, and the signal.
    limit=$((SECONDS - sweep + 65 + 2 * (sweep > 300 ? sweep : 300) + 120))
    cleanup done
    echo "error: the time limit came $SECONDS seconds after the start, of which the sweep had $sweep, and" \
        "nothing was finished or checkpointed. The job is not requeued, because the next start would get" \
        "no further: submit it with --time=$((limit / 60 + 1)) (minutes) or more" >&2
    exit 130
}
# The files of the cache that were made since, and what the sweep says.
got_on() {
    local cache
    cache=$("$python" -c 'from rank_core.cache import cache_root; print(cache_root())')
    test -e "$progress" || test -n "$(find "$cache" -type f -newer "$scratch/started" \
        ! -name '*.lock' ! -path '*.building-*' -print -quit 2> /dev/null)"
}
trap end_without_progress USR1

rm -f "$head" # of a head that was killed, as with its node
# On another node a sweep whose driver was killed can be taken over after a minute (sweeps/store).
if test -n "${SLURM_RESTART_COUNT:-}"; then
    heedfully sleep 65
fi
make_environment
seen=$(srun --ntasks-per-node=1 bash cluster/slurm-node.sh versions | sort -u)
if test "$(wc -l <<< "$seen")" != 1; then
    printf 'error: all nodes must run the same versions, found\n%s\n' "$seen" >&2
    exit 2
fi
echo "$seen"

# The batch script runs on the first node. Ports follow the job's number or are free ones, because other
# users may run Ray on the same machines; a token of this job keeps them out.
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
port=$((20000 + 3 * (SLURM_JOB_ID % 4200))) # below the ports that Linux gives to connections
host=${RANKSWEEP_HOST:-$("$python" -c 'import ray; print(ray.util.get_node_ip_address())')}
address=$host:$port
RAY_AUTH_TOKEN=$("$python" -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0

on_node() {
    local node=$1 fifo=$scratch/${#orders[@]} order
    shift
    mkfifo "$fifo"
    exec {order}<> "$fifo"
    srun --overlap --nodes=1 --ntasks=1 "--nodelist=$node" bash cluster/slurm-node.sh run_ray "$@" < "$fifo" &
    nodes_of_ray=("$!" "${nodes_of_ray[@]}") # the head, started first, ends last
    orders=("$order" "${orders[@]}")
}
# Waits until that many nodes have joined.
joined() {
    exec "$python" -c '
import socket, sys, time
import ray
wanted, address, lines = int(sys.argv[1]), *sys.argv[2:]
deadline, lines = time.monotonic() + 300, f"within 5 minutes; the lines of Ray are in {lines} of each node"
while not ray.is_initialized():
    try:  # Ray would print warnings of its own for a head that does not listen yet
        socket.create_connection(address.rsplit(":", 1), 5).close()
        ray.init(log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, TimeoutError):
        if time.monotonic() > deadline:
            sys.exit(f"error: the head did not start {lines}")
        time.sleep(1)
while (alive := sum(node["Alive"] for node in ray.nodes())) < wanted:
    if time.monotonic() > deadline:
        sys.exit(f"error: {alive} of {wanted} nodes joined {lines}")
    time.sleep(0.5)
print(alive, "node" if alive == 1 else "nodes", "joined")' "$1" "$RAY_ADDRESS" "$ray_files"
}

# The dashboard must be on: Ray Train asks it for the resources of dead trials. The port of Ray's
# clients is not used, but Ray would end where another Ray of the node has its default, 10001.
on_node "${nodes[0]}" --head "--node-ip-address=$host" "--port=$port" \
    "--ray-client-server-port=$((port + 1))" "--dashboard-port=$((port + 2))" --include-dashboard=true
for node in "${nodes[@]:1}"; do
    on_node "$node" "--address=$address"
done
export RAY_ADDRESS=$address
heedfully joined "${#nodes[@]}"
(umask 077 && printf '%s\n' "$address" "$RAY_AUTH_TOKEN" "$seen" "${RANKSWEEP_MPS:-no}" > "$head.new" && mv "$head.new" "$head")

# A process group of its own, because bash has background commands ignore interrupts.
set -m
RANKSWEEP_PROGRESS_FILE=$progress "$python" "$@" &
driver=$!
began=$SECONDS
set +m
out_of_time=
trap 'out_of_time=yes; kill -INT "$driver" 2> /dev/null || true' USR1
trap 'kill -INT "$driver" 2> /dev/null || true' TERM INT
code=0
while kill -0 "$driver" 2> /dev/null; do # `wait` also returns when a signal came
    code=0
    wait "$driver" || code=$?
done
if test -n "$out_of_time" && test "$code" = 130; then
    got_on || end_without_progress
    cleanup done
    echo "the time limit came: job $SLURM_JOB_ID is requeued, and the sweep resumes"
    scontrol requeue "$SLURM_JOB_ID"
    exit "$code"
fi
case $code in
    0 | 2 | 4 | 130) cleanup done ;; # 2: bad input, said above
    *)
        cleanup failed
        echo "exit code $code; Ray's files are kept in $ray_files of each node" >&2
        ;;
esac
exit "$code"
