#!/usr/bin/env bash
# A sweep as one Slurm job: Ray's head runs on the first node, a worker on each other node, then the
# sweep in the arguments. From the root of this repository, which all nodes must see:
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
# Repeat it after an interruption: a sweep resumes from its finished trials. Two minutes before its
# time limit the job interrupts the sweep and requeues itself. Slurm requeues a job that it pre-empts,
# or whose node fails, where the cluster is set up so (`PreemptMode=REQUEUE`, `JobRequeue`).
#
# Home folders are small: set these before sbatch, which passes them on (sizes: docs/cluster.md). A
# shared cache is prepared once, one on a node's own disk by every node.
#   export RANKSWEEP_CACHE=$SCRATCH/ranksweep IR_DATASETS_HOME=$SCRATCH/ir_datasets HF_HOME=$SCRATCH/hf
#
# Where nodes have several networks and Ray takes the wrong one, `export RANKSWEEP_HOST=ADDRESS` names the
# first node's address in the right one.
#
# All nodes use the virtual environment .venv of the folder that the job is submitted from; the job
# makes it or completes it. Where compute nodes have no network, make it on the login node first:
#   python3.11 -m venv .venv && .venv/bin/pip install -c cluster/constraints.txt -e '.[sweep]'
#
# Not yet run under Slurm or on two machines. Tests run and interrupt this script with stand-ins for
# srun and scontrol that start two Ray nodes on one machine, and check that no process remains.

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
if ! test -f cluster/constraints.txt; then
    echo "error: $PWD has no cluster/constraints.txt: submit from the root of the checkout" >&2
    exit 2
fi
# On another node a sweep whose driver was killed can be taken over after a minute (sweeps/store).
if test -n "${SLURM_RESTART_COUNT:-}"; then sleep 65; fi
python=$PWD/.venv/bin/python
if ! test -e .venv/bin/ranksweep; then # pip writes it last
    python3 -m venv .venv
    "$python" -m pip install --quiet --constraint cluster/constraints.txt --editable ".[sweep]" || {
        echo "error: .venv is incomplete; without a network here, make it on the login node" >&2
        exit 2
    }
fi
cpus=${SLURM_CPUS_PER_TASK:-1}
export SRUN_CPUS_PER_TASK=$cpus # srun does not inherit it from sbatch

# Nodes that do not share the folder would show different versions.
versions='
import hashlib, sys
from importlib.metadata import distributions
names = sorted({f"{one.name}=={one.version}" for one in distributions()})
digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]
print(f"Python {sys.version.split()[0]}, {len(names)} packages {digest}")'
seen=$(srun --ntasks-per-node=1 "$python" -c "$versions" | sort -u)
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
ray=("$python" -m ray.scripts.scripts start --block "--num-cpus=$cpus"
    "--num-gpus=${SLURM_GPUS_ON_NODE:-0}" --object-store-memory=200000000
    --min-worker-port=0 --max-worker-port=0
    "--temp-dir=/tmp/ray-$SLURM_JOB_ID")

# Not `ray stop`, which would end the Ray of the user's other jobs on a machine. Each process is ended
# by its id, and srun passes the signal on.
pids=()
cleanup() {
    trap - EXIT
    for pid in "${pids[@]}"; do kill -TERM "$pid" 2> /dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" || true; done
}
trap cleanup EXIT
on_node() {
    local node=$1
    shift
    srun --overlap --nodes=1 --ntasks=1 "--nodelist=$node" "$@" &
    pids=("$!" "${pids[@]}") # the head, started first, ends last
}

# The dashboard must be on: Ray Train asks it for the resources of dead trials. The port of Ray's
# clients is not used, but Ray would end where another Ray of the node has its default, 10001.
on_node "${nodes[0]}" "${ray[@]}" --head "--node-ip-address=$host" "--port=$port" \
    "--ray-client-server-port=$((port + 1))" "--dashboard-port=$((port + 2))" --include-dashboard=true
for node in "${nodes[@]:1}"; do
    on_node "$node" "${ray[@]}" "--address=$address"
done
export RAY_ADDRESS=$address
joined='
import sys, time
import ray
wanted, deadline = int(sys.argv[1]), time.monotonic() + 300
while not ray.is_initialized():
    try:
        ray.init(log_to_driver=False, logging_level="ERROR")
    except ConnectionError:
        if time.monotonic() > deadline:
            sys.exit("error: the head did not start within 5 minutes")
        time.sleep(1)
while (alive := sum(node["Alive"] for node in ray.nodes())) < wanted:
    if time.monotonic() > deadline:
        sys.exit(f"error: {alive} of {wanted} nodes joined within 5 minutes")
    time.sleep(0.5)
print(f"{alive} nodes joined")'
"$python" -c "$joined" "${#nodes[@]}"

# A process group of its own, because bash has background commands ignore interrupts.
set -m
"$python" "$@" &
driver=$!
set +m
out_of_time=
trap 'out_of_time=yes; kill -INT "$driver" 2> /dev/null || true' USR1
trap 'kill -INT "$driver" 2> /dev/null || true' TERM INT
code=0
while kill -0 "$driver" 2> /dev/null; do # `wait` also returns when a signal came
    code=0
    wait "$driver" || code=$?
done
cleanup
if test -n "$out_of_time" && test "$code" = 130; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
