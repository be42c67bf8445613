/* Tests scripts/setup on a simulated system. PATH is a bin/ folder with links to the real tools that the
 * script needs, except ninja, and with stub programs for apt-get, sudo, id and others. The stubs for sudo and
 * apt-get append each call to the file `calls`. */
#include "scripts/shell.h"

#define SETUP "PATH=$PWD/bin '" WEFT_SOURCE_DIR "/scripts/setup' "

static void program(const Shell *shell, const char *path, const char *body) {
    char text[512];
    snprintf(text, sizeof text, "#!/bin/sh\n%s\n", body);
    shell_write(shell, path, text, 0777);
}

/* Simulates Debian without ninja, and a regular user with sudo. The apt-get stub can install ninja. */
static void make_system(Shell *shell) {
    shell_run(shell, "mkdir bin && for tool in sh awk cat rm ln mktemp uname cc as ld cmake; do "
                     "ln -s \"$(command -v $tool)\" bin/; done; "
                     "ln -s \"$(command -v ninja)\" real-ninja; "
                     "ln -s \"$(command -v pkg-config)\" real-pkg-config; touch calls");
    assert_int_equal(shell->code, 0);
    program(shell, "bin/pkg-config",
            "case $* in *libedit) [ ! -e no-libedit ] ;; *libmicrohttpd | *libpcre2-8) ;; *cmocka) [ ! -e "
            "no-cmocka ] "
            ";; *) exec ./real-pkg-config \"$@\" ;; esac");
    program(shell, "bin/mpicc", "exit 0");
    program(shell, "bin/mpirun", "exit 0");
    program(shell, "bin/gnuplot", "exit 0");
    program(shell, "bin/chromium", "exit 0");
    program(shell, "bin/dpkg", "exit 0");
    program(shell, "bin/id", "echo 1000");
    program(shell, "bin/sudo", "echo \"sudo\" >>calls; [ \"$1\" != -n ] || shift; exec \"$@\"");
    program(shell, "bin/apt-get",
            "echo \"apt-get $1 $DEBIAN_FRONTEND\" >>calls\n"
            "case $* in install*ninja-build) ln -s $PWD/real-ninja bin/ninja ;; esac");
}

static void test_installs_only_what_is_missing(void **state) {
    Shell *shell = *state;
    make_system(shell);
    shell_run(shell, SETUP);
    assert_string_equal(shell->said, "setup: installing ninja-build\nsetup: ready\n");
    assert_int_equal(shell->code, 0);
    shell_run(shell, "cat calls");
    assert_string_equal(shell->said, "sudo\napt-get update noninteractive\napt-get install noninteractive\n");
}

/* The browser is installed on Debian only, and failing to install it is not an error. */
static void test_the_browser_is_optional(void **state) {
    Shell *shell = *state;
    make_system(shell);
    shell_run(shell, "rm bin/chromium; ln -s $PWD/real-ninja bin/ninja; echo ID=debian >debian; "
                     "echo ID=ubuntu >ubuntu; OS_RELEASE=$PWD/ubuntu " SETUP "; cat calls");
    assert_string_equal(shell->said, "");
    shell_run(shell, "OS_RELEASE=$PWD/debian " SETUP "--check");
    assert_string_equal(shell->said, "setup: nothing is missing\n");
    program(shell, "bin/apt-get", "[ $1 = update ]");
    assert_shell(shell, "OS_RELEASE=$PWD/debian " SETUP, 0, "setup: installing chromium-headless-shell\n");
    assert_said(shell, 0, "setup: could not install chromium-headless-shell (optional)");
    program(
        shell, "bin/apt-get",
        "case $* in install*chromium-headless-shell) ln -s /bin/true bin/chromium-headless-shell ;; esac");
    assert_shell(shell, "rm bin/ninja; OS_RELEASE=$PWD/debian " SETUP, 1,
                 "setup: installing ninja-build chromium-headless-shell\n");
    assert_said(shell, 1, "still missing after installation: ninja");
}

/* Each optional package is tried alone if they cannot be installed together. */
static void test_libraries_and_gnuplot_are_optional(void **state) {
    Shell *shell = *state;
    make_system(shell);
    program(shell, "bin/apt-get",
            "case $* in install*chromium*) exit 1 ;; install*libedit-dev) rm -f no-libedit ;; esac");
    assert_shell(shell,
                 "touch no-libedit; rm bin/chromium bin/gnuplot; ln -s $PWD/real-ninja bin/ninja; "
                 "echo ID=debian >debian; OS_RELEASE=$PWD/debian " SETUP,
                 0, "setup: installing gnuplot-nox libedit-dev chromium-headless-shell\n");
    assert_said(shell, 0, "setup: could not install gnuplot-nox chromium-headless-shell (optional)\n");
    program(shell, "bin/gnuplot", "exit 0");
    shell_run(shell, "touch no-libedit; echo ID=ubuntu >ubuntu; OS_RELEASE=$PWD/ubuntu " SETUP);
    assert_string_equal(shell->said, "setup: installing libedit-dev\nsetup: ready\n");
}

/* --build leaves out the packages of tests: cmocka, the browser and, for root, the ssh server. */
static void test_building_needs_less(void **state) {
    Shell *shell = *state;
    make_system(shell);
    program(shell, "bin/id", "echo 0");
    shell_run(shell, "rm bin/chromium; touch no-cmocka no-libedit; echo ID=debian >debian");
    program(shell, "bin/apt-get",
            "case $* in install*) echo \"$*\" >>calls; rm -f no-cmocka no-libedit; "
            "[ -e bin/ninja ] || ln -s $PWD/real-ninja bin/ninja ;; esac");
    assert_shell(shell, "export SSHD=none SYSTEMD=none OS_RELEASE=$PWD/debian; " SETUP "--check --build", 1,
                 "setup: missing: ninja (packages: ninja-build)\n");
    shell_run(shell, "export SSHD=none SYSTEMD=none OS_RELEASE=$PWD/debian; " SETUP "--build");
    assert_string_equal(shell->said, "setup: installing ninja-build libedit-dev\nsetup: ready\n");
    assert_shell(shell, "touch no-cmocka; export SSHD=none SYSTEMD=none OS_RELEASE=$PWD/debian; " SETUP, 0,
                 "setup: installing libcmocka-dev chromium-headless-shell iproute2 openssh-server\n");
}

/* Only for root, and not where the package would start a service. */
static void test_an_ssh_server_is_installed_in_containers(void **state) {
    Shell *shell = *state;
    make_system(shell);
    program(shell, "bin/ip", "exit 0");
    program(shell, "bin/apt-get", "case $* in install*openssh-server) ln -s /bin/true bin/sshd ;; esac");
    shell_run(shell, "ln -s $PWD/real-ninja bin/ninja; mkdir services; SSHD=none SYSTEMD=none " SETUP);
    assert_string_equal(shell->said, "");
    program(shell, "bin/id", "echo 0");
    shell_run(shell, "SSHD=none SYSTEMD=$PWD/services " SETUP);
    assert_string_equal(shell->said, "");
    shell_run(shell, "SSHD=none SYSTEMD=none " SETUP);
    assert_string_equal(shell->said, "setup: installing openssh-server\nsetup: ready\n");
}

static void test_does_nothing_when_nothing_is_missing(void **state) {
    Shell *shell = *state;
    make_system(shell);
    assert_shell(shell, SETUP ">first; rm calls; " SETUP "; cat calls", 1, "calls: No such file");
    assert_null(strstr(shell->said, "setup:"));
}

static void test_check_installs_nothing(void **state) {
    Shell *shell = *state;
    make_system(shell);
    shell_run(shell, SETUP "--check; code=$?; cat calls; exit $code");
    assert_string_equal(shell->said, "setup: missing: ninja (packages: ninja-build)\n");
    assert_int_equal(shell->code, 1);
}

/* mpicc without mpirun counts as missing. */
static void test_mpi_needs_compiler_and_launcher(void **state) {
    Shell *shell = *state;
    make_system(shell);
    assert_shell(shell, "ln -s $PWD/real-ninja bin/ninja; rm bin/mpirun; " SETUP "--check", 1,
                 "setup: missing: mpi (packages: libopenmpi-dev openmpi-bin)");
}

static void test_without_sudo_prints_the_root_command(void **state) {
    Shell *shell = *state;
    make_system(shell);
    assert_shell(shell, "rm bin/sudo; " SETUP, 1, "as root, run: apt-get install ninja-build");
}

/* Optional packages are no reason to fail, nor to ask for a password. */
static void test_a_user_whom_sudo_refuses(void **state) {
    Shell *shell = *state;
    make_system(shell);
    program(shell, "bin/sudo", "echo \"sudo $1\" >>calls; echo 'sudo: a password is required' >&2; exit 1");
    assert_shell(shell, SETUP, 1, "sudo: a password is required\n");
    assert_said(shell, 1,
                "setup: could not install ninja-build; as root, run: apt-get install ninja-build\n");
    shell_run(shell, "touch no-libedit; rm calls; ln -s $PWD/real-ninja bin/ninja; echo ID=ubuntu >ubuntu; "
                     "OS_RELEASE=$PWD/ubuntu " SETUP);
    assert_string_equal(
        shell->said,
        "setup: installing libedit-dev\nsetup: could not install libedit-dev (optional)\nsetup: ready\n");
    assert_int_equal(shell->code, 0);
    shell_run(shell, "cat calls");
    assert_string_equal(shell->said, "sudo -n\n");
}

static void test_a_failed_install_is_shown(void **state) {
    Shell *shell = *state;
    make_system(shell);
    program(shell, "bin/apt-get", "echo 'E: Unable to locate package'; [ $1 = update ]");
    assert_shell(shell, SETUP, 1, "E: Unable to locate package");
    assert_said(shell, 1, "could not install ninja-build");
}

static void test_an_install_without_effect_is_reported(void **state) {
    Shell *shell = *state;
    make_system(shell);
    program(shell, "bin/apt-get", "exit 0");
    assert_shell(shell, SETUP, 1, "still missing after installation: ninja");
}

static void test_other_systems_get_the_install_command(void **state) {
    static const struct {
        const char *release, *expected;
    } systems[] = {
        {"ID=fedora", "dnf install ninja-build"},
        {"ID=rocky\nID_LIKE=\"rhel centos fedora\"", "dnf install ninja-build"},
        {"ID=arch", "pacman -S ninja"},
        {"ID=\"opensuse-leap\"", "zypper install ninja"},
        {"ID=alpine", "apk add samurai"},
        {"ID=plan9", "Ninja, pkg-config, jansson"},
    };
    Shell *shell = *state;
    make_system(shell);
    shell_run(shell, "rm bin/apt-get bin/dpkg");
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        shell_write(shell, "os-release", systems[i].release, 0666);
        assert_shell(shell, "OS_RELEASE=$PWD/os-release " SETUP, 1, systems[i].expected);
        assert_said(shell, 1, "setup: missing: ninja");
    }
}

static void test_unknown_options(void **state) {
    Shell *shell = *state;
    make_system(shell);
    assert_shell(shell, SETUP "--chek", 2, "unknown option --chek");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_SHELL(test_installs_only_what_is_missing),
        IN_SHELL(test_does_nothing_when_nothing_is_missing),
        IN_SHELL(test_the_browser_is_optional),
        IN_SHELL(test_libraries_and_gnuplot_are_optional),
        IN_SHELL(test_building_needs_less),
        IN_SHELL(test_an_ssh_server_is_installed_in_containers),
        IN_SHELL(test_check_installs_nothing),
        IN_SHELL(test_mpi_needs_compiler_and_launcher),
        IN_SHELL(test_without_sudo_prints_the_root_command),
        IN_SHELL(test_a_user_whom_sudo_refuses),
        IN_SHELL(test_a_failed_install_is_shown),
        IN_SHELL(test_an_install_without_effect_is_reported),
        IN_SHELL(test_other_systems_get_the_install_command),
        IN_SHELL(test_unknown_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
