# Ranks that were started differently are refused before the first step, with one message that names the difference.
# Nodes: 2
. "$(dirname "$0")/lib.sh"

small="--model gpt2-tiny --seq 16 --batch 4 --steps 2 --eval-every 0 --val-fraction 0 --quiet"

# different FIRST SECOND: other options on node2 than on node1.
different() {
    run mpirun --host node1 -n 1 "$weft" train $small $1 : --host node2 -n 1 "$weft" train $small $2
    expect_within 120 # seconds; they waited forever
}

# The nodes share nothing; contents are compared, not paths.
seq 1 4000 >text.txt
on node2 "mkdir data; cat >data/other.txt" <text.txt
different "--threads 1 --data text.txt" "--threads 2 --data data/other.txt"
expect_code 0
expect_said "2 steps"

different "--lr 0.001 --data text.txt" "--lr 0.002 --data data/other.txt"
expect_code 2
expect_once "weft: error: the ranks differ: rank 0 on node1 has --lr 0.001, but rank 1 on node2 has --lr 0.002; start "

on node2 "sed s/4000/4001/ data/other.txt >text.txt"
different "--data text.txt" "--data text.txt"
expect_code 2
expect_once "rank 0 on node1 has --data text.txt (18.9 kB, checksum "
expect_once "but rank 1 on node2 has --data text.txt (18.9 kB, checksum "

# Weights, and the program itself.
run "$weft" train $small --data text.txt --out first
expect_code 0
tar c first/checkpoints/step-2 | on node2 "tar x; mv data/other.txt text.txt"
model=first/checkpoints/step-2
on node2 "printf x | dd of=$model/model.safetensors bs=1 seek=2000 conv=notrunc status=none"
different "--model $model --data text.txt" "--model $model --data text.txt"
expect_code 2
expect_once "rank 1 on node2 has --model $model/model.safetensors ("
cp "$weft" own-weft
printf x >>own-weft
run mpirun --host node1 -n 1 ./own-weft train $small --data text.txt : \
    --host node2 -n 1 "$weft" train $small --data text.txt
expect_code 2
expect_once "the ranks differ: rank 0 on node1 has weft "
finish
