/* The batch scripts in deploy/, with stand-ins for the commands of the batch systems and for weft: what they
 * call, and what they do with weft's exit code. */
#include "scripts/shell.h"

#define DEPLOY WEFT_SOURCE_DIR "/deploy/"

static void program(const Shell *shell, const char *path, const char *body) {
    char text[512];
    snprintf(text, sizeof text, "#!/bin/sh\n%s\n", body);
    shell_write(shell, path, text, 0777);
}

static void make_system(Shell *shell) {
    shell_run(shell, "mkdir bin deploy && printf 'node1\\nnode1\\nnode2\\nnode2\\n' >nodes");
    program(shell, "bin/srun", "shift; shift; exec \"$@\"");
    program(shell, "bin/weft", "echo \"weft $*\"; exit ${CODE:-0}");
    program(shell, "bin/scontrol", "echo \"scontrol $*\"");
    program(shell, "bin/qsub", "echo \"qsub $*\"");
}

#define SLURM                                                                                                \
    "PATH=$PWD/bin:$PATH SLURM_JOB_ID=17 bash '" DEPLOY "slurm.sbatch' --config 'a b.json' --out runs/a"
#define PBS                                                                                                  \
    "PATH=$PWD/bin:$PATH PBS_O_WORKDIR=$PWD PBS_NODEFILE=nodes ARGUMENTS='--config run.json' bash '" DEPLOY  \
    "pbs.sh'"

static void test_slurm(void **state) {
    Shell *shell = *state;
    make_system(shell);
    shell_run(shell, SLURM);
    assert_string_equal(shell->said,
                        "weft train --resume --save-on-signal-seconds 120 --config a b.json --out "
                        "runs/a\n");
    assert_int_equal(shell->code, 0);
    assert_shell(shell, "CODE=75 " SLURM, 0, "scontrol requeue 17\n");
    shell_run(shell, "CODE=1 " SLURM);
    assert_int_equal(shell->code, 1);
    assert_null(strstr(shell->said, "scontrol"));
}

static void test_pbs(void **state) {
    Shell *shell = *state;
    make_system(shell);
    shell_run(shell, PBS);
    assert_string_equal(shell->said,
                        "weft train --ranks 4 --hostfile nodes --resume --save-on-signal-seconds 120 "
                        "--config run.json\n");
    assert_int_equal(shell->code, 0);
    assert_shell(shell, "CODE=75 SECONDS_TO_RUN=600 " PBS, 0,
                 "qsub -v ARGUMENTS=--config run.json,SECONDS_TO_RUN=600 deploy/pbs.sh\n");
    shell_run(shell, "CODE=2 " PBS);
    assert_int_equal(shell->code, 2);
}

/* Shortly before the walltime, the run gets USR1 and its exit code counts. */
static void test_pbs_ends_in_time(void **state) {
    Shell *shell = *state;
    make_system(shell);
    program(shell, "bin/weft", "trap 'kill $!; exit 75' USR1; sleep 30 >/dev/null 2>&1 & wait");
    assert_shell(shell, "SECONDS_TO_RUN=1 " PBS, 0, "stopped and saved; queueing the job again\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_SHELL(test_slurm),
        IN_SHELL(test_pbs),
        IN_SHELL(test_pbs_ends_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
