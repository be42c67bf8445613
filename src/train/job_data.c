/* The data of a job: which format it is of, which tokenizer its tokens are of, and text prepared for it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "data/cache.h"
#include "data/reader.h"
#include "data/table.h"
#include "train/job.h"

static bool asks_bytes(const Job *job) {
    return job->text.tokenizer && !strcmp(job->text.tokenizer, "bytes");
}

/* Whether the checkpoint has a tokenizer of its own. */
static bool has_beside(const Job *job) {
    return job->model_dir && tokenizer_is_there(job->model_dir);
}

/* ---- the tokenizer ---- */

static Status take_tokenizer(Job *job, const char *path) {
    TRY(tokenizer_load(&job->tokenizer, path));
    TRY(str_dup(path, &job->tokenizer_name));
    job->tokens = tokenizer_id(job->tokenizer);
    job->tokens_known = true;
    return OK;
}

/* A tokenizer may be named by one of its files; its directory is what a checkpoint takes along. */
static Status find_dir(Job *job, const char *path) {
    if (path_is_dir(path)) return str_dup(path, &job->tokenizer_dir);
    const char *slash = strrchr(path, '/');
    if (!slash) return str_dup(".", &job->tokenizer_dir);
    return str_format(&job->tokenizer_dir, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

/* A tokenizer that was asked for must be the checkpoint's, where that has one. */
static Status check_beside(const Job *job) {
    if (!has_beside(job)) return OK;
    CLEANUP(tokenizer_freep) Tokenizer *beside = NULL;
    TRY(tokenizer_load(&beside, job->model_dir));
    TokenizerId id = tokenizer_id(beside);
    if (tokenizer_id_same(&job->tokens, &id)) return OK;
    char asked[TOKENIZER_ID_TEXT], there[TOKENIZER_ID_TEXT];
    return USAGE("the tokenizer %s (%s) is not the one of the checkpoint %s (%s)", job->tokenizer_name,
                 tokenizer_id_text(&job->tokens, asked), job->model_dir, tokenizer_id_text(&id, there));
}

/* Bytes that were asked for are not the tokens of a checkpoint or of shards that have others. */
static Status check_bytes(const Job *job, DataFormat format) {
    char text[TOKENIZER_ID_TEXT];
    const char *asked = asks_bytes(job) ? "--tokenizer bytes" : "--format bytes";
    if (!asks_bytes(job) && format != FORMAT_BYTES) return OK;
    if (has_beside(job))
        return USAGE("%s: the checkpoint %s has a tokenizer of its own, and bytes are not its tokens", asked,
                     job->model_dir);
    if (format == FORMAT_TOKENS && job->tokens.kind != TOKENIZER_BYTES)
        return USAGE("%s: was made with another tokenizer (%s) than the bytes asked for", job->tokenizer_name,
                     tokenizer_id_text(&job->tokens, text));
    return OK;
}

Status job_need_tokenizer(Job *job) {
    if (job->tokenizer) return OK;
    if (!asks_bytes(job) && has_beside(job)) return take_tokenizer(job, job->model_dir);
    char text[TOKENIZER_ID_TEXT];
    if (job->tokens_known && job->tokens.kind != TOKENIZER_BYTES)
        return USAGE(
            "to read text beside these shards, their tokenizer (%s) is needed: name it with --tokenizer",
            tokenizer_id_text(&job->tokens, text));
    return tokenizer_new_bytes(&job->tokenizer, job->model->config.family == FAMILY_BERT);
}

/* ---- formats ---- */

/* Whether plain files are text for a tokenizer, as opposed to bytes. */
static bool plain_is_text(const Job *job) {
    if (job->text.documents && strcmp(job->text.documents, "file")) return true;
    return job->text.tokenizer ? !asks_bytes(job) : has_beside(job);
}

static Status format_of(const Job *job, const char *path, DataFormat *ret_format) {
    bool table = job->asks_classify && table_is_one(path);
    const char *field = table && job->text.text_field ? job->text.text_field : job->text.field;
    if (table && !reader_is_json(path)) {
        *ret_format = FORMAT_RECORDS;
        return OK;
    }
    TRY(data_format_find(path, field, ret_format));
    if (table && (*ret_format == FORMAT_TEXT || *ret_format == FORMAT_PAIRS)) *ret_format = FORMAT_RECORDS;
    if (*ret_format == FORMAT_BYTES && job->asks_squad)
        *ret_format = FORMAT_SQUAD;
    else if (*ret_format == FORMAT_BYTES && plain_is_text(job))
        *ret_format = FORMAT_TEXT;
    return OK;
}

/* What a list of files comes to. Text of both kinds, plain and JSON lines, goes together. */
static Status common_format(const Job *job, const char *const *paths, int count, DataFormat *ret_format) {
    DataFormat format = job->format;
    for (int i = 0; job->format == FORMAT_AUTO && i < count; i++) {
        DataFormat other;
        TRY(format_of(job, paths[i], &other));
        bool both_texts = (format == FORMAT_TEXT || format == FORMAT_BYTES) &&
                          (other == FORMAT_TEXT || other == FORMAT_BYTES);
        if (i == 0)
            format = other;
        else if (other != format && both_texts)
            format = FORMAT_TEXT;
        else if (other != format)
            return USAGE("%s is read as %s and %s as %s, expected files of one format (see --format)",
                         paths[0], data_format_name(format), paths[i], data_format_name(other));
    }
    if (job->format == FORMAT_BYTES && job->tokenizer && job->tokens.kind != TOKENIZER_BYTES)
        return USAGE("--format bytes and the tokenizer %s exclude each other; the format text is for it",
                     job->tokenizer_name);
    *ret_format = format;
    return OK;
}

/* Shards alone say what their tokens are. */
static Status take_from_token_files(Job *job, const char *path) {
    CLEANUP(token_file_list_done) TokenFileList list = {0};
    CLEANUP(token_file_freep) TokenFile *token_file = NULL;
    TRY(token_file_list_add(&list, path));
    TRY(token_file_open(&token_file, list.path[0]));
    TRY(str_dup(list.path[0], &job->tokenizer_name));
    job->tokens = token_file_info(token_file)->tokenizer;
    job->tokens_known = true;
    return OK;
}

/* Formats whose texts a tokenizer turns into tokens. */
static bool has_texts(DataFormat format) {
    return format == FORMAT_TEXT || format == FORMAT_SQUAD || format == FORMAT_PAIRS ||
           format == FORMAT_CORNELL || format == FORMAT_RECORDS;
}

/* Whether the task is classification: it was asked for, or it is what the checkpoint is made for. */
static Status asks_classify(const Job *job, const JobSpec *spec, bool *ret_asks) {
    ModelConfig config = {0};
    *ret_asks = !strcmp(spec->task, "classify");
    if (*ret_asks || strcmp(spec->task, "auto") || !job->model_dir) return OK;
    TRY(hf_config_read(job->model_dir, &config));
    *ret_asks = config.family == FAMILY_BERT && config_has(&config, OUTPUT_CLASSIFY) &&
                !config_has(&config, OUTPUT_SPAN);
    return OK;
}

Status job_settle_data(Job *job, const JobSpec *spec) {
    DataFormat format = FORMAT_AUTO;
    job->text = spec->text;
    TRY(asks_classify(job, spec, &job->asks_classify));
    job->asks_squad = !strcmp(spec->task, "squad");
    if (spec->text.tokenizer && !asks_bytes(job)) {
        TRY(take_tokenizer(job, spec->text.tokenizer));
        TRY(find_dir(job, spec->text.tokenizer));
        TRY(check_beside(job));
    }
    TRY(common_format(job, spec->data, spec->data_count, &format));
    bool texts = has_texts(format), wants = texts || format == FORMAT_TOKENS;
    job->squad = format == FORMAT_SQUAD;
    if (wants && !job->tokenizer && !asks_bytes(job) && has_beside(job))
        TRY(take_tokenizer(job, job->model_dir));
    if (format == FORMAT_TOKENS && !job->tokens_known && spec->data_count)
        TRY(take_from_token_files(job, spec->data[0]));
    TRY(check_bytes(job, format));
    job->bytes = job->tokens_known ? job->tokens.kind == TOKENIZER_BYTES : format == FORMAT_BYTES || texts;
    return OK;
}

Status job_find_labels(Job *job, const JobSpec *spec, ModelConfig *config) {
    DataFormat format = FORMAT_AUTO;
    const char *field = job->text.label_field ? job->text.label_field : "label";
    if (job->model_dir) {
        ModelConfig old;
        TRY(hf_config_read(job->model_dir, &old));
        if (config_has(&old, OUTPUT_CLASSIFY) && old.labels == config->labels)
            return hf_labels_read(job->model_dir, config->labels, &job->labels);
    }
    TRY(common_format(job, spec->data, spec->data_count, &format));
    if (format != FORMAT_RECORDS || spec->labels) return OK;
    TRY(label_set_find(&job->labels, spec->data, spec->data_count, field));
    if (job->labels.count < 2)
        return FAILED("%s: every row has the label '%s', expected at least two labels", spec->data[0],
                      job->labels.name[0]);
    config->labels = (int64_t)job->labels.count;
    return OK;
}

Status job_find_words(Job *job, int64_t vocab) {
    if (!job->tokenizer || job->tokens.kind != TOKENIZER_WORDPIECE)
        return USAGE("--whole-word-masking needs a WordPiece tokenizer: name it with --tokenizer");
    TRY(mem_new((size_t)vocab, 1, &job->continues));
    for (int64_t id = 0; id < tokenizer_vocab(job->tokenizer) && id < vocab; id++) {
        size_t size;
        const char *token = tokenizer_token(job->tokenizer, (int32_t)id, &size);
        job->continues[id] = size > 2 && token[0] == '#' && token[1] == '#';
    }
    return OK;
}

/* ---- opening ---- */

/* Where text is prepared: in the cache or, without it, in the run's directory or one that goes with the job.
 */
static Status find_root(Job *job, char **ret_root) {
    if (!job->text.no_cache) {
        CLEANUP(mem_freep) char *cache = NULL;
        TRY(cache_root(&cache));
        return path_join(ret_root, cache, "shards");
    }
    if (job->out) return path_join(ret_root, job->out, "shards");
    if (!job->scratch_dir) {
        const char *where = getenv("TMPDIR");
        CLEANUP(mem_freep) char *dir = NULL;
        TRY(path_join(&dir, where && *where ? where : "/tmp", "weft-XXXXXX"));
        if (!mkdtemp(dir)) return FAILED("%s: cannot be made: %s", dir, strerror(errno));
        job->scratch_dir = dir;
        dir = NULL;
    }
    return str_dup(job->scratch_dir, ret_root);
}

/* Training and validation take parts of the same files, which must not have changed in between. */
static bool is_prepared(const Job *job, const char *const *paths, int count) {
    if (!job->prepared || count != job->prepared_count) return false;
    for (int i = 0; i < count; i++)
        if (strcmp(paths[i], job->prepared_from[i])) return false;
    return true;
}

static Status prepare_text(Job *job, const char *const *paths, int count, char **ret_dir) {
    CLEANUP(mem_freep) char *root = NULL;
    CLEANUP(progress_freep) Progress *progress = NULL;
    if (is_prepared(job, paths, count)) return str_dup(job->prepared, ret_dir);
    TRY(job_need_tokenizer(job));
    TRY(find_root(job, &root));
    TRY(progress_new(&progress, job->log, "prepare", 0, 5, job->quiet));
    PrepareSpec spec = {.tokenizer = job->tokenizer,
                        .paths = paths,
                        .path_count = count,
                        .field = job->text.field,
                        .sentences = job->task == TASK_MLM && job->next_sentence,
                        .threads = job->device->threads,
                        .progress = progress,
                        .stop = job->stop};
    if (job->text.documents) TRY(documents_parse(job->text.documents, &spec.documents));
    CLEANUP(mem_freep) char *dir = NULL;
    bool made = false;
    TRY(cache_prepare(&spec, root, progress, &dir, &made));
    if (!made) progress_line(progress, "%s: prepared already, in %s", paths[0], dir);
    TRY(cache_tell_notes(dir, progress));
    free(job->prepared);
    job->prepared = NULL;
    TRY(str_dup(dir, &job->prepared));
    job->prepared_from = paths;
    job->prepared_count = count;
    *ret_dir = dir;
    dir = NULL;
    return OK;
}

static Status tell_warning(const Job *job, const char *path, const Dataset *data) {
    CLEANUP(mem_freep) char *text = NULL;
    CLEANUP(progress_freep) Progress *progress = NULL;
    TRY(dataset_warning(data, &text));
    if (!text || !job->log) return OK;
    TRY(progress_new(&progress, job->log, "data", 0, 5, false));
    progress_line(progress, "note: %s: %s", path, text);
    return OK;
}

Status job_format(const Job *job, const char *const *paths, int count, DataFormat *ret_format) {
    return common_format(job, paths, count, ret_format);
}

Status job_data(Job *job, const char *const *paths, int count, double keep_first, double keep_last,
                double mask_rate, uint64_t seed, Dataset **ret_data) {
    const ModelConfig *config = &job->model->config;
    DataSpec spec = {
        .paths = paths,
        .path_count = count,
        .task = job->task,
        .seq = job->seq,
        .vocab = config->vocab,
        .types = config->types,
        .labels = config->labels,
        .special = job->special,
        .next_sentence = job->next_sentence,
        .no_masks = job->no_masks,
        .continues = job->continues,
        .mask_rate = mask_rate,
        .windows = job->windows,
        .keep_first = keep_first,
        .keep_last = keep_last,
        .seed = seed,
    };
    TRY(common_format(job, paths, count, &spec.format));
    CLEANUP(mem_freep) char *dir = NULL;
    const char *prepared[1];
    if (spec.format == FORMAT_TEXT) {
        TRY(dataset_check_task(&spec, FORMAT_TEXT));
        TRY(prepare_text(job, paths, count, &dir));
        prepared[0] = dir;
        spec.paths = prepared;
        spec.path_count = 1;
        spec.format = FORMAT_TOKENS;
    }
    if (has_texts(spec.format)) {
        TRY(job_need_tokenizer(job));
        spec.encoder = job->tokenizer;
        spec.text_field = job->text.text_field;
        spec.pair_field = job->text.pair_field;
        spec.label_field = job->text.label_field;
        spec.label_names = (const char *const *)job->labels.name;
        if (spec.format == FORMAT_RECORDS && !spec.text_field) spec.text_field = job->text.field;
        spec.doc_stride = job->text.doc_stride;
        spec.max_query = job->text.max_query;
    }
    if (job->tokens_known) {
        spec.tokenizer = &job->tokens;
        spec.tokenizer_name = job->tokenizer_name;
    }
    Status status = dataset_open(ret_data, &spec);
    if (!status) return keep_last > 0 ? OK : tell_warning(job, paths[0], *ret_data);
    if (!dir || status_exit_code(status) == STATUS_USAGE) return status;
    return status_wrap(status, "%s, as prepared (remove %s to have it done anew)", paths[0], dir);
}

Status job_val_token_files(const char *const *paths, int count, TokenFileList *list) {
    for (int i = 0; i < count; i++)
        if (path_is_dir(paths[i])) TRY(token_file_list_dir(list, paths[i], "val"));
    return OK;
}
