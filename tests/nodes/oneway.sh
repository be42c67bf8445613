# Messages that are lost in one direction only: the report names the pair.
# Nodes: 3
. "$(dirname "$0")/lib.sh"

train="train --model gpt2-tiny --seq 16 --batch 6 --eval-every 0 --val-fraction 0 --data self --quiet --save-every 2"
dir=/mnt/shared/run
(
    wait_for 120 test -e $dir/latest
    on node2 "ip neigh replace 10.0.0.3 lladdr 02:00:00:00:00:99 dev eth0 nud permanent" # nobody's address
) &
run timeout -s KILL 100 "$weft" $train --ranks 3 --hosts "$(hosts 1)" --steps 1000000 --timeout 8 --out $dir
wait
expect_code 1
expect_once "no progress for "
expect_once "nothing arrives between rank 1 on node2 and rank 2 on node3, although both answer rank 0; check the network"
finish
