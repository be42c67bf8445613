/* Everything that is generated from the option tables: help, the man page, shell completion. */
#include "program.h"

#include "model/family.h"

#include "base/fs.h"

static json_t *help_json(void) {
    Ran ran = program_run("help", "--json");
    assert_int_equal(ran.code, 0);
    json_t *json = NULL;
    assert_ok(json_parse(ran.out, strlen(ran.out), "weft help --json", &json));
    ran_done(&ran);
    return json;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    assert_non_null(text);
    return text;
}

/* "--name" or, for a flag that is on by default, "--no-name". */
static void spelling(const json_t *option, char *buffer, size_t size) {
    const char *fallback = json_string_value(json_object_get(option, "default"));
    bool on = fallback && strcmp(text_of(option, "type"), "flag") == 0 && strcmp(fallback, "on") == 0;
    snprintf(buffer, size, "--%s%s", on ? "no-" : "", text_of(option, "name"));
}

static void help_lists_every_option(void **state) {
    json_t *json = help_json(), *command, *option;
    size_t c, o;
    Ran overview = program_run("help");
    assert_int_equal(overview.code, 0);
    json_array_foreach(json_object_get(json, "commands"), c, command) {
        const char *name = text_of(command, "name");
        char family[64], *member;
        snprintf(family, sizeof family, "%s", name);
        if ((member = strchr(family, ' '))) *member++ = 0;
        Ran help = member ? program_run("help", family, member) : program_run("help", family),
            flag = member ? program_run(family, member, "--help") : program_run(family, "--help"),
            brief = member ? program_run(family, member, "-h") : program_run(family, "-h");
        Ran gathered = program_run("help", family);
        const char *list = member ? gathered.out : overview.out;
        assert_contains(list, name);
        assert_contains(list, text_of(command, "summary"));
        ran_done(&gathered);
        assert_int_equal(help.code, 0);
        assert_string_equal(help.out, flag.out);
        assert_string_equal(help.out, brief.out);
        json_array_foreach(json_object_get(command, "options"), o, option) {
            char plain[128] = "\n  ", with_letter[128] = ", ";
            spelling(option, plain + 3, sizeof plain - 3);
            spelling(option, with_letter + 2, sizeof with_letter - 2);
            if (!strstr(help.out, with_letter)) assert_contains(help.out, plain);
        }
        ran_done(&help);
        ran_done(&flag);
        ran_done(&brief);
    }
    ran_done(&overview);
    json_decref(json);
}

/* A default is in the option's range, or described in words. */
static void defaults_are_values(void **state) {
    CLEANUP(json_decrefp) json_t *json = help_json();
    json_t *command, *option;
    size_t c, o;
    json_array_foreach(json_object_get(json, "commands"), c, command)
        json_array_foreach(json_object_get(command, "options"), o, option) {
        const char *fallback = json_string_value(json_object_get(option, "default"));
        const json_t *low = json_object_get(option, "low"), *high = json_object_get(option, "high");
        char *end = NULL;
        double number = fallback ? strtod(fallback, &end) : 0;
        if (!fallback || !*fallback || *end) continue;
        if ((low && number < json_number_value(low)) || (high && number > json_number_value(high)))
            fail_msg("weft %s: the default of --%s is %s", text_of(command, "name"), text_of(option, "name"),
                     fallback);
    }
}

static void help_fits_the_width(void **state) {
    setenv("COLUMNS", "60", 1);
    Ran ran = program_run("help", "train");
    unsetenv("COLUMNS");
    for (char *line = strtok(ran.out, "\n"); line && !strstr(line, "Examples"); line = strtok(NULL, "\n"))
        if (!strstr(line, "Layout (")) assert_true(strlen(line) <= 60);
    ran_done(&ran);
}

/* `help --all` includes the help of every command. */
static void help_shows_all(void **state) {
    Ran all = program_run("help", "--all"), train = program_run("help", "train"),
        encode = program_run("tokenizer", "encode", "--help");
    assert_int_equal(all.code, 0);
    assert_contains(all.out, train.out);
    assert_contains(all.out, encode.out);
    ran_done(&all);
    ran_done(&train);
    ran_done(&encode);
    assert_refused(2, "--all shows every command; remove 'train'", "help", "--all", "train");
}

/* A flag --no-x describes turning x off. */
static void negated_flags_say_what_they_do(void **state) {
    Ran plan = program_run("help", "plan");
    assert_contains(plan.out, "--no-async-save         Pause training while a checkpoint is written");
    ran_done(&plan);
}

/* --scale and --run select parts of a recipe and are shown only by commands that use recipes. */
static void recipe_options_are_shown_where_useful(void **state) {
    static const struct {
        const char *command;
        bool scale, run;
    } cases[] = {{"train", true, true},    {"prune", true, true},  {"quantize", true, true},
                 {"compare", true, false}, {"eval", false, false}, {"info", false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Ran ran = program_run("help", cases[i].command);
        assert_int_equal(strstr(ran.out, "\n  --scale NAME") != NULL, cases[i].scale);
        assert_int_equal(strstr(ran.out, "\n  --run NAME") != NULL, cases[i].run);
        ran_done(&ran);
    }
}

/* Old spellings are accepted but appear nowhere. */
static void old_spellings_are_hidden(void **state) {
    Ran runs[] = {program_run("help", "--all"), program_run("help", "--man"), program_run("help", "--json"),
                  program_run("help", "--completion", "bash"), program_run("help", "--completion", "fish")};
    static const char *const hidden[] = {"--shard-size",   "-l shard-size", "\\-\\-shard\\-size",
                                         "\"shard-size\"", "shards, text",  "shards text",
                                         "\"shards\""};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        for (size_t k = 0; k < sizeof hidden / sizeof *hidden; k++)
            assert_null(strstr(runs[i].out, hidden[k]));
        ran_done(&runs[i]);
    }
}

/* A reader that goes away early, such as head, is not an error. */
static void help_ends_quietly(void **state) {
    static const char *const commands[] = {"help --all", "help --man", "train --help", "help --json"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char line[1024], output[256];
        snprintf(line, sizeof line, "{ '%s' %s; echo \"code $?\" >&2; } 2>&1 >/dev/full | cat", WEFT_BINARY,
                 commands[i]);
        FILE *pipe = popen(line, "r");
        assert_non_null(pipe);
        output[fread(output, 1, sizeof output - 1, pipe)] = 0;
        pclose(pipe);
        assert_contains(output, "standard output: cannot write");
        assert_contains(output, "code 1");
        /* Descriptor 9 is a pipe that nobody reads. */
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        assert_int_equal(dup2(ends[1], 9), 9);
        close(ends[0]);
        close(ends[1]);
        snprintf(line, sizeof line, "{ '%s' %s >&9; echo \"code $?\" >&2; } 2>&1", WEFT_BINARY, commands[i]);
        pipe = popen(line, "r");
        close(9);
        assert_non_null(pipe);
        output[fread(output, 1, sizeof output - 1, pipe)] = 0;
        pclose(pipe);
        assert_string_equal(output, "code 0\n");
    }
}

/* A line that starts with a dot is a request; only those that the page uses on purpose are allowed. */
static void man_page_is_sound(void **state) {
    static const char *const requests[] = {".TH ", ".SH ", ".SS ", ".PP", ".TP", ".B ", ".I ", NULL};
    Ran ran = program_run("help", "--man");
    assert_int_equal(ran.code, 0);
    assert_int_equal(strncmp(ran.out, ".TH WEFT 1 ", 11), 0);
    assert_contains(ran.out, "\\fB\\-\\-micro\\-batch\\fR \\fIN\\fR");
    assert_contains(ran.out, "\\fB\\-\\-no\\-shuffle\\fR");
    assert_contains(ran.out, ".SH EXIT STATUS");
    for (char *line = strtok(ran.out, "\n"); line; line = strtok(NULL, "\n")) {
        if (line[0] == '\'') fail_msg("the man page has an unexpected request: %s", line);
        bool known = line[0] != '.';
        for (const char *const *request = requests; *request; request++)
            known |= strncmp(line, *request, strlen(*request)) == 0;
        if (!known) fail_msg("the man page has an unexpected request: %s", line);
    }
    ran_done(&ran);
}

/* Help and the man page know all families. */
static void families_are_named(void **state) {
    Ran help = program_run("help"), page = program_run("help", "--man");
    char titles[FAMILY_TITLES];
    for (const Family *const *family = families(); *family; family++) {
        char name[32], roff[64] = "";
        snprintf(name, sizeof name, "%s", (*family)->title);
        for (const char *at = name; *at; at++) /* dashes are escaped */
            snprintf(roff + strlen(roff), sizeof roff - strlen(roff), "%s%c", *at == '-' ? "\\" : "", *at);
        char *end = strstr(page.out, ".SH COMMANDS");
        assert_non_null(end);
        char *at = strstr(page.out, roff), *again = at ? strstr(at + 1, roff) : NULL;
        assert_true(again && again < end);
        char *first = strchr(help.out, '\n');
        assert_non_null(first);
        assert_true(strstr(help.out, name) && strstr(help.out, name) < first);
    }
    assert_string_equal(family_titles(OUTPUT_MLM, "or", titles), "BERT");
    assert_null(strstr(family_titles(OUTPUT_LM, "or", titles), "BERT"));
    assert_contains(titles, "GPT-2, Llama, ");
    assert_contains(titles, " or ");
    ran_done(&help);
    ran_done(&page);
}

static void man_page_formats(void **state) {
    if (system("command -v groff >/dev/null") != 0) skip();
    FILE *pipe = popen("'" WEFT_BINARY "' help --man | groff -man -Tutf8 -ww -z 2>&1", "r");
    assert_non_null(pipe);
    char warning[512] = "";
    size_t size = fread(warning, 1, sizeof warning - 1, pipe);
    warning[size] = 0;
    assert_int_equal(pclose(pipe), 0);
    assert_string_equal(warning, "");
}

/* What bash completes for a line in the source tree, using the generated script. */
static void bash_reply(const char *words, char reply[4096]) {
    char command[1024];
    snprintf(command, sizeof command,
             "cd '" WEFT_SOURCE_DIR
             "' && bash --norc -c 'source <(\"%s\" help --completion bash) || exit 1; COMP_WORDS=(%s); "
             "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _weft; echo \"${COMPREPLY[@]}\"' 2>&1",
             WEFT_BINARY, words);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t size = fread(reply, 1, 4095, pipe);
    reply[size && reply[size - 1] == '\n' ? size - 1 : size] = 0;
    pclose(pipe);
}

static void assert_bash_offers(const char *words, const char *expected) {
    char reply[4096];
    bash_reply(words, reply);
    assert_string_equal(reply, expected);
}

static void assert_bash_includes(const char *words, const char *expected) {
    char reply[4096];
    bash_reply(words, reply);
    assert_contains(reply, expected);
}

static void bash_completes(void **state) {
    assert_bash_offers("weft tr", "train");
    assert_bash_offers("weft train --micro", "--micro-batch");
    assert_bash_offers("weft train --schedule co", "cosine constant");
    assert_bash_offers("weft train --schedule = li", "linear");
    assert_bash_offers("weft train --no-sh", "--no-shuffle");
    assert_bash_offers("weft train --steps \"\"", "");
    assert_bash_offers("weft train --resume \"\"", "auto");
    assert_bash_offers("weft train --resume --micro", "--micro-batch");
    assert_bash_offers("weft help ev", "eval");
    assert_bash_offers("weft tok", "tokenizer");
    assert_bash_offers("weft tokenizer tr", "train");
    assert_bash_offers("weft tokenizer \"\"", "--config --json --help train encode decode");
    assert_bash_offers("weft tokenizer train --kind w", "wordpiece");
    assert_bash_offers("weft train --model gpt2-m", "gpt2-medium gpt2-mini");
    assert_bash_offers("weft plan --cluster dgx", "dgx-a100-80gb dgx-a100 dgx2-v100");
    assert_bash_offers("weft compare x.json --cluster h1", "h100");
    assert_bash_offers("weft bench bert-l", "bert-large");
    assert_bash_offers("weft fetch tinys", "tinyshakespeare");
    assert_bash_offers("weft compare recipes/sq", "recipes/squad-bert-base.json");
    assert_bash_offers("weft study sq", "squad");
    assert_bash_includes("weft compare reci", "recipes/megatron-sizes.json");
    assert_bash_includes("weft train --config reci", "recipes/shakespeare-mingpt.json");
    assert_bash_offers("weft train --out " WEFT_SOURCE_DIR "/cmak", WEFT_SOURCE_DIR "/cmake");
}

static void completion_for_other_shells(void **state) {
    Ran zsh = program_run("help", "--completion", "zsh"), fish = program_run("help", "--completion=fish");
    assert_int_equal(zsh.code, 0);
    assert_contains(zsh.out, "#compdef weft");
    assert_contains(zsh.out, "'--schedule=[");
    assert_contains(zsh.out, ":NAME:(cosine linear constant wsd)'");
    assert_contains(zsh.out, "]::word:(auto)'");
    assert_contains(fish.out, "-l resume -f -a 'auto'");
    assert_int_equal(fish.code, 0);
    assert_contains(fish.out, "-l schedule -x -a 'cosine linear constant wsd'");
    assert_contains(fish.out, "-d 'Hardware to plan for cpu, dgx-a100-80gb, dgx-a100, ");
    /* Presets, clusters, sets and recipes. */
    assert_contains(zsh.out, ":NAME|DIR:{compadd gpt2 gpt2-medium ");
    assert_contains(zsh.out, ":NAME|FILE:{compadd cpu dgx-a100-80gb dgx-a100 ");
    assert_contains(zsh.out, "'*:file:{compadd -f recipes/*.json(N); _files}'");
    assert_contains(fish.out, " -x -a 'gpt2 gpt2-medium ");
    assert_contains(fish.out, " -r -F -a 'cpu dgx-a100-80gb dgx-a100 ");
    assert_contains(fish.out,
                    "__fish_seen_subcommand_from fetch; and not __fish_seen_subcommand_from tokenizer' -a ");
    ran_done(&zsh);
    ran_done(&fish);
    assert_refused(2, "did you mean 'fish'?", "help", "--completion", "fihs");
}

/* `cmake --install` puts the program, its page and its completions where shells and man look. */
static void installs(void **state) {
    static const char *const files[] = {
        "bin/weft", "share/man/man1/weft.1", "share/bash-completion/completions/weft",
        "share/zsh/site-functions/_weft", "share/fish/vendor_completions.d/weft.fish"};
    char build[1024], command[3072], prefix[] = "/tmp/weft-install-XXXXXX";
    snprintf(build, sizeof build, "%s", WEFT_BINARY);
    *strrchr(build, '/') = 0;
    snprintf(command, sizeof command, "%s/share/weft.fish", build);
    if (access(command, R_OK) != 0) skip();
    assert_non_null(mkdtemp(prefix));
    snprintf(command, sizeof command, "cmake --install '%s' --prefix '%s' >/dev/null", build, prefix);
    assert_int_equal(system(command), 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(command, sizeof command, "%s/%s", prefix, files[i]);
        if (access(command, R_OK) != 0) fail_msg("%s was not installed", files[i]);
    }
    snprintf(command, sizeof command, "'%s/bin/weft' --version >/dev/null", prefix);
    assert_int_equal(system(command), 0);
    assert_ok(dir_remove(prefix));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_lists_every_option),
        cmocka_unit_test(defaults_are_values),
        cmocka_unit_test(help_fits_the_width),
        cmocka_unit_test(help_shows_all),
        cmocka_unit_test(negated_flags_say_what_they_do),
        cmocka_unit_test(recipe_options_are_shown_where_useful),
        cmocka_unit_test(old_spellings_are_hidden),
        cmocka_unit_test(help_ends_quietly),
        cmocka_unit_test(man_page_is_sound),
        cmocka_unit_test(families_are_named),
        cmocka_unit_test(man_page_formats),
        cmocka_unit_test(bash_completes),
        cmocka_unit_test(completion_for_other_shells),
        cmocka_unit_test(installs),
    };
    return cmocka_run_group_tests(tests, program_setup, NULL);
}
