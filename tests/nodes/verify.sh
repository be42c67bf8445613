# A verification across nodes that share no directory, and one with a rank of the second node that computes wrongly.
# Nodes: 2
. "$(dirname "$0")/lib.sh"

run "$weft" verify --ranks 4 --hosts "$(hosts 2)" --time 10
expect_code 0
expect_said "rank 3 on node2"
expect_said "between nodes: latency"
expect_said "checkpoints  fp32"
expect_said "checks passed on 4 ranks"

export WEFT_TEST_FLIP=3
run "$weft" verify --ranks 4 --hosts "$(hosts 2)" --time 10
expect_code 1
expect_said "FAILED kernels: gpt2 fp32"
expect_said "FAILED layouts: "
expect_said "step 2 on rank 3"
expect_not_said "on rank 1"
finish
