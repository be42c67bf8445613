# SIGTERM stops ranks on other nodes after their step and saves, also if none of them runs here.
# Nodes: 3
# Config: All
. "$(dirname "$0")/lib.sh"

train="train --model gpt2-tiny --seq 16 --batch 4 --eval-every 0 --val-fraction 0 --data self --quiet --save-every 2"

# interrupted HOSTS: the run ends with code 75 and a checkpoint of its last step.
interrupted() {
    dir=/mnt/shared/$1
    "$weft" $train --ranks 2 --hosts "$1" --steps 1000000 --out "$dir" >said 2>&1 &
    process=$!
    wait_for 120 test -e "$dir/latest"
    kill -TERM $process
    code=0
    wait $process || code=$?
    seconds=0
    expect_code 75
    expect_said "; add --resume to continue"
}

interrupted node1:1,node2:1
interrupted node2:1,node3:1
finish
