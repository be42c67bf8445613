#!/bin/bash
# Trains under PBS, and continues in another job when the time limit stops it.
#
#   qsub -v ARGUMENTS="--config run.json --out /shared/runs/a" deploy/pbs.sh
#
# ARGUMENTS go to 'weft train'. --out must be on a file system that all nodes mount. WEFT names the program if it is not
# on PATH. SECONDS_TO_RUN must be lower than the walltime by the time that a step and a checkpoint take.
#PBS -N weft
#PBS -l select=2:ncpus=32:mpiprocs=4
#PBS -l walltime=12:00:00
#PBS -r y
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 1
limit=${SECONDS_TO_RUN:-43000}
code=0
# PBS_NODEFILE lists a host once for each rank. USR1 makes the ranks save and exit with code 75.
timeout --foreground --preserve-status --signal=USR1 "$limit" "${WEFT:-weft}" train --ranks "$(grep -c . "$PBS_NODEFILE")" \
    --hostfile "$PBS_NODEFILE" --resume --save-on-signal-seconds 120 $ARGUMENTS || code=$?
if [ $code = 75 ]; then
    echo "stopped and saved; queueing the job again"
    exec qsub -v "ARGUMENTS=$ARGUMENTS,SECONDS_TO_RUN=$limit${WEFT:+,WEFT=$WEFT}" deploy/pbs.sh
fi
exit $code
