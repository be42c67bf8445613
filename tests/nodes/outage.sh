# Restarts after an outage: a node that answers again within a minute is waited for; one that does not is left out, and
# taken back at a checkpoint after it answers.
# Nodes: 3
# Config: All
. "$(dirname "$0")/lib.sh"

train="train --model gpt2-tiny --seq 16 --batch 6 --eval-every 0 --val-fraction 0 --data self --quiet --save-every 2"
dir=/mnt/shared/run
"$weft" $train --ranks 3 --hosts "$(hosts 1)" --steps 1000000 --timeout 3 --max-restarts 2 --out $dir >said 2>&1 &
process=$!
code=none seconds=0

# Waits for a line of the output.
expect_line() { wait_for "$1" grep -qF -- "$2" said || fail "expected within $1 s: $2"; }
# Waits for a new checkpoint.
expect_step() {
    before=$(readlink $dir/latest)
    wait_for 60 sh -c "[ \"\$(readlink $dir/latest)\" != '$before' ]" || fail "no checkpoint after $before"
}
ranks() { sed -n 's/.*"ranks": *\([0-9]*\).*/\1/p' $dir/latest/weft.json | head -n 1; }

wait_for 60 test -e $dir/latest
cut_link 3
expect_line 30 "never arrived and does not answer"
expect_line 30 "weft: warning: ssh does not reach node3 ("
sleep 20
join_link 3
expect_line 60 "restarting from the newest checkpoint, 1 restart left"
expect_step

cut_link 3
expect_line 120 "restarting on 1 rank (dp 1 instead of 3, without node3) from the newest checkpoint, 0 restarts left"
expect_step
join_link 3
expect_line 60 "continuing on 3 ranks from the newest checkpoint"
expect_step
expect_step
kill -TERM $process
wait $process
code=$?
expect_code 75
finish
