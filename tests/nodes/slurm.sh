# Slurm on two nodes: srun starts ranks, deploy/slurm.sbatch is stopped by its time limit, queued again and resumed.
# Nodes: 2
# Config: All
. "$(dirname "$0")/lib.sh"

for tool in munged slurmctld slurmd sbatch srun; do
    PATH=$PATH:/usr/sbin command -v $tool >/dev/null 2>&1 || {
        echo "skipped: $tool is not installed (Debian: munge slurmctld slurmd slurm-client)"
        exit 77
    }
done

# ---- a cluster of two nodes; it ends with their namespaces ----

export SLURM_CONF=/mnt/shared/slurm.conf
dd if=/dev/urandom of=/mnt/shared/munge.key bs=64 count=1 2>/dev/null
chmod 600 /mnt/shared/munge.key
cat >$SLURM_CONF <<END
ClusterName=test
SlurmctldHost=node1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=10
StateSaveLocation=$here/state
SlurmdSpoolDir=$here/spool
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=node[1-2] CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
cat >/mnt/shared/node.sh <<END
mkdir -p /run/munge $here/state $here/spool
chmod 755 /run/munge
munged --force --key-file=/mnt/shared/munge.key --log-file=$here/munged.log --pid-file=/run/munge/munged.pid \
    --seed-file=$here/munged.seed
[ "\$(hostname)" = node2 ] || SLURM_CONF=$SLURM_CONF slurmctld -L $here/slurmctld.log
SLURM_CONF=$SLURM_CONF slurmd -L $here/slurmd.log
END
export PATH=$PATH:/usr/sbin
run sh /mnt/shared/node.sh
expect_code 0
run on node2 sh /mnt/shared/node.sh
expect_code 0
run wait_for 60 sh -c "sinfo -h -o %T | grep -qx idle && ! sinfo -h -o %T | grep -vx idle"
[ "$code" = 0 ] || { cp $here/slurmctld.log said; fail "the nodes are not ready"; finish; }

# ---- ranks from srun ----

small="--model gpt2-tiny --seq 16 --batch 4 --eval-every 0 --val-fraction 0 --data self --schedule constant --warmup 0"
losses() { sed -n 's/.*"loss":\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }

# agree A B: the runs have the same number of losses, which differ by less than 1e-5.
agree() {
    losses "$1" >one
    losses "$2" >two
    paste one two | awk 'NF != 2 || ($1 - $2) ^ 2 > 1e-10 * $2 ^ 2 { bad = 1 } END { exit bad || !NR }' ||
        { paste one two >said; fail "the losses of $1 and $2 differ"; }
}

run "$weft" train $small --steps 6 --quiet --out alone
expect_code 0
run srun -N 2 -n 4 --mpi=pmix "$weft" train $small --steps 6 --tp 2 --dp 2 --quiet --out /mnt/shared/srun
expect_code 0
agree /mnt/shared/srun alone
run sh -c "$weft info /mnt/shared/srun"
expect_said node2
run srun -N 2 -n 2 --mpi=none "$weft" train $small --steps 6 --quiet --out /mnt/shared/none
expect_code 2
expect_said "the launcher started 2 tasks, but they do not see each other; with Slurm, start them with srun --mpi=pmix"

# ---- a time limit ----

# The job would take hours. Slurm signals it 50 s before its limit of a minute; after the requeue it gets a few more steps.
cp /mnt/deploy/slurm.sbatch job.sh
echo "{\"steps\": 1000000, \"log-every\": 1}" >/mnt/shared/run.json
cd /mnt/shared
run sbatch --parsable --nodes 2 --ntasks-per-node 1 --cpus-per-task 1 --time 1 --signal USR1@50 -o job.out \
    --export ALL,WEFT="$weft" $here/job.sh --config run.json $small --save-every 0 --quiet --out /mnt/shared/run
expect_code 0
job=$(cat said)
run wait_for 120 grep -q "queueing the job again" job.out
expect_code 0
done=$(losses run | wc -l)
sed -i "s/1000000/$((done + 3))/" run.json
run wait_for 120 sh -c "scontrol show job $job | grep -q JobState=COMPLETED"
[ "$code" = 0 ] || { { scontrol show job $job; tail -20 job.out; } >said 2>&1; fail "the job has not completed"; }
run scontrol show job $job
expect_said "Restarts=1"
run "$weft" train $small --steps $((done + 3)) --log-every 1 --quiet --out $here/through
agree run $here/through
finish
