# Starting ranks on several nodes: --hosts, --hostfile, variables, placement, and host names in results.
# Nodes: 2
. "$(dirname "$0")/lib.sh"

train="train --model gpt2-tiny --seq 16 --batch 4 --steps 3 --eval-every 0 --val-fraction 0 --data self --quiet"

# WEFT_CPU_BF16 would differ between the ranks if it did not reach node2.
export WEFT_CPU_BF16=none
run "$weft" $train --ranks 4 --tp 2 --hosts "$(hosts 2)" --out /mnt/shared/run --trace
expect_code 0
expect_not_said warning
cp /mnt/shared/run/summary.json said
expect_said '"host": "node1"'
expect_said '"host": "node2"'
cp /mnt/shared/run/trace.json said
expect_said 'rank 1 on node1: '
expect_said 'rank 2 on node2: '
expect_said '"between nodes":'
run "$weft" info /mnt/shared/run
expect_said "ranks 2-3 on node2"
expect_said " per step by all ranks, "
run "$weft" report /mnt/shared/run
expect_code 0
cp report.html said
expect_said ">rank 2 on node2<"

# Tensor-parallel ranks belong on one node.
unset WEFT_CPU_BF16
printf 'node1 slots=1\nnode2 slots=1\n' >hostfile
run "$weft" $train --ranks 2 --tp 2 --hostfile hostfile
expect_code 0
expect_once "warning: a tensor-parallel group spans nodes (rank 0 is on node1, rank 1 on node2), which is slow; no node has"
run mpirun --map-by node --host "$(hosts 2)" -n 4 "$weft" $train --tp 2
expect_code 0
expect_once "start a multiple of 2 consecutive ranks on each node, with Open MPI: --map-by ppr:2:node"

# srun without --mpi.
run env SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 "$weft" $train
expect_code 2
expect_once "the launcher started 2 tasks, but they do not see each other; with Slurm, start them with srun --mpi=pmix"
run "$weft" $train --hosts node1:1
expect_code 2
expect_once "pass --ranks N"

# ssh cannot ask on the terminal, also without BatchMode.
mv ~/.ssh/known_hosts known_hosts
for agent in "" "OMPI_MCA_plm_rsh_agent=ssh"; do
    run timeout 60 script -qec "env $agent $weft ranks --ranks 2 --hosts $(hosts 1)" /dev/null
    expect_code 1
    expect_once "weft: error: ssh does not reach node2 (Host key verification failed); "
done
finish
