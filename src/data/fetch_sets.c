/* The sets that `weft fetch` offers: base URL, license and files; and hosts that mirror them. Weights are
 * pinned to a revision, so that their contents never change. A size of 0 or a missing checksum means that it
 * is not known in advance; such a file is verified against the record of its first download. */
#include <string.h>
#include <strings.h>

#include "base/suggest.h"
#include "data/fetch.h"
#include "data/released.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* All sizes of GPT-2 share one vocabulary, and so do the uncased BERT models. */
#define GPT2_TOKENIZER                                                                                       \
    {"vocab.json", 1042301, "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783", NULL}, {     \
        "merges.txt", 456318, "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5", NULL       \
    }
#define BERT_TOKENIZER                                                                                       \
    {"vocab.txt", 231508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3", NULL}, {       \
        "tokenizer_config.json", 48, "a025160ef0431f1a392f6f050c1310f4c5d9fb6f275932dbccba73c4d214bf10",     \
            NULL                                                                                             \
    }

static const FetchFile tinyshakespeare[] = {
    {"input.txt", 1115394, "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed", NULL},
};

static const char *const wikitext_tokens[] = {"wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens",
                                              NULL};
static const char *const wikitext_raw[] = {"wiki.train.raw", "wiki.valid.raw", "wiki.test.raw", NULL};

static const FetchFile wikitext_2[] = {
    {"wikitext-2-v1.zip", 0, "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
     wikitext_tokens},
};
static const FetchFile wikitext_2_raw[] = {
    {"wikitext-2-raw-v1.zip", 4721645, "ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11",
     wikitext_raw},
};
static const FetchFile wikitext_103[] = {
    {"wikitext-103-v1.zip", 0, "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590",
     wikitext_tokens},
};
static const FetchFile wikitext_103_raw[] = {
    {"wikitext-103-raw-v1.zip", 191984949, "91c00ae287f0d699e18605c84afc9e45c192bc6b7797ff8837e5474655a33794",
     wikitext_raw},
};

static const FetchFile squad_v1[] = {
    {"train-v1.1.json", 30288272, "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955", NULL},
    {"dev-v1.1.json", 4854279, "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9", NULL},
};
static const FetchFile squad_v2[] = {
    {"train-v2.0.json", 42123633, "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002", NULL},
    {"dev-v2.0.json", 4370528, "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8", NULL},
};

static const char *const cornell_members[] = {"movie_lines.txt", "movie_conversations.txt", NULL};
static const FetchFile cornell[] = {
    {"cornell_movie_dialogs_corpus.zip", 0,
     "3bde8a571f615201bc2d2453e22878090719638592f774720eddec739de8c900", cornell_members},
};

static const FetchFile gpt2_tokenizer[] = {GPT2_TOKENIZER};
static const FetchFile bert_tokenizer[] = {BERT_TOKENIZER};

static const FetchFile gpt2[] = {
    {"config.json", 665, "0daed7749b4f02b8f76240d5444551d7b08712dab4d0adb8239c56ba823bb7b4", NULL},
    GPT2_TOKENIZER,
    {"model.safetensors", 548105171, "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707",
     NULL},
};
static const FetchFile gpt2_medium[] = {
    {"config.json", 718, "ef1a44d889ad1a0acc7731c78134f1b87d2d222f110e97dd10fd4117331caf22", NULL},
    GPT2_TOKENIZER,
    {"model.safetensors", 1519984962, "fc5a354a19255ad494f3d71549390baca1ccf61d1d822b9408971705c687c9cd",
     NULL},
};
static const FetchFile gpt2_large[] = {
    {"config.json", 0, NULL, NULL},
    GPT2_TOKENIZER,
    {"model.safetensors", 0, NULL, NULL},
};
static const FetchFile gpt2_xl[] = {
    {"config.json", 0, "be48115d52314bc27327e160bf10197760db02ea689d10adb24db4102edf7a8a", NULL},
    GPT2_TOKENIZER,
    {"model.safetensors", 0, "0f8b28eb05a8075f48b61b6f35332978c74fc7763fa9fb4051a1c30511736a6a", NULL},
};
static const FetchFile bert_base[] = {
    {"config.json", 570, "7160e1553ad2ca51d8c1cb066be533db31826e12d173824c1bb0cb1a4f187d20", NULL},
    BERT_TOKENIZER,
    {"model.safetensors", 440449768, "68d45e234eb4a928074dfd868cead0219ab85354cc53d20e772753c6bb9169d3",
     NULL},
};
static const FetchFile bert_large[] = {
    {"config.json", 571, "f9a38c9ffa369f288c3206d0bf352dfed11d7bdee93aa5b2de6d7fdc7bff7871", NULL},
    BERT_TOKENIZER,
    {"model.safetensors", 1344951957, "28349a5c57338d0dca591bb95de533897c2399095c69d61e09604b46f444a4c4",
     NULL},
};

static const FetchFile smollm2_135m[] = {
    {"config.json", 0, "1d556eab73b69c7f11f64c557a2f9c6f440bd4c6b89bb2584a6b498c92603843", NULL},
    {"generation_config.json", 0, NULL, NULL},
    {"tokenizer.json", 2104556, "9ca9acddb6525a194ec8ac7a87f24fbba7232a9a15ffa1af0c1224fcd888e47c", NULL},
    {"tokenizer_config.json", 0, "4bb9af56a342753d39374f4016a16574cab299fe088e896f425ce3c433f61424", NULL},
    {"model.safetensors", 269060552, "80521b40281d6ce74e35c9282c22539e75aa0ac8578892b2a59955ef78d55da1",
     NULL},
};
static const FetchFile tinyllama[] = {
    {"config.json", 608, "486bedda3a6988332e60d9638a09ca4b260d34ebcf1b19e22cf3b140b63d8fe9", NULL},
    {"generation_config.json", 124, "18046d04f5bd8b4998095ecabdd17a1bf0053d9acdccead4a05be4a3575f3c5c", NULL},
    {"tokenizer.json", 1842767, "bcd04f0eadf90287bd26e1a183ac487d8a141b09b06aecb7725bbdd343640f2e", NULL},
    {"tokenizer_config.json", 0, NULL, NULL},
    {"model.safetensors", 2200119864, "6e6001da2106d4757498752a021df6c2bdc332c650aae4bae6b0c004dcf14933",
     NULL},
};
static const FetchFile llama_3_2_1b[] = {
    {"config.json", 0, NULL, NULL},
    {"generation_config.json", 0, NULL, NULL},
    {"tokenizer.json", 0, NULL, NULL},
    {"tokenizer_config.json", 0, NULL, NULL},
    {"model.safetensors", 0, "68a2e4be76fa709455a60272fba8e512c02d81c46e6c671cc9449e374fd6809a", NULL},
};
static const FetchFile mistral_7b[] = {
    {"config.json", 0, NULL, NULL},
    {"generation_config.json", 0, NULL, NULL},
    {"tokenizer.json", 0, NULL, NULL},
    {"tokenizer_config.json", 0, NULL, NULL},
    {"model.safetensors.index.json", 0, NULL, NULL},
    {"model-00001-of-00002.safetensors", 0, NULL, NULL},
    {"model-00002-of-00002.safetensors", 0, NULL, NULL},
};
static const FetchFile qwen2_5_0_5b[] = {
    {"config.json", 0, "479dcf0c5286339e41ad3992cd08ae88a467c4187587936248e2b7c96283484b", NULL},
    {"generation_config.json", 0, NULL, NULL},
    {"tokenizer.json", 7031645, "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539", NULL},
    {"tokenizer_config.json", 0, NULL, NULL},
    {"model.safetensors", 988097824, "88c142557820ccad55bb59756bfcfcf891de9cc6202816bd346445188a0ed342",
     NULL},
};
static const FetchFile qwen3_0_6b[] = {
    {"config.json", 0, "660db3b73d788119c04535e48cf9be5f55bc3100841a718637ae695b442f27dd", NULL},
    {"generation_config.json", 0, NULL, NULL},
    {"tokenizer.json", 11422654, "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4", NULL},
    {"tokenizer_config.json", 0, "d5d09f07b48c3086c508b30d1c9114bd1189145b74e982a265350c923acd8101", NULL},
    {"model.safetensors", 1503300328, "f47f71177f32bcd101b7573ec9171e6a57f4f4d31148d38e382306f42996874b",
     NULL},
};

#define WIKITEXT_HOME "https://wikitext.smerity.com/"
#define SQUAD_HOME    "https://rajpurkar.github.io/SQuAD-explorer/dataset/"
#define HUB           "https://huggingface.co/"
#define GPT2_HOME     HUB "openai-community/"
#define BERT_HOME     HUB "google-bert/"
#define GPT2_REVISION "gpt2/resolve/607a30d783dfa663caf39e06633721c8d4cfcd7e/"
#define BERT_REVISION "bert-base-uncased/resolve/86b5e0934494bd15c9632b12f734a8a67f723594/"
#define SET(name, title, licence, home, files, about)                                                        \
    { name, title, licence, home, files, COUNT(files), about }

static const FetchSet sets[] = {
    SET("tinyshakespeare", "Tiny Shakespeare: 40,000 lines from the plays, in one file", "public domain",
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/", tinyshakespeare,
        0),
    SET("wikitext-2", "WikiText-2: 2 million words of Wikipedia, rare words replaced by <unk>", "CC BY-SA",
        WIKITEXT_HOME, wikitext_2, 4500000),
    SET("wikitext-2-raw", "WikiText-2, raw text without <unk>", "CC BY-SA", WIKITEXT_HOME, wikitext_2_raw, 0),
    SET("wikitext-103", "WikiText-103: 103 million words of Wikipedia, rare words replaced by <unk>",
        "CC BY-SA", WIKITEXT_HOME, wikitext_103, 190000000),
    SET("wikitext-103-raw", "WikiText-103, raw text without <unk>", "CC BY-SA", WIKITEXT_HOME,
        wikitext_103_raw, 0),
    SET("squad-v1.1", "SQuAD 1.1: 98,169 questions on Wikipedia articles", "CC BY-SA 4.0", SQUAD_HOME,
        squad_v1, 0),
    SET("squad-v2", "SQuAD 2.0: 142,192 questions on Wikipedia articles, a third of them unanswerable",
        "CC BY-SA 4.0", SQUAD_HOME, squad_v2, 0),
    SET("cornell", "Cornell Movie-Dialogs: 220,579 exchanges between 10,292 pairs of characters",
        "none stated; for research", "https://www.cs.cornell.edu/~cristian/data/", cornell, 9900000),
    SET("gpt2-tokenizer", "GPT-2's tokenizer: BPE, 50,257 tokens", "MIT", GPT2_HOME GPT2_REVISION,
        gpt2_tokenizer, 0),
    SET("bert-base-uncased-tokenizer", "BERT's uncased tokenizer: WordPiece, 30,522 tokens", "Apache 2.0",
        BERT_HOME BERT_REVISION, bert_tokenizer, 0),
    SET("gpt2", "GPT-2, 124 M parameters, with its tokenizer", "MIT", GPT2_HOME GPT2_REVISION, gpt2, 0),
    SET("gpt2-medium", "GPT-2, 355 M parameters, with its tokenizer", "MIT",
        GPT2_HOME "gpt2-medium/resolve/6dcaa7a952f72f9298047fd5137cd6e4f05f41da/", gpt2_medium, 0),
    SET("gpt2-large", "GPT-2, 774 M parameters, with its tokenizer", "MIT",
        GPT2_HOME "gpt2-large/resolve/32b71b12589c2f8d625668d2335a01cac3249519/", gpt2_large, 3250000000),
    SET("gpt2-xl", "GPT-2, 1.56 B parameters, with its tokenizer", "MIT",
        GPT2_HOME "gpt2-xl/resolve/15ea56dee5df4983c59b2538573817e1667135e2/", gpt2_xl, 6430000000),
    SET("bert-base-uncased", "BERT base, 110 M parameters, with its tokenizer", "Apache 2.0",
        BERT_HOME BERT_REVISION, bert_base, 0),
    SET("bert-large-uncased", "BERT large, 336 M parameters, with its tokenizer", "Apache 2.0",
        BERT_HOME "bert-large-uncased/resolve/6da4b6a26a1877e173fca3225479512db81a5e5b/", bert_large, 0),
    SET("smollm2-135m", "SmolLM2, 135 M parameters (Llama), with its tokenizer", "Apache 2.0",
        HUB "HuggingFaceTB/SmolLM2-135M/resolve/93efa2f097d58c2a74874c7e644dbc9b0cee75a2/", smollm2_135m,
        271200000),
    SET("tinyllama-1.1b-chat", "TinyLlama, 1.1 B parameters (Llama), tuned for chat, with its tokenizer",
        "Apache 2.0",
        HUB "TinyLlama/TinyLlama-1.1B-Chat-v1.0/resolve/fe8a4ea1ffedaf415f4da2f062534de366a451e6/", tinyllama,
        2200000000),
    SET("llama-3.2-1b",
        "Llama 3.2, 1.24 B parameters, with its tokenizer (Unsloth's copy, which needs no account)",
        "Llama 3.2 Community License",
        HUB "unsloth/Llama-3.2-1B/resolve/9535bd9b1d1dea6acafbdc4813b728796aeb28da/", llama_3_2_1b,
        2490000000),
    SET("mistral-7b", "Mistral 7B v0.1, 7.24 B parameters, with its tokenizer", "Apache 2.0",
        HUB "mistralai/Mistral-7B-v0.1/resolve/27d67f1b5f57dc0953326b2601d68371d40ea8da/", mistral_7b,
        14490000000),
    SET("qwen2.5-0.5b", "Qwen2.5, 494 M parameters (Qwen2), with its tokenizer", "Apache 2.0",
        HUB "Qwen/Qwen2.5-0.5B/resolve/060db6499f32faf8b98477b0a26969ef7d8b9987/", qwen2_5_0_5b, 995000000),
    SET("qwen3-0.6b", "Qwen3, 596 M parameters, tuned for chat, with its tokenizer", "Apache 2.0",
        HUB "Qwen/Qwen3-0.6B/resolve/c1899de289a04d12100db370d81485cdf75e47ca/", qwen3_0_6b, 1510000000),
};

#define GPT2_ENCODINGS "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/"

static const FetchMirror mirrors[] = {
    {HUB, "https://hf-mirror.com/"},
    {"https://raw.githubusercontent.com/karpathy/char-rnn/master/",
     "https://cdn.jsdelivr.net/gh/karpathy/char-rnn@master/"},
    {SQUAD_HOME, "https://raw.githubusercontent.com/rajpurkar/SQuAD-explorer/master/dataset/"},
    {"https://www.cs.cornell.edu/~cristian/data/", "https://people.mpi-sws.org/~cristian/data/"},
    /* single files under other names: vocab.json, merges.txt */
    {"196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783", GPT2_ENCODINGS "encoder.json"},
    {"1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5", GPT2_ENCODINGS "vocab.bpe"},
    /* wikitext-2-v1.zip, wikitext-2-raw-v1.zip, wikitext-103-raw-v1.zip */
    {"92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
     "https://ascend-repo-modelzoo.obs.cn-east-2.myhuaweicloud.com/MindFormers/dataset/wikitext-2/"
     "wikitext-2-v1.zip"},
    {"ef7edb566e3e2b2d31b29c1fdb0c89a4cc683597484c3dc2517919c615435a11",
     HUB "datasets/ggml-org/ci/resolve/main/wikitext-2-raw-v1.zip"},
    {"91c00ae287f0d699e18605c84afc9e45c192bc6b7797ff8837e5474655a33794",
     HUB "datasets/mattdangerw/wikitext-103-raw/resolve/main/wikitext-103-raw-v1.zip"},
};

const FetchMirror *fetch_mirrors(size_t *ret_count) {
    *ret_count = COUNT(mirrors);
    return mirrors;
}

const char *fetch_mirrored(const FetchMirror *mirror, const char *home) {
    size_t length = strlen(mirror->of);
    return strncmp(mirror->of, home, length) ? NULL : home + length;
}

const FetchSet *fetch_sets(size_t *ret_count) {
    *ret_count = COUNT(sets);
    return sets;
}

bool fetch_is_named(const FetchSet *set, const char *name) {
    static const char hub[] = "https://huggingface.co/";
    const char *end = strstr(set->home, "/resolve/");
    if (!strcmp(set->name, name)) return true;
    if (strncmp(set->home, hub, sizeof hub - 1) || !end || strstr(set->name, "-tokenizer")) return false;
    const char *owner = set->home + sizeof hub - 1, *model = strchr(owner, '/') + 1;
    const char *from = strchr(name, '/') ? owner : model;
    return strlen(name) == (size_t)(end - from) && !strncasecmp(from, name, strlen(name));
}

Status fetch_find(const char *name, const FetchSet **ret_set) {
    Suggestion near = {.word = name};
    char hub[RELEASED_NAME];
    bool url = released_from_url(name, hub);
    for (size_t i = 0; i < COUNT(sets); i++) {
        if (fetch_is_named(&sets[i], url ? hub : name)) {
            *ret_set = &sets[i];
            return OK;
        }
        suggest_offer(&near, sets[i].name);
    }
    if (near.best) return USAGE("unknown dataset or model '%s'; did you mean '%s'?", name, near.best);
    return USAGE("unknown dataset or model '%s'; see 'weft fetch {list}'%s", name,
                 strchr(name, '/') ? "; other models: download them and pass their directory" : "");
}
