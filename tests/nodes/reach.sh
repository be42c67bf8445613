# The simulated nodes themselves: names, ssh, separate and shared directories, and a group of ranks across them.
# Nodes: 2
. "$(dirname "$0")/lib.sh"

run on node2 hostname
expect_code 0
expect_once node2
touch $here/only-here /tmp/only-here /mnt/shared/seen
run on node2 "ls $here /tmp /dev/shm ~ /mnt/shared"
expect_code 0
expect_not_said only-here
expect_said seen

run mpirun --host "$(hosts 1)" "$weft" ranks --size 4096 --repeats 1
expect_code 0
expect_once "rank 0 on node1"
expect_once "rank 1 on node2"
expect_said "all-reduce latency"
finish
