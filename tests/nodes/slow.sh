# A slow network between nodes: `weft ranks` reports its rate, and losses stay the same.
# Nodes: 2
. "$(dirname "$0")/lib.sh"

limit_links 200mbit || {
    echo "skipped: tc cannot limit the rate of a network interface (package iproute2, kernel module sch_tbf)"
    exit 77
}

# between_limits TEXT: the line of output that starts so has a rate of up to 25 MB/s, give or take what the links let
# through at once. A busy machine may be much slower than the links, but not faster.
between_limits() {
    rate=$(sed -n "s,^$1.* \([0-9.]*\) MB/s.*,\1,p" said)
    [ "$rate" ] && awk -v rate="$rate" 'BEGIN { exit !(rate > 1 && rate < 50) }' || fail "expected up to 25 MB/s: $1"
}

run "$weft" ranks --ranks 4 --hosts "$(hosts 2)" --size 1MB --repeats 1
expect_code 0
expect_said "within a node: "
between_limits "between nodes"

# Both directions at once: an all-reduce over two nodes takes each byte once each way, so it nearly reaches the rate of
# the link. The link is so slow that the load of the machine does not matter.
limit_links 20mbit
run "$weft" ranks --ranks 2 --hosts "$(hosts 1)" --size 4MB --repeats 3
expect_code 0
rate=$(sed -n "s,^all-reduce of.* \([0-9.]*\) MB/s.*,\1,p" said)
[ "$rate" ] && awk -v rate="$rate" 'BEGIN { exit !(rate > 2.0 && rate < 2.6) }' || fail "expected nearly 2.5 MB/s"
limit_links 200mbit

small="--model gpt2-tiny --seq 16 --batch 4 --steps 3 --eval-every 0 --val-fraction 0 --data self --quiet"
losses() { sed -n 's/.*"loss":\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }
run "$weft" train $small --out alone
expect_code 0
for layout in "--dp 4 --zero 3" "--tp 2 --dp 2" "--pp 2 --dp 2"; do
    rm -rf /mnt/shared/run
    run "$weft" train --ranks 4 --hosts "$(hosts 2)" $small $layout --out /mnt/shared/run
    expect_code 0
    losses alone >one
    losses /mnt/shared/run >two
    paste one two >said
    awk 'NF != 2 || ($1 - $2) ^ 2 > 1e-10 * $2 ^ 2 { bad = 1 } END { exit bad || NR != 3 }' said ||
        fail "$layout: the losses differ"
done
finish
