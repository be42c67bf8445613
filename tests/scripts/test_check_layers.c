/* Tests scripts/check-layers. Each test writes a few files into an empty tree, runs the script on it and
 * looks for the expected violation; the same tree without the violating file passes. */
#include "scripts/shell.h"

#define CHECK "'" WEFT_SOURCE_DIR "/scripts/check-layers' "

static void write_file(const Shell *tree, const char *path, const char *text) {
    shell_write(tree, path, text, 0666);
}

static void assert_passes(Shell *tree) {
    shell_run(tree, CHECK ".");
    assert_string_equal(tree->said, "");
    assert_int_equal(tree->code, 0);
}

static void assert_refused(Shell *tree, const char *where, const char *why) {
    shell_run(tree, CHECK ".");
    assert_said(tree, 1, where);
    assert_said(tree, 1, why);
}

static void test_layer_order(void **state) {
    Shell *tree = *state;
    write_file(tree, "src/model/a.c", "#include <stdio.h>\n#include \"base/x.h\"\n#include \"model/b.h\"\n");
    assert_passes(tree);
    write_file(tree, "src/model/c.c", "\n#include \"train/train.h\"\n");
    assert_refused(tree, "src/model/c.c:2:", "model comes before train");
}

static void test_unknown_folders(void **state) {
    Shell *tree = *state;
    write_file(tree, "src/utils/a.c", "int a;\n");
    assert_refused(tree, "src/utils/a.c:1:", "not in the list of layers");
}

static void test_relative_includes(void **state) {
    Shell *tree = *state;
    write_file(tree, "src/train/a.c", "#include \"../cli/a.h\"\n");
    assert_refused(tree, "src/train/a.c:1:", "use the path relative to src");
}

static void test_subfolders_are_private(void **state) {
    Shell *tree = *state;
    write_file(tree, "src/kernels/cpu/a.c", "#include \"kernels/cpu/a.h\"\n");
    assert_passes(tree);
    write_file(tree, "src/model/a.c", "#include \"kernels/cpu/a.h\"\n");
    assert_refused(tree, "src/model/a.c:1:", "private to kernels");
}

static void test_cuda_stays_in_its_folders(void **state) {
    Shell *tree = *state;
    write_file(tree, "src/kernels/cuda/a.c",
               "#include <cuda_runtime.h>\nint f(void) { return cudaMalloc(0); }\n");
    write_file(tree, "src/comm/cuda/nccl.c", "#include <nccl.h>\nint g(void) { return ncclAllReduce(0); }\n");
    write_file(tree, "src/kernels/table.c",
               "#ifdef WEFT_CUDA\nextern int kernels_cuda; /* cudaFree() */\n#endif\n");
    assert_passes(tree);
    write_file(tree, "src/train/a.c", "int f(void) {\n    return cudaMalloc(0);\n}\n");
    assert_refused(tree, "src/train/a.c:2:", "belong in */cuda/");
    write_file(tree, "src/train/a.c", "#include <cuda_runtime.h>\n");
    assert_refused(tree, "src/train/a.c:1:", "belong in */cuda/");
}

static void test_one_if_for_cuda(void **state) {
    Shell *tree = *state;
    write_file(tree, "src/kernels/table.c", "#ifdef WEFT_CUDA\n#endif\n");
    assert_passes(tree);
    write_file(tree, "src/train/a.c", "\n\n#if defined(WEFT_CUDA)\n#endif\n");
    assert_refused(tree, "src/train/a.c:3:", "the first is src/kernels/table.c:1");
}

static void test_only_cli_prints_and_exits(void **state) {
    static const char *const calls[] = {"printf(\"x\")", "exit(1)", "abort()", "puts(\"x\")"};
    Shell *tree = *state;
    write_file(tree, "src/cli/main.c", "int main(void) { printf(\"x\"); exit(1); }\n");
    write_file(tree, "src/base/fine.c",
               "/* never printf() here */\nvoid f(FILE *to) { fprintf(to, \"printf(%s) to stdout\", s); }\n"
               "int status_exit(int x); // abort()\nchar quote = '\"'; /*\n exit(1) */\n");
    assert_passes(tree);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        char text[128];
        snprintf(text, sizeof text, "void f(void) {\n    %s;\n}\n", calls[i]);
        write_file(tree, "src/base/bad.c", text);
        assert_refused(tree, "src/base/bad.c:2:", "return a Status");
    }
    write_file(tree, "src/base/bad.c", "void f(void) { fprintf(stderr, \"x\"); }\n");
    assert_refused(tree, "src/base/bad.c:1:", "take a FILE *");
}

static void test_only_cli_spells_options(void **state) {
    static const char *const spelled[] = {"char *a = \"use --tp 2\";\n", "/* with --no-cache */\n",
                                          "/* and\n   --cache */\n", "char *a = \"pass --%s\";\n"};
    Shell *tree = *state;
    write_file(tree, "src/cli/a.c",
               "OPT_INT(\"tp\", Args, tp) /* --tp */\nOPT_FLAG(\"cache\", Args, cache)\n");
    write_file(tree, "src/comm/axes.h", "#define AXES(X) \\\n    X(CP, cp, \"context\", 3)\n");
    write_file(tree, "src/train/fine.c",
               "char *c = \"{cp} 2\", *a = \"use {tp} 2 or {no-cache} {%s}\", *b = \"var(--c0) {s:i}\";\nint "
               "c = --tp;\n");
    assert_passes(tree);
    for (size_t i = 0; i < sizeof spelled / sizeof *spelled; i++) {
        write_file(tree, "src/train/bad.c", spelled[i]);
        assert_refused(tree, i == 2 ? "src/train/bad.c:2:" : "src/train/bad.c:1:", "spells the option --");
    }
    write_file(tree, "src/train/bad.c", "char *a = \"use {tpp} 2\";\n");
    assert_refused(tree, "src/train/bad.c:1:", "no table in src/cli has this option");
}

static void test_sizes_are_reported_on_request(void **state) {
    Shell *tree = *state;
    char text[2048] = "int f(int a,\n      int b) {\n";
    for (int i = 0; i < 80; i++) strcat(text, "    a++;\n");
    strcat(text, "}\n");
    write_file(tree, "src/base/long.c", text);
    assert_passes(tree);
    shell_run(tree, CHECK "--sizes .");
    assert_said(tree, 1, "src/base/long.c:83: the function that ends here has 83 lines");
}

static void test_a_folder_without_source(void **state) {
    Shell *tree = *state;
    shell_run(tree, CHECK ".");
    assert_said(tree, 2, "has no src folder");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_SHELL(test_layer_order),
        IN_SHELL(test_unknown_folders),
        IN_SHELL(test_relative_includes),
        IN_SHELL(test_subfolders_are_private),
        IN_SHELL(test_cuda_stays_in_its_folders),
        IN_SHELL(test_one_if_for_cuda),
        IN_SHELL(test_only_cli_prints_and_exits),
        IN_SHELL(test_only_cli_spells_options),
        IN_SHELL(test_sizes_are_reported_on_request),
        IN_SHELL(test_a_folder_without_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
