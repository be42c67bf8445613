/* Fuzzes GGUF files: what is accepted gives a configuration, a tokenizer and tensors whose values are all
 * readable. */
#include <unistd.h>

#include "base/memory.h"
#include "checkpoint/gguf_meta.h"
#include "checkpoint/gguf_read.h"
#include "fuzz.h"

static char path[64], dir[64];

static void clear_up(void) {
    unlink(path);
    status_free(dir_remove(dir));
}

static Status read_file(void) {
    CLEANUP(gguf_file_done) GgufFile file = {0};
    CLEANUP(safe_freep) SafeFile *tensors = NULL;
    ModelConfig config;
    TRY(gguf_file_open(&file, path));
    for (size_t i = 0; i < file.count; i++) fuzz_require(gguf_find(&file, file.tensor[i].name) != NULL);
    fuzz_succeeded(gguf_write_tokenizer(&file, dir));
    TRY(gguf_config(&file, &config));
    TRY(gguf_open(&tensors, path));
    for (size_t i = 0; i < safe_count(tensors); i++) {
        const SafeTensor *tensor = safe_at(tensors, i);
        int64_t count = (int64_t)(tensor->bytes / dtype_size(tensor->dtype));
        CLEANUP(mem_freep) float *values = NULL;
        TRY(mem_new((size_t)count + 1, sizeof *values, &values));
        TRY(values_read(values, tensor, 0, count));
    }
    return OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!path[0]) {
        snprintf(path, sizeof path, "/dev/shm/weft-fuzz-%d.gguf", (int)getpid());
        snprintf(dir, sizeof dir, "/dev/shm/weft-fuzz-%d", (int)getpid());
        fuzz_require(!dir_make(dir));
        atexit(clear_up);
    }
    FILE *file = fopen(path, "wb");
    fuzz_require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
    fuzz_succeeded(read_file());
    return 0;
}

/* ---- seeds ---- */

#define PUT(call) fuzz_require(!(call))

static void put_tokens(GgufMeta *meta, const char *model, bool scores) {
    static const char *const tokens[] = {"<unk>", "a", "b", "ab", "\xE2\x96\x81", "\xE2\x96\x81\x61", "<s>"};
    static const uint32_t types[] = {2, 1, 1, 1, 1, 1, 3};
    enum { TOKENS = 7 };
    PUT(meta_put_text(meta, "tokenizer.ggml.model", model));
    PUT(meta_put_array(meta, "tokenizer.ggml.tokens", META_STRING, TOKENS));
    for (int i = 0; i < TOKENS; i++) PUT(meta_text(meta, tokens[i], strlen(tokens[i])));
    PUT(meta_put_array(meta, "tokenizer.ggml.token_type", META_I32, TOKENS));
    for (int i = 0; i < TOKENS; i++) PUT(meta_u32(meta, types[i]));
    if (scores) PUT(meta_put_array(meta, "tokenizer.ggml.scores", META_F32, TOKENS));
    for (int i = 0; scores && i < TOKENS; i++) PUT(meta_u32(meta, (uint32_t)i << 23));
    if (!scores) PUT(meta_put_array(meta, "tokenizer.ggml.merges", META_STRING, 1));
    if (!scores) PUT(meta_text(meta, "a b", 3));
    PUT(meta_put_u32(meta, "tokenizer.ggml.bos_token_id", 6));
    PUT(meta_put_bool(meta, "tokenizer.ggml.add_bos_token", true));
}

static void put_tensor(GgufMeta *meta, const char *name, int64_t cols, int64_t rows, GgufType type,
                       size_t *offset) {
    PUT(meta_text(meta, name, strlen(name)));
    PUT(meta_u32(meta, rows ? 2 : 1));
    PUT(meta_u64(meta, (uint64_t)cols));
    if (rows) PUT(meta_u64(meta, (uint64_t)rows));
    PUT(meta_u32(meta, type));
    PUT(meta_u64(meta, *offset));
    *offset += (gguf_bytes(type, cols * (rows ? rows : 1)) + 31) / 32 * 32;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const families[] = {"llama", "gpt2", "bert"};
    static const char *const sizes[] = {"context_length", "embedding_length", "block_count",
                                        "feed_forward_length", "attention.head_count"};
    static const int64_t values[] = {64, 64, 1, 96, 4};
    if (index > 2) return 0;
    GgufMeta meta = {0}, head = {0};
    size_t offset = 0;
    PUT(meta_put_text(&meta, "general.architecture", families[index]));
    for (int i = 0; i < 5; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s.%s", families[index], sizes[i]);
        PUT(meta_put_u32(&meta, key, values[i]));
    }
    if (index == 0) PUT(meta_put_f32(&meta, "llama.rope.freq_base", 500));
    put_tokens(&meta, families[index], index == 0);
    uint64_t keys = meta.count;
    put_tensor(&meta, "token_embd.weight", 64, 7, GGUF_Q8_0, &offset);
    put_tensor(&meta, "blk.0.attn_q.weight", 64, 64, index == 1 ? GGUF_F16 : GGUF_Q4_0, &offset);
    put_tensor(&meta, "blk.0.attn_norm.weight", 64, 0, GGUF_F32, &offset);
    if (index == 0) put_tensor(&meta, "rope_freqs.weight", 8, 0, GGUF_F32, &offset);
    PUT(meta_bytes(&head, "GGUF", 4));
    PUT(meta_u32(&head, 3));
    PUT(meta_u64(&head, index == 0 ? 4 : 3));
    PUT(meta_u64(&head, keys));
    PUT(meta_bytes(&head, meta.data, meta.size));
    size_t size = (head.size + 31) / 32 * 32 + offset;
    fuzz_require(size <= FUZZ_INPUT_LIMIT);
    memset(out, 0x3c, size);
    memcpy(out, head.data, head.size);
    gguf_meta_done(&meta);
    gguf_meta_done(&head);
    return size;
}
