/* scripts/setup on machines made up for it: bin/ holds the tools of the real one that it uses, but ninja,
 * and programs of the test's own stand for apt-get, sudo and id. They write what they were asked into
 * `calls`. */
#include "scripts/shell.h"

#define SETUP "PATH=$PWD/bin '" WEFT_SOURCE_DIR "/scripts/setup' "

static void program(const Shell *shell, const char *path, const char *body) {
    char text[512];
    snprintf(text, sizeof text, "#!/bin/sh\n%s\n", body);
    shell_write(shell, path, text, 0777);
}

/* A Debian on which apt-get brings ninja, seen by an ordinary user who may use sudo. */
static void make_machine(Shell *shell) {
    shell_run(shell, "mkdir bin && for tool in sh awk cat rm ln mktemp uname cc as ld cmake pkg-config; do "
                     "ln -s \"$(command -v $tool)\" bin/; done; "
                     "ln -s \"$(command -v ninja)\" ninja-of-this-machine; touch calls");
    assert_int_equal(shell->code, 0);
    program(shell, "bin/mpicc", "exit 0");
    program(shell, "bin/mpirun", "exit 0");
    program(shell, "bin/gnuplot", "exit 0");
    program(shell, "bin/chromium", "exit 0");
    program(shell, "bin/dpkg", "exit 0");
    program(shell, "bin/id", "echo 1000");
    program(shell, "bin/sudo", "echo \"sudo\" >>calls; exec \"$@\"");
    program(shell, "bin/apt-get",
            "echo \"apt-get $1 $DEBIAN_FRONTEND\" >>calls\n"
            "case $* in install*ninja-build) ln -s $PWD/ninja-of-this-machine bin/ninja ;; esac");
}

static void test_installs_only_what_is_missing(void **state) {
    Shell *shell = *state;
    make_machine(shell);
    shell_run(shell, SETUP);
    assert_string_equal(shell->said, "setup: installing ninja-build\nsetup: ready\n");
    assert_int_equal(shell->code, 0);
    shell_run(shell, "cat calls");
    assert_string_equal(shell->said, "sudo\napt-get update noninteractive\napt-get install noninteractive\n");
}

/* A browser is wished for where Debian has one, and going without it is no failure. */
static void test_a_browser_is_wished_for(void **state) {
    Shell *shell = *state;
    make_machine(shell);
    shell_run(shell, "rm bin/chromium; ln -s $PWD/ninja-of-this-machine bin/ninja; echo ID=debian >debian; "
                     "echo ID=ubuntu >ubuntu; OS_RELEASE=$PWD/ubuntu " SETUP "; cat calls");
    assert_string_equal(shell->said, "");
    shell_run(shell, "OS_RELEASE=$PWD/debian " SETUP "--check");
    assert_string_equal(shell->said, "setup: nothing is missing\n");
    program(shell, "bin/apt-get", "[ $1 = update ]");
    shell_run(shell, "OS_RELEASE=$PWD/debian " SETUP);
    assert_said(shell, 0, "setup: installing chromium-headless-shell\n");
    assert_said(shell, 0, "setup: without a browser");
    program(
        shell, "bin/apt-get",
        "case $* in install*chromium-headless-shell) ln -s /bin/true bin/chromium-headless-shell ;; esac");
    shell_run(shell, "rm bin/ninja; OS_RELEASE=$PWD/debian " SETUP);
    assert_said(shell, 1, "setup: installing ninja-build chromium-headless-shell\n");
    assert_said(shell, 1, "still missing: ninja");
}

static void test_does_nothing_when_all_is_there(void **state) {
    Shell *shell = *state;
    make_machine(shell);
    shell_run(shell, SETUP ">first; rm calls; " SETUP "; cat calls");
    assert_said(shell, 1, "calls: No such file");
    assert_null(strstr(shell->said, "setup:"));
}

static void test_check_installs_nothing(void **state) {
    Shell *shell = *state;
    make_machine(shell);
    shell_run(shell, SETUP "--check; code=$?; cat calls; exit $code");
    assert_string_equal(shell->said, "setup: missing: ninja (packages: ninja-build)\n");
    assert_int_equal(shell->code, 1);
}

/* A compiler without a launcher is half an MPI. */
static void test_mpi_is_two_packages(void **state) {
    Shell *shell = *state;
    make_machine(shell);
    shell_run(shell, "ln -s $PWD/ninja-of-this-machine bin/ninja; rm bin/mpirun; " SETUP "--check");
    assert_said(shell, 1, "setup: missing: mpi (packages: libopenmpi-dev openmpi-bin)");
}

static void test_without_sudo_says_what_root_must_do(void **state) {
    Shell *shell = *state;
    make_machine(shell);
    shell_run(shell, "rm bin/sudo; " SETUP);
    assert_said(shell, 1, "as root: apt-get install ninja-build");
}

static void test_a_failed_install_is_shown(void **state) {
    Shell *shell = *state;
    make_machine(shell);
    program(shell, "bin/apt-get", "echo 'E: Unable to locate package'; [ $1 = update ]");
    shell_run(shell, SETUP);
    assert_said(shell, 1, "E: Unable to locate package");
    assert_said(shell, 1, "could not install: ninja-build");
}

static void test_an_install_that_brings_nothing_is_noticed(void **state) {
    Shell *shell = *state;
    make_machine(shell);
    program(shell, "bin/apt-get", "exit 0");
    shell_run(shell, SETUP);
    assert_said(shell, 1, "still missing: ninja");
}

static void test_other_systems_are_told_the_packages(void **state) {
    static const struct {
        const char *release, *words;
    } systems[] = {
        {"ID=fedora", "dnf install ninja-build"},
        {"ID=rocky\nID_LIKE=\"rhel centos fedora\"", "dnf install ninja-build"},
        {"ID=arch", "pacman -S ninja"},
        {"ID=\"opensuse-leap\"", "zypper install ninja"},
        {"ID=alpine", "apk add samurai"},
        {"ID=plan9", "Ninja, pkg-config, jansson"},
    };
    Shell *shell = *state;
    make_machine(shell);
    shell_run(shell, "rm bin/apt-get bin/dpkg");
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        shell_write(shell, "os-release", systems[i].release, 0666);
        shell_run(shell, "OS_RELEASE=$PWD/os-release " SETUP);
        assert_said(shell, 1, systems[i].words);
        assert_said(shell, 1, "setup: missing: ninja");
    }
}

static void test_unknown_options(void **state) {
    Shell *shell = *state;
    make_machine(shell);
    shell_run(shell, SETUP "--chek");
    assert_said(shell, 2, "unknown option --chek");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_SHELL(test_installs_only_what_is_missing),
        IN_SHELL(test_does_nothing_when_all_is_there),
        IN_SHELL(test_a_browser_is_wished_for),
        IN_SHELL(test_check_installs_nothing),
        IN_SHELL(test_mpi_is_two_packages),
        IN_SHELL(test_without_sudo_says_what_root_must_do),
        IN_SHELL(test_a_failed_install_is_shown),
        IN_SHELL(test_an_install_that_brings_nothing_is_noticed),
        IN_SHELL(test_other_systems_are_told_the_packages),
        IN_SHELL(test_unknown_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
