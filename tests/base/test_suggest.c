/* Tests edit distance and suggestions for mistyped names. */
#include "test.h"

#include "base/suggest.h"

static void distances(void **state) {
    assert_int_equal(suggest_distance("train", "train"), 0);
    assert_int_equal(suggest_distance("trian", "train"), 1);
    assert_int_equal(suggest_distance("tran", "train"), 1);
    assert_int_equal(suggest_distance("", "lr"), 2);
    assert_int_equal(suggest_distance("kitten", "sitting"), 3);
    assert_int_equal(suggest_distance("micro_batch", "micro-batch"), 0);
    assert_int_equal(suggest_distance("ca", "abc"), 3);
}

static void nearest(void **state) {
    static const char *const names[] = {"train", "eval", "generate", "convert", "info", "help", NULL};
    assert_string_equal(suggest("trian", names), "train");
    assert_string_equal(suggest("TRAIN", names), "train");
    assert_string_equal(suggest("evaluate", names), "eval");
    assert_string_equal(suggest("gen", names), "generate");
    assert_string_equal(suggest("inof", names), "info");
    assert_string_equal(suggest("rtain", names), "train");
    assert_null(suggest("brain", (const char *const[]){"plain", NULL}));
    assert_null(suggest("rain", (const char *const[]){"info", NULL}));
    assert_null(suggest("xyzzy", names));
    assert_null(suggest("", names));
    char longest[200];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_null(suggest(longest, names));
}

/* A name that only looks alike means something else and is not offered. */
static void strangers(void **state) {
    static const struct {
        const char *word, *name; /* name: the expected suggestion among `names` */
    } cases[] = {
        {"cp", NULL},
        {"ep", NULL},
        {"xp", NULL},
        {"pt", "tp"},
        {"rl", "lr"},
        {"lrr", "lr"},
        {"tpu", NULL},
        {"beta3", NULL},
        {"betta1", "beta1"},
        {"fp64", NULL},
        {"fp-16", "fp16"},
        {"seg", "seq"},
        {"seq-len", "seq"},
        {"sequence", NULL},
        {"heat", NULL},
        {"head", "heads"},
        {"layer", "layers"},
        {"player", NULL},
        {"batch-size", "batch"},
        {"match", NULL},
        {"bacth", "batch"},
        {"micro", "micro-batch"},
        {"dropuot", "dropout"},
        {"drop", "dropout"},
        {"eval", "eval-every"},
        {"evel-every", "eval-every"},
        {"lora", NULL},
        {"rope", NULL},
        {"dropout-rate", "dropout"},
        {"weight", "weight-decay"},
        {"height-decay", "weight-decay"},
        {"z", NULL},
        {"ze", NULL},
        {"zer", "zero"},
        {"zero-", "zero"},
    };
    static const char *const names[] = {
        "tp",          "pp",      "dp",         "lr",           "beta1",        "beta2", "fp32",
        "fp16",        "seq",     "heads",      "layers",       "batch",        "zero",  "eps",
        "micro-batch", "dropout", "eval-every", "eval-batches", "weight-decay", NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *found = suggest(cases[i].word, names);
        if (!found != !cases[i].name || (found && strcmp(found, cases[i].name)))
            fail_msg("'%s' suggests '%s' instead of '%s'", cases[i].word, found ? found : "nothing",
                     cases[i].name ? cases[i].name : "nothing");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(distances), cmocka_unit_test(nearest),
                                       cmocka_unit_test(strangers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
