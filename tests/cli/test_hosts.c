/* Hosts and restarts: which hosts are refused or not reached, and on which ones, and on how many ranks, a run
 * starts again after a failure. Instead of mpirun and ssh, most tests have scripts. */
#include "base/fs.h"
#include "launched.h"

/* Fills `loss` with the losses in a run's metrics, by step. */
static void read_losses(const char *metrics, double loss[8]) {
    FILE *file = fopen(metrics, "r");
    char line[4096];
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        CLEANUP(json_decrefp) json_t *json = json_loads(line, 0, NULL);
        int64_t step = json_int_at(json, "step");
        if (step >= 1 && step <= 8 && json_object_get(json, "loss"))
            loss[step - 1] = json_number_at(json, "loss");
    }
    fclose(file);
}

/* A launcher that fails twice without a new checkpoint in between: fewer replicas start, with the same loss
 * at every step as in a run that was never disturbed. A divergence is not tried again. */
static void restarts_on_fewer_ranks(void **state) {
    if (!mpi_built()) skip();
    double calm[8] = {0}, disturbed[8] = {0};
    Ran ran =
        shell("head -c 8000 $WEFT | od -An -tx1 >corpus.txt && "
              "printf '#!/bin/sh\necho call \"$@\" >>calls\n[ $(wc -l <calls) -gt 2 ] && exec mpirun \"$@\"\n"
              "echo weft: error: rank 3: broken >&2\nexit 1\n' >launcher && chmod +x launcher && "
              "T='--data corpus.txt --model gpt2-tiny --layers 2 --hidden 32 --heads 2 --seq 16 --batch 16 "
              "--schedule constant --warmup 0 --save-every 4 --threads 1 --eval-every 0 --quiet' && "
              "$WEFT train $T --steps 8 --out calm >out && "
              "$WEFT train $T --steps 4 --ranks 4 --zero 1 --out run >out && "
              "WEFT_MPIRUN=./launcher $WEFT train $T --steps 8 --ranks 4 --zero 1 --out run --resume-from 4 "
              "--max-restarts 2 --json");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.err, "; restarting from the newest checkpoint, 1 restart left\n");
    assert_contains(ran.err,
                    "the ranks failed, again without a new checkpoint; the next start is in 2 s\n"
                    "weft: warning: restarting on 2 ranks (dp 2 instead of 4) from the newest checkpoint, "
                    "0 restarts left\n");
    CLEANUP(json_decrefp) json_t *json = json_loads(ran.out, 0, NULL);
    const json_t *layout = json_object_get(json, "layout");
    assert_int_equal(json_int_at(layout, "ranks"), 2);
    assert_int_equal(json_int_at(layout, "batch"), 16);
    assert_int_equal(json_int_at(layout, "micro_batch"), 4);
    ran_done(&ran);
    read_losses(at("calm/metrics.jsonl"), calm);
    read_losses(at("run/metrics.jsonl"), disturbed);
    for (int i = 0; i < 8; i++) assert_float_equal(disturbed[i], calm[i], 1e-6);
    assert_true(calm[0] > 1 && calm[7] < calm[0]);
    ran =
        shell("rm calls && WEFT_MPIRUN=./launcher $WEFT train --data corpus.txt "
              "--model gpt2-tiny --layers 2 --hidden 32 --heads 2 --seq 16 --threads 1 --eval-every 0 "
              "--quiet --steps 1 --ranks 4 --out fresh --max-restarts 2 --json && ! grep -e --resume calls");
    assert_int_equal(ran.code, 0);
    assert_contains(ran.err, "from the beginning, 0 restarts left\n");
    CLEANUP(json_decrefp) json_t *fresh = json_loads(ran.out, 0, NULL);
    layout = json_object_get(fresh, "layout");
    assert_int_equal(json_int_at(layout, "ranks"), 2);
    assert_int_equal(json_int_at(layout, "batch"), 8); /* the default */
    ran_done(&ran);
    ran = shell("$WEFT train --out calm --resume --ranks 2 --steps 30 --lr 1e20 --clip 0 "
                "--max-restarts 2");
    assert_int_equal(ran.code, 1);
    assert_contains(ran.err, "weft: error: ");
    assert_null(strstr(ran.err, "restarting"));
    ran_done(&ran);
}

/* Host files and hosts that the launcher cannot use. */
static void refuses_wrong_hosts(void **state) {
    if (!mpi_built()) skip();
    static const struct {
        const char *text, *says; /* NULL: accepted */
    } files[] = {
        {"node1 slots=4\nTo be, or not to be\n",
         "line 2: expected a host such as 'node1 slots=4', found 'To"},
        {"once upon a time there was\n", "line 1: expected a host"},
        {"node1 slots=two\n", "line 1: expected a host"},
        {"node1 slots = two\n", "line 1: expected a host"},
        {"node1 slots=\n", "line 1: expected a host"},
        {"node1 slots=9223372036854775807\nnode2 slots=9223372036854775807\n", "line 1: expected a host"},
        {"node1:1\nnode2:x\n", "line 2: expected a host such as 'node1 slots=4', found 'node2:x'"},
        {"node1:1:node2:1\n", "line 1: expected a host"},
        {"-node1 slots=2\n", "line 1: expected a host"},
        {"# none\n\n", "names no host; expected lines such as 'node1 slots=4'"},
        {"# mine\n/* two\nlines, */ node1 slots = 2 max_slots = 3 // x, y\n\nme@10.0.0.1\n::1 4\n", NULL},
        {"node1:4 binding=user:0,1\r\nnode2", NULL},
    };
    const char *path = at("hosts");
    setenv("WEFT_MPIRUN", "false", 1);
    setenv("OMPI_MCA_plm_rsh_agent", "true", 1); /* in place of ssh: every host answers */
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        assert_ok(file_replace(path, files[i].text, strlen(files[i].text)));
        assert_refused(files[i].says ? 2 : 1,
                       files[i].says ? files[i].says : "could not start ranks on the hosts in ", "ranks",
                       "--ranks", "2", "--hostfile", path);
    }
    assert_ok(file_replace(path, "node1\n\0node2\n", 13)); /* hides node2 */
    assert_refused(2, "has a zero byte", "ranks", "--ranks", "2", "--hostfile", path);
    assert_refused(1, "--hostfile: /nowhere: cannot open", "ranks", "--ranks", "2", "--hostfile", "/nowhere");
    assert_refused(1, "false could not start ranks on node1:2, although ssh reaches them; check that weft",
                   "ranks", "--ranks", "2", "--hosts", "node1:2");
    assert_refused(2, "--ranks 1 runs in this process", "ranks", "--ranks", "1", "--hosts", "node1:2");
    assert_refused(2, "pass --ranks N", "ranks", "--hosts", "node1:2");
    static const char *const lists[] = {
        "node1:1:node2:1", "node1:x,node2:1", "node1:0,node2:2", "node1:-1", "-x:2",    "[]:2",
        "node1,,node2",    "node1:1,",        "node1 node2",     ":2",       "node1:1x"};
    for (size_t i = 0; i < COUNT_OF(lists); i++)
        assert_refused(2, "is not a host; expected hosts with the number of ranks on each", "ranks",
                       "--ranks", "2", "--hosts", lists[i]);
    assert_refused(2, "--ranks 4: the hosts have slots for 3", "ranks", "--ranks", "4", "--hosts", "a:1,b:2");
    assert_refused(1, "could not start", "ranks", "--ranks", "4", "--hosts",
                   "a,[::1]:2,me@b:*"); /* no limit */
    unsetenv("WEFT_MPIRUN");
    unsetenv("OMPI_MCA_plm_rsh_agent");
}

/* ssh that would ask for a password or a key fails instead, and the message names the host. What the launcher
 * and ssh print is only shown with --verbose. */
static void names_hosts_that_ssh_does_not_reach(void **state) {
    if (!mpi_built()) skip();
    Ran ran = shell(
        "printf '#!/bin/sh\n[ $1 = -q ] && [ $2 = node2 ] || exit 0\n"
        "[ -t 0 ] || (: >/dev/tty) 2>/dev/null || echo Host key verification failed. >&2\nexit 255\n' >agent "
        "&& "
        "printf '#!/bin/sh\nprintf %%070d\\\\\\\\n 0 | tr 0 - >&2\necho ORTE was unable >&2\n"
        "echo Host key verification failed. >&2\nexit 1\n' >launcher && chmod +x agent launcher && "
        "export OMPI_MCA_plm_rsh_agent=\"$PWD/agent -q : rsh\" WEFT_MPIRUN=$PWD/launcher && "
        "$WEFT ranks --ranks 3 --hosts node1:1,node2:1,node3:1; echo $?; "
        "$WEFT ranks --ranks 2 --hosts node1:1,node2:1 --verbose 2>&1 | grep -c unable");
    assert_string_equal(ran.out, "1\n1\n");
    assert_string_equal(ran.err,
                        "weft: error: ssh does not reach node2 (Host key verification failed); 'ssh HOST "
                        "true' must succeed for each host without asking anything\n");
    ran_done(&ran);
}

/* A host that does not answer is left out, and taken back when it answers at a later checkpoint. */
static void returns_to_lost_hosts(void **state) {
    if (!mpi_built()) skip();
    Ran ran = shell(
        "head -c 8000 $WEFT | od -An -tx1 >corpus.txt && "
        "printf '#!/bin/sh\n[ $1 = node1 ] || [ -e answers ] && exit 0\n"
        "echo $1: Permission denied >&2\nexit 255\n' >agent && "
        "printf '#!/bin/sh\necho call \"$@\" >>calls\n[ $(wc -l <calls) = 1 ] && "
        "{ echo weft: error: rank 3 on node2: broken >&2; exit 1; }\n"
        "n=$2; while [ \"${1#*weft}\" = \"$1\" ]; do shift; done\nexec mpirun -n $n \"$@\"\n' >launcher && "
        "chmod +x agent launcher && export OMPI_MCA_plm_rsh_agent=$PWD/agent && "
        "WEFT_MPIRUN=$PWD/launcher $WEFT train --data corpus.txt --model gpt2-tiny --layers 2 --hidden "
        "32 "
        "--heads 2 --seq 16 --batch 4 --threads 1 --eval-every 0 --quiet --steps 1000000 --save-every 5 "
        "--ranks 4 "
        "--hosts node1:2,node2:2 --out run --max-restarts 1 --json >out 2>err & weft=$!; "
        "wait_for() { i=0; until grep -q \"$@\" 2>/dev/null; do i=$((i+1)); [ $i -lt 600 ] || break; sleep "
        "0.1; "
        "done; }; wait_for 'node1:2 ' calls; until [ -e run/latest ] || ! kill -0 $weft; do sleep 0.1; done; "
        ": >answers; wait_for 'continuing on' err; wait_for -e '-n 4 .*--resume' calls; "
        ": >again; until [ run/latest -nt again ] || ! kill -0 $weft; do sleep 0.1; done; "
        "kill -TERM $weft; wait $weft; echo $?; cat err >&2; grep -c '^{' out; "
        "sed 's/^call \\(-n [0-9]* --host [^ ]*\\).*/\\1/' calls");
    assert_string_equal(ran.out, "75\n1\n-n 4 --host node1:2,node2:2\n-n 2 --host node1:2\n"
                                 "-n 4 --host node1:2,node2:2\n");
    assert_contains(
        ran.err, "restarting on 2 ranks (dp 2 instead of 4, without node2) from the beginning, 0 restarts");
    assert_contains(ran.err, "continuing on 4 ranks from the newest checkpoint\n");
    ran_done(&ran);
}

/* Hosts whose ranks failed before and after a restart are left out of the next one, if the others have slots
 * for its ranks. */
static void restarts_without_broken_hosts(void **state) {
    if (!mpi_built()) skip();
    Ran ran = shell(
        "printf 'hello world\\n%.0s' $(seq 99) >corpus.txt && "
        "printf 'node1 slots=2\\nnode2.example.org slots=2 # broken\\n' >hosts && "
        "printf '#!/bin/sh\\necho call \"$@\" >>calls\\n[ $(wc -l <calls) -gt 2 ] && exit 0\\n"
        "echo weft: error: rank 3 on node2: broken >&2\\nexit 1\\n' >launcher && chmod +x launcher && "
        "export OMPI_MCA_plm_rsh_agent=true; "
        "for where in '--hosts node1:2,node2:2' '--hosts node1:1,node2:3' '--hostfile hosts'; do rm -f "
        "calls; "
        "WEFT_MPIRUN=./launcher $WEFT train --data corpus.txt --model gpt2-tiny --ranks 4 $where --out run "
        "--max-restarts 2 --quiet; echo $?; tail -n 1 calls | grep -cE 'call -n 2 --?hosts? node1:2 '; done");
    assert_string_equal(ran.out, "0\n1\n0\n0\n0\n1\n");
    assert_contains(ran.err, "restarting on 2 ranks (dp 2 instead of 4, without node2) from the beginning");
    ran_done(&ran);
}

/* Groups that shard are of ranks with the same parameters, also those that have parts of sequences. */
static void restarts_with_smaller_groups(void **state) {
    if (!mpi_built()) skip();
    Ran ran = shell(
        "printf 'hello world\\n%.0s' $(seq 99) >corpus.txt && "
        "printf '#!/bin/sh\\necho call \"$@\" >>calls\\n[ $(wc -l <calls) -gt 2 ] && exit 0\\n"
        "echo weft: error: rank 3 on node2: broken >&2\\nexit 1\\n' >launcher && chmod +x launcher && "
        "export OMPI_MCA_plm_rsh_agent=true; "
        "for shard in 4 2; do rm -f calls; "
        "WEFT_MPIRUN=./launcher $WEFT train --data corpus.txt --model gpt2-tiny --ranks 4 --cp 2 --zero 1 "
        "--shard $shard --hosts node1:2,node2:2 --out run --max-restarts 2 --quiet; "
        "sed -n '$s/.*\\(--dp [0-9]*\\).*/\\1/p' calls; grep -o -e '--shard [0-9]*' calls | tail -n 1; done");
    assert_string_equal(ran.out, "--dp 1\n--shard 2\n--dp 1\n--shard 2\n");
    ran_done(&ran);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, launched_setup, corpus_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(restarts_on_fewer_ranks),       IN_FOLDER(refuses_wrong_hosts),
        IN_FOLDER(restarts_without_broken_hosts), IN_FOLDER(names_hosts_that_ssh_does_not_reach),
        IN_FOLDER(returns_to_lost_hosts),         IN_FOLDER(restarts_with_smaller_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
