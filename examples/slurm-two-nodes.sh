#!/bin/bash
# Train on two nodes of a Slurm cluster: sbatch examples/slurm-two-nodes.sh DATA RUN
# Both folders must be on a file system that all nodes see. The same command continues a run that was stopped.
#SBATCH --job-name=nearfar
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=1
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.txt

set -euo pipefail
data=$1 run=$2
processes=${SLURM_GPUS_ON_NODE:-1}                                    # one process for each GPU of a node
export OMP_NUM_THREADS=$(( SLURM_CPUS_PER_TASK / processes ))
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
first=${nodes%%$'\n'*}
mkdir -p "$run"                                                       # then --resume also starts a run

srun --kill-on-bad-exit=1 torchrun \
    --nnodes "$SLURM_NNODES" --nproc-per-node "$processes" \
    --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$first:29500" \
    -m nearfar train info-nce --data "$data" --batch-size 128 --output "$run" --resume
