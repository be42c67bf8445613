# A run directory that the nodes do not share is refused before the first step, unless checkpoints are gathered.
# Nodes: 2
. "$(dirname "$0")/lib.sh"

small="--model gpt2-tiny --seq 16 --batch 4 --steps 2 --eval-every 0 --val-fraction 0 --data self --quiet"

run mpirun --host "$(hosts 1)" "$weft" train $small --out own
expect_code 2
expect_once "weft: error: --out own is not shared by all hosts: what rank 0 writes there on node1 does not appear on node2; add --gather-checkpoints to save on node1 only"
[ ! -e own/metrics.jsonl ] || fail "the run has begun"

run ls -A own
expect_not_said .shared

# Resuming: node2 has no run, or another one.
run "$weft" train $small --out own-run
expect_code 0
run mpirun --host "$(hosts 1)" "$weft" train --out own-run --resume --steps 4 --quiet
expect_code 2
expect_once "weft: error: rank 1 on node2: --resume: own-run contains no run to continue; if only rank 0 has it, add --gather-checkpoints"
tar c own-run | on node2 "tar x; sed -i 's/\"seed\": 1/\"seed\": 2/' own-run/config.json"
run mpirun --host "$(hosts 1)" "$weft" train --out own-run --resume --steps 4 --quiet
expect_code 2
expect_once "rank 0 on node1 has --seed 1, but rank 1 on node2 has --seed 2; "

# Gathered: node1 has the model and the run, node2 nothing. A run that is interrupted and resumed ends with the
# files of one in a shared directory that is not.
small="--data self --seq 16 --batch 4 --eval-every 0 --val-fraction 0 --save-every 1 --schedule constant --warmup 0 --quiet"
run "$weft" train --model gpt2-tiny $small --steps 1 --out start
expect_code 0
cp -rL start/latest model
rm model/optimizer.safetensors model/weft.json
cp -r model /mnt/shared/model
start="$weft train --ranks 2 --hosts $(hosts 1)"
for layout in "--dp 2 --zero 3" "--pp 2"; do
    rm -rf gathered /mnt/shared/run
    run $start --model /mnt/shared/model $small $layout --steps 4 --out /mnt/shared/run
    expect_code 0
    run $start --gather-checkpoints --model model $small $layout --steps 3 --trace --out gathered
    expect_code 0
    [ -s gathered/trace.json ] || fail "$layout: no trace"
    run $start --out gathered --resume --steps 4
    expect_code 0
    for file in model.safetensors optimizer.safetensors config.json tokenizer.json; do
        run cmp gathered/latest/$file /mnt/shared/run/latest/$file
        expect_code 0
    done
    run wc -l gathered/metrics.jsonl
    expect_said "4 gathered"
    run on node2 "ls -A . /tmp"
    expect_not_said gathered
    expect_not_said weft-
done
finish
