# A run directory that the nodes do not share is refused before the first step.
# Nodes: 2
. "$(dirname "$0")/lib.sh"

small="--model gpt2-tiny --seq 16 --batch 4 --steps 2 --eval-every 0 --val-fraction 0 --data self --quiet"

run mpirun --host "$(hosts 1)" "$weft" train $small --out own
expect_code 2
expect_once "weft: error: --out own is not shared by all hosts: what rank 0 writes there on node1 does not appear on node2; "
[ ! -e own/metrics.jsonl ] || fail "the run has begun"

run ls -A own
expect_not_said .shared

# Resuming: node2 has no run, or another one.
run "$weft" train $small --out own-run
expect_code 0
run mpirun --host "$(hosts 1)" "$weft" train --out own-run --resume --steps 4 --quiet
expect_code 2
expect_once "weft: error: rank 1 on node2: --resume: own-run contains no run to continue"
tar c own-run | on node2 "tar x; sed -i 's/\"seed\": 1/\"seed\": 2/' own-run/config.json"
run mpirun --host "$(hosts 1)" "$weft" train --out own-run --resume --steps 4 --quiet
expect_code 2
expect_once "rank 0 on node1 has --seed 1, but rank 1 on node2 has --seed 2; "
finish
