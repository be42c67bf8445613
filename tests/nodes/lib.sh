# Functions for the tests that `nodes` runs; sourced on node1.
set -u

here=/mnt/local
cd $here
tests_failed=0

# Settings that any launcher of a simulated node needs: root, and more ranks than cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_odls_base_sigkill_timeout=0 # mpirun ends at once when a rank fails, instead of after seconds
export OMPI_MCA_hwloc_base_binding_policy=none OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive

# Ranks per node, as "node1:2,node2:2".
hosts() {
    list=
    for number in $(seq "$count"); do list="$list,node$number:$1"; done
    echo "${list#,}"
}

on() { # on NODE COMMAND...: runs a shell command on another node
    node=$1
    shift
    ssh -o BatchMode=yes "$node" "cd $here; $*"
}

# Runs a command; its output is in the file `said`, its exit code in $code, its duration in $seconds.
run() {
    started=$(date +%s%N)
    code=0
    "$@" >said 2>&1 </dev/null || code=$?
    seconds=$((($(date +%s%N) - started) / 1000000000))
}

fail() {
    echo "FAILED: $*"
    echo "  exit code $code after $seconds s; output:"
    sed 's/^/  | /' said
    tests_failed=1
}

expect_code() { [ "$code" = "$1" ] || fail "expected exit code $1"; }
expect_said() { grep -qF -- "$1" said || fail "expected in the output: $1"; }
expect_not_said() { ! grep -qF -- "$1" said || fail "not expected in the output: $1"; }
expect_once() { [ "$(grep -cF -- "$1" said)" = 1 ] || fail "expected on one line: $1"; }
expect_within() { [ "$seconds" -le "$1" ] || fail "took longer than $1 s"; }

# Disconnects a node from the others, or connects it again.
cut_link() { echo "ip link set link$1 down" >/mnt/control; }
join_link() { echo "ip link set link$1 up" >/mnt/control; }

# limit_links RATE: limits what each node receives to a rate in tc's notation, such as 200mbit. Fails if that is
# impossible.
limit_links() {
    commands=true
    for number in $(seq "$count"); do
        commands="$commands && tc qdisc replace dev link$number root tbf rate $1 burst 64kb latency 400ms"
    done
    rm -f /mnt/limited
    echo "{ $commands; }; echo \$? >/mnt/limited.new; mv /mnt/limited.new /mnt/limited" >/mnt/control
    wait_for 10 test -e /mnt/limited && [ "$(cat /mnt/limited)" = 0 ]
}

# wait_for SECONDS COMMAND...: repeats a command until it succeeds.
wait_for() {
    tries=$(($1 * 5))
    shift
    until "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.2
    done
}

finish() { exit $tests_failed; }
