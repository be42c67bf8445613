# A node that disappears ends the run, with a message that says how to continue it; then the run continues.
# Nodes: 2
. "$(dirname "$0")/lib.sh"

# The launcher's defaults take up to 30 s.
export OMPI_MCA_oob_tcp_keepalive_time=1 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=2
train="train --model gpt2-tiny --seq 16 --batch 4 --eval-every 0 --val-fraction 0 --data self --quiet --save-every 2"
where="--ranks 2 --hosts $(hosts 1)"
dir=/mnt/shared/run

# Cuts the link once there is a checkpoint; before, the ranks are called weft.
(
    wait_for 120 test -e $dir/latest
    on node2 "pgrep -cx weft" >names
    cut_link 2
) &
run "$weft" $train $where --steps 1000000 --out $dir
expect_code 1
expect_once "weft: error: lost the connection to node2, the host of rank 1; the other ranks were terminated; "
expect_said "the newest checkpoint is $dir/checkpoints/step-"
expect_said "; to continue: $weft $train $where --steps 1000000 --out $dir --resume"
wait
cp names said
expect_said 1

# The ranks on the lost node end as well.
join_link 2
run wait_for 120 on node2 "! pgrep -x weft"
expect_code 0
steps=$(readlink $dir/latest)
steps=$((${steps##*-} + 2))
run "$weft" $train $where --steps $steps --out $dir --resume
expect_code 0

# A rank that reports first (--timeout) leaves the launcher with messages that node2 never acknowledges.
unset OMPI_MCA_oob_tcp_keepalive_time OMPI_MCA_oob_tcp_keepalive_intvl OMPI_MCA_oob_tcp_keepalive_probes
(
    before=$(readlink $dir/latest)
    wait_for 120 sh -c "[ \$(readlink $dir/latest) != $before ]"
    cut_link 2
    date +%s >cut
) &
run timeout -s KILL 100 "$weft" $train $where --steps 1000000 --timeout 3 --out $dir --resume
ended=$(date +%s)
wait
expect_code 1
expect_once "no progress for "
expect_once "rank 1 on node2 never arrived and does not answer"
[ $((ended - $(cat cut))) -le 16 ] || fail "ended $((ended - $(cat cut))) s after the link went down"
! pgrep -a 'mpiexec|weft' >said || fail "these processes are left"
finish
