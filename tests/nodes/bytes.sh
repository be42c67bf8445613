# What a training step sends from node to node, by the counters of the network interfaces: an all-reduce of P bytes of
# gradients over N nodes needs 2P(N-1)/N from each, whatever the number of ranks on them.
# Nodes: 3
# Config: All
. "$(dirname "$0")/lib.sh"

train="train --model gpt2-tiny --layers 4 --hidden 320 --heads 5 --seq 16 --batch 24 --data self --eval-every 0
    --val-fraction 0 --save-every 0 --quiet"

# Bytes that a node has sent to others so far.
sent() { on "node$1" "sed -n 's/.*eth0: *//p' /proc/net/dev" | awk '{print $9}'; }

value() { sed -n "s/^ *\"$2\": \([0-9]*\),*$/\1/p" "/mnt/shared/$1/summary.json" | head -n 1; }

steps=4

# counts HOSTS RANKS OPTION...: nodes send what is counted, apart from control messages and the start of the ranks.
counts() {
    hosts=$1 ranks=$2
    shift 2
    for number in 1 2; do sent "$number" >"before$number"; done
    run "$weft" $train --ranks "$ranks" --hosts "$hosts" --steps $steps --out "/mnt/shared/$hosts-$1-$2" "$@"
    expect_code 0
    counted=$(value "$hosts-$1-$2" between_nodes_bytes) measured=0
    counted=$((counted + $(value "$hosts-$1-$2" other_between_nodes_bytes)))
    for number in 1 2; do measured=$((measured + $(sent "$number") - $(cat "before$number"))); done
    echo "$hosts $*: $measured bytes sent, $counted counted"
    [ $((100 * measured)) -le $((105 * counted)) ] || fail "more is sent than counted"
    [ $((105 * measured)) -ge $((100 * counted)) ] || fail "less is sent than counted"
}

# within HOSTS RANKS NODES: each node sends at most 5% more than needed, including what starting the ranks takes.
within() {
    for number in $(seq "$3"); do sent "$number" >"before$number"; done
    run "$weft" $train --ranks "$2" --hosts "$1" --steps $steps --out "/mnt/shared/$1"
    expect_code 0
    need=$((8 * $(value "$1" params_total) * ($3 - 1) / $3))
    counted=$(($(value "$1" between_nodes_bytes) / steps / $3))
    for number in $(seq "$3"); do
        measured=$((($(sent "$number") - $(cat "before$number")) / steps))
        echo "$1: node$number sends $measured bytes per step, $counted counted, $need needed"
        [ $((100 * measured)) -le $((105 * need)) ] || fail "node$number sends too much"
        [ $((100 * measured)) -le $((105 * counted)) ] || fail "node$number sends more than is counted"
        [ $((105 * measured)) -ge $((100 * counted)) ] || fail "node$number sends less than is counted"
    done
}

within node1:1,node2:1 2 2
within node1:2,node2:2 4 2
within node1:2,node2:2,node3:2 6 3
within node1:4,node2:4 8 2
counts node1:1,node2:1 2 --pp 2 --micro-batch 6
# Saving what is sharded sends nothing: each rank writes its shards. If only rank 0 has the directory, it is sent them,
# and parameters that every rank has in full are gathered before the first step.
counts node1:1,node2:1 2 --zero 2
counts node1:1,node2:1 2 --zero 1 --gather-checkpoints

# The same replicas on other nodes give the same losses, to the last bit.
losses() { sed 's/.*"loss": *\([^,]*\),.*/\1/' "/mnt/shared/$1/metrics.jsonl"; }
run "$weft" $train --ranks 4 --hosts node1:1,node2:2,node3:1 --steps $steps --out /mnt/shared/other
expect_code 0
losses node1:2,node2:2 >one
losses other >two
cmp one two || fail "the losses depend on the nodes"
finish
