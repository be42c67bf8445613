/* Tests scripts/doc-tables: the documentation is up to date, and the script notices what is not. */
#include "scripts/shell.h"

#define TABLES "'" WEFT_SOURCE_DIR "/scripts/doc-tables' "

static void write_file(const Shell *tree, const char *path, const char *text) {
    shell_write(tree, path, text, 0666);
}

/* A tree with two operations, one family and a page with both tables. */
static void write_tree(const Shell *tree) {
    write_file(
        tree, "src/kernels/ops.def",
        "/* ---- linear layers ---- */\n\n"
        "/* y = x w. */\nKERNEL(LINEAR, linear, FORWARD, MATMUL, 1, ALL, BOTH,\n       Tensor y, Tensor x)\n"
        "/* The tensors are fp32. */\nKERNEL(SPARSE, sparse, OTHER, BYTES, 1, CPU, NONE, Tensor y)\n");
    write_file(tree, "src/kernels/registry.c",
               "{{\"fp32\", DT_F32, false, false},\n {\"fp8\", DT_BF16, false, true}};\n");
    write_file(tree, "src/model/heads.def",
               "HEAD(LM, lm, \"next token\", \"ForCausalLM\", )\n"
               "HEAD(SPAN, span, \"answer\", \"ForAnswers\",\n     LOSS(SPAN, span, 1))\n");
    write_file(tree, "src/model/decoder.h", "#define FAMILY .outputs = OUTPUT_LM, .norm = 1\n");
    write_file(tree, "src/model/families.def", "FAMILY(one)\n");
    write_file(tree, "src/model/one/one.c",
               "const Family one = {\n    .title = \"One\",\n    .classes = \"One\",\n};\n");
    write_file(tree, "README.md",
               "# One\n\n<!-- doc-tables: operations -->\n<!-- end -->\n\nText.\n\n"
               "<!-- doc-tables: families -->\n<!-- end -->\n");
}

static void test_documentation_is_up_to_date(void **state) {
    Shell *shell = *state;
    shell_run(shell, TABLES "--check");
    assert_string_equal(shell->said, "");
    assert_int_equal(shell->code, 0);
}

static void test_writes_tables(void **state) {
    Shell *tree = *state;
    write_tree(tree);
    shell_run(tree, TABLES "--check .");
    assert_said(tree, 1, "README.md: a table is out of date; run scripts/doc-tables");
    shell_run(tree, TABLES ". && " TABLES "--check . && cat README.md");
    assert_said(tree, 0,
                "| linear layers | `linear`; `sparse` (CPU only, fp32) |\n\n<!-- end -->\n\nText.\n");
    assert_said(tree, 0,
                "| One | next token | `OneForCausalLM`, `OneModel` |\n\n"
                "They run on CPUs in fp32, on GPUs also in fp8.\n\n<!-- end -->\n");
    write_file(tree, "src/model/families.def", "FAMILY(one)\nFAMILY(two)\n");
    write_file(tree, "src/model/two/two.c",
               "const Family two = {\n    .title = \"Two\",\n    .outputs = OUTPUT_LM | OUTPUT_SPAN,\n"
               "    .classes = \"Two\",\n    .own_class = \"LMHead\",\n};\n");
    shell_run(tree, TABLES "--check .");
    assert_said(tree, 1, "README.md: a table is out of date");
    shell_run(tree, TABLES ". && cat README.md");
    assert_said(tree, 0, "| Two | next token, answer | `TwoLMHead`, `TwoForAnswers`, `TwoModel` |\n");
}

static void test_follows_links(void **state) {
    Shell *tree = *state;
    write_tree(tree);
    shell_run(tree, TABLES ".");
    write_file(
        tree, "docs/a.md",
        "# A page: one\n\n[1](../README.md#one) [2](#a-page-one) [3](a.md) [4](https://host/x.md#y)\n\n"
        "    [not a link](nowhere.md)\n");
    shell_run(tree, TABLES "--check .");
    assert_string_equal(tree->said, "");
    assert_int_equal(tree->code, 0);
    write_file(tree, "docs/b.md", "[1](a.md#a-page)\n\n[2](c.md)\n");
    shell_run(tree, TABLES "--check .");
    assert_said(tree, 1, "docs/b.md:1: a.md#a-page: no such heading");
    assert_said(tree, 1, "docs/b.md:3: c.md: no such file");
}

static void test_limits_words(void **state) {
    Shell *tree = *state;
    write_tree(tree);
    shell_run(tree, TABLES ". && mkdir docs && yes word | head -n 29900 >docs/a.md && " TABLES "--check .");
    assert_string_equal(tree->said, "");
    shell_run(tree, "yes word | head -n 99 >docs/b.md; " TABLES "--check .");
    assert_said(tree, 1, "README, ARCHITECTURE, CONTRIBUTING and docs have 30");
}

static void test_names_what_is_unknown(void **state) {
    Shell *tree = *state;
    shell_run(tree, TABLES "--check .");
    assert_said(tree, 2, "doc-tables: . has no src/kernels/ops.def");
    write_tree(tree);
    write_file(tree, "b.md", "<!-- doc-tables: other -->\n<!-- end -->\n");
    shell_run(tree, TABLES "--check .");
    assert_said(tree, 1, "b.md: no table is called other");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_SHELL(test_documentation_is_up_to_date),
        IN_SHELL(test_writes_tables),
        IN_SHELL(test_follows_links),
        IN_SHELL(test_limits_words),
        IN_SHELL(test_names_what_is_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
