# What slurm.sh and slurm-workers.sh share; nothing to submit. A script reads this file, and srun runs a
# function of it on a node: `srun bash cluster/slurm-node.sh FUNCTION ARGUMENTS`.

python=$PWD/.venv/bin/python
ray_files=/tmp/ray-${SLURM_JOB_ID:-}

# The virtual environment of the checkout, made or completed.
make_environment() {
    if test -e .venv/bin/ranksweep; then return; fi # pip writes it last
    python3 -m venv .venv
    "$python" -m pip install --quiet --constraint cluster/constraints.txt --editable ".[sweep]" || {
        echo "error: .venv is incomplete; without a network here, make it on the login node" >&2
        exit 2
    }
}

# What a node would run. One that does not share the folder makes an environment of its own.
versions() {
    make_environment >&2
    "$python" -c '
import hashlib, sys
from importlib.metadata import distributions
names = sorted({f"{one.name}=={one.version}" for one in distributions()})
digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]
print(f"Python {sys.version.split()[0]}, {len(names)} packages {digest}")'
}

# Whether the arguments of a sweep give each trial a part of a GPU.
shares_gpus() {
    [[ " $* " =~ \ --gpus-per-worker[=\ ]([0-9.eE+-]+)\  ]] &&
        awk -v part="${BASH_REMATCH[1]}" 'BEGIN { exit !(part > 0 && part < 1) }'
}

# CUDA MPS, without which the trials on a GPU compute in turns. Its own GPUs are those of the job:
# with CUDA_VISIBLE_DEVICES it would number them anew, and Ray has the numbers from before.
begin_mps() {
    case ${RANKSWEEP_MPS:-no} in no) return ;; esac
    mkdir -p "$1"
    export CUDA_MPS_PIPE_DIRECTORY=$1 CUDA_MPS_LOG_DIRECTORY=$1
    if env -u CUDA_VISIBLE_DEVICES nvidia-cuda-mps-control -d > "$1/begin.log" 2>&1; then return; fi
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    echo "warning: CUDA MPS does not start on $(hostname): trials on one GPU compute in turns" >&2
}
end_mps() {
    if test -z "${CUDA_MPS_PIPE_DIRECTORY:-}"; then return; fi
    echo "quit -t 5" | nvidia-cuda-mps-control > /dev/null 2>&1 || true
}

# Ray's node, started with the arguments, until standard input has a line or ends; then it ends by
# itself, before Slurm would kill it. After the line `done` or `leave` its files are removed; `leave`
# lets trials save their state first, for RANKSWEEP_DRAIN seconds at most. Ray's own lines are
# in a file among them. A node that does not find the head yet, or has lost Ray, starts it again.
run_ray() {
    local lines=$ray_files/${SLURMD_NODENAME:-node}.log tries=5 orders word='' part ray code
    local drain=${RANKSWEEP_DRAIN:-0}
    # Ray lets everybody read and write its folder: the one around it is the user's alone.
    if ! mkdir -m 700 "$ray_files" 2> /dev/null && ! test -O "$ray_files"; then
        echo "error: $ray_files of $(hostname) is another user's, or cannot be made" >&2
        return 1
    fi
    # Ray hands the path of its interpreter to a shell without quotes.
    ln -sfn "$PWD/.venv" "$ray_files/venv"
    case " $* " in *" --head "*) tries=1 ;; esac # another head would be another cluster
    exec {orders}<&0
    begin_mps "$ray_files/mps-${SLURMD_NODENAME:-node}"
    while test "$tries" -gt 0; do
        RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=$drain "$ray_files/venv/bin/python" -m ray.scripts.scripts \
            start --block "--num-cpus=${SLURM_CPUS_PER_TASK:-1}" \
            "--num-gpus=${SLURM_GPUS_ON_NODE:-0}" --object-store-memory=200000000 \
            --min-worker-port=0 --max-worker-port=0 "--temp-dir=$ray_files/ray" "$@" \
            < /dev/null >> "$lines" 2>&1 {orders}<&- &
        ray=$!
        tries=$((tries - 1))
        while kill -0 "$ray" 2> /dev/null; do
            code=0
            read -r -t 1 part <&"$orders" || code=$?
            word+=$part # the time may be over within a word
            if test "$code" -le 128; then # not the time: a line, or the end
                tries=0
                if test "$word" != leave; then drain=0; fi
                end_ray "$ray" $((drain + 20))
                end_mps
                if test "$word" = done || test "$word" = leave; then
                    rm -rf "$ray_files" 2> /dev/null || { sleep 2 && rm -rf "$ray_files"; }
                fi
                return 0
            fi
        done
        sleep 2
    done
    end_mps
    printf 'error: Ray ended on %s; the last of its lines, from %s:\n' "$(hostname)" "$lines" >&2
    tail -n 20 "$lines" >&2
    return 1
}

# Ends Ray on this node by its own signal; one that does not end within so many seconds, as while it
# starts on a busy machine, is killed with the processes that it has started.
end_ray() {
    local ray=$1 tenths=$((10 * $2)) started
    kill -TERM "$ray" 2> /dev/null || true
    while test $((tenths--)) -gt 0 && kill -0 "$ray" 2> /dev/null; do sleep 0.1; done
    started=$(pgrep -P "$ray" || true)
    # shellcheck disable=SC2086 # several numbers
    kill -KILL "$ray" $started 2> /dev/null || true
    wait "$ray" 2> /dev/null || true # without the shell's own line about it
}

if test "${BASH_SOURCE[0]}" = "$0"; then
    set -euo pipefail
    "$@"
fi
