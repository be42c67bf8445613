/* The data of a job: detecting its format and tokenizer, tokenizing text, opening data sets. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "data/cache.h"
#include "data/reader.h"
#include "data/targets.h"
#include "train/job.h"

static const TextOptions *text_of(const Job *job) {
    return &job->settings.data.text;
}

/* The field with the text of rows. */
static const char *field_of(const Job *job) {
    return text_of(job)->text_field ? text_of(job)->text_field : text_of(job)->field;
}

static bool wants_bytes(const Job *job) {
    return text_of(job)->tokenizer && !strcmp(text_of(job)->tokenizer, "bytes");
}

static bool has_own_tokenizer(const Job *job) {
    return job->model_dir && tokenizer_exists(job->model_dir) && !tokenizer_is_bytes(job->model_dir);
}

/* ---- the tokenizer ---- */

static Status load_tokenizer(Job *job, const char *path) {
    TRY(tokenizer_load(&job->tokenizer, path));
    TRY(str_dup(path, &job->tokenizer_name));
    job->tokens = tokenizer_id(job->tokenizer);
    job->tokens_known = true;
    return OK;
}

/* A requested tokenizer must equal the checkpoint's, if the checkpoint has one. */
static Status check_same_tokenizer(const Job *job) {
    return has_own_tokenizer(job) ? tokenizer_id_check(&job->tokens, job->tokenizer_name, job->model_dir)
                                  : OK;
}

/* Refuses bytes where the checkpoint or the token files use another tokenizer. */
static Status check_bytes(const Job *job, DataFormat format) {
    char text[TOKENIZER_ID_TEXT];
    const char *asked = wants_bytes(job) ? "tokenizer" : "format";
    if (!wants_bytes(job) && format != FORMAT_BYTES) return OK;
    if (has_own_tokenizer(job))
        return USAGE(
            "{%s} bytes: the checkpoint %s has its own tokenizer, so byte tokens cannot be used with it",
            asked, job->model_dir);
    if (format == FORMAT_TOKENS && job->tokens.kind != TOKENIZER_BYTES)
        return USAGE("%s was prepared with a different tokenizer (%s), not bytes", job->tokenizer_name,
                     tokenizer_id_text(&job->tokens, text));
    return OK;
}

Status job_need_tokenizer(Job *job) {
    if (job->tokenizer) return OK;
    if (!wants_bytes(job) && has_own_tokenizer(job)) return load_tokenizer(job, job->model_dir);
    char text[TOKENIZER_ID_TEXT];
    if (job->tokens_known && job->tokens.kind != TOKENIZER_BYTES)
        return USAGE(
            "reading text along with these token files needs their tokenizer (%s); pass it with {tokenizer}",
            tokenizer_id_text(&job->tokens, text));
    return tokenizer_new_bytes(&job->tokenizer, job->model->config.family->byte_specials);
}

Status job_name_tokens(Job *job) {
    bool own = has_own_tokenizer(job) && !wants_bytes(job);
    return !job->tokenizer && own ? job_need_tokenizer(job) : OK;
}

/* ---- formats ---- */

/* Whether plain files are text to tokenize rather than bytes. */
static bool plain_is_text(const Job *job) {
    if (text_of(job)->documents && strcmp(text_of(job)->documents, "file")) return true;
    return text_of(job)->tokenizer ? !wants_bytes(job) : has_own_tokenizer(job);
}

/* Files of rows to predict: token ids, questions, or texts in tables or lines. */
static Status format_of_rows(const char *path, DataFormat *ret_format) {
    bool ids = false, squad = false;
    TRY(data_is_squad(path, &squad));
    if (reader_is_json(path)) TRY(data_lines_are_ids(path, &ids));
    *ret_format = squad ? FORMAT_SQUAD : ids ? FORMAT_IDS : FORMAT_RECORDS;
    if (path_is_table(path)) return OK;
    TRY(data_format_find(path, NULL, ret_format));
    if (*ret_format == FORMAT_BYTES || *ret_format == FORMAT_TEXT) *ret_format = FORMAT_RECORDS;
    return OK;
}

static Status format_of(const Job *job, const char *path, DataFormat *ret_format) {
    if (job->settings.data.unlabeled) return format_of_rows(path, ret_format);
    bool table = job->tables && path_is_table(path);
    if (table && path_is_separated(path)) {
        *ret_format = job->tables;
        return OK;
    }
    TRY(data_format_find(path, field_of(job), ret_format));
    if (table && (*ret_format == FORMAT_TEXT || *ret_format == FORMAT_PAIRS || *ret_format == FORMAT_CHAT))
        *ret_format = job->tables;
    if (*ret_format == FORMAT_BYTES && job->unknown)
        *ret_format = job->unknown;
    else if (*ret_format == FORMAT_BYTES && plain_is_text(job))
        *ret_format = FORMAT_TEXT;
    return OK;
}

/* The common format of a list of files. Plain text and JSON Lines may be mixed. */
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
            return USAGE("%s is read as %s but %s as %s; all files must have the same format (see {format})",
                         paths[0], data_format_name(format), paths[i], data_format_name(other));
    }
    if (job->format == FORMAT_BYTES && job->tokenizer && job->tokens.kind != TOKENIZER_BYTES)
        return USAGE("{format} bytes cannot be combined with the tokenizer %s; use {format} text",
                     job->tokenizer_name);
    *ret_format = format;
    return OK;
}

/* The tokenizer that weft prepare has put beside the token files, or only its identity. */
static Status find_prepared_tokenizer(Job *job, const char *path) {
    CLEANUP(token_file_list_done) TokenFileList list = {0};
    CLEANUP(token_file_freep) TokenFile *token_file = NULL;
    CLEANUP(mem_freep) char *dir = NULL;
    TRY(token_file_list_add(&list, path));
    TRY(token_file_tokenizer(list.path[0], &dir));
    if (!wants_bytes(job) && tokenizer_exists(dir)) {
        TRY(load_tokenizer(job, dir));
        return tokenizer_dir(dir, &job->tokenizer_dir);
    }
    TRY(token_file_open(&token_file, list.path[0]));
    TRY(str_dup(list.path[0], &job->tokenizer_name));
    job->tokens = token_file_info(token_file)->tokenizer;
    job->tokens_known = true;
    return OK;
}

static bool needs_tokenizer(DataFormat format) {
    return format == FORMAT_TEXT || format == FORMAT_SQUAD || format == FORMAT_PAIRS ||
           format == FORMAT_CORNELL || format == FORMAT_RECORDS || format == FORMAT_CHAT;
}

Status job_resolve_data(Job *job) {
    const DataSettings *data = &job->settings.data;
    DataFormat format = FORMAT_AUTO;
    TRY(job_find_formats(job));
    if (data->text.tokenizer && !wants_bytes(job)) {
        TRY(load_tokenizer(job, data->text.tokenizer));
        TRY(tokenizer_dir(data->text.tokenizer, &job->tokenizer_dir));
        TRY(check_same_tokenizer(job));
    }
    TRY(common_format(job, data->files, data->files_count, &format));
    bool texts = needs_tokenizer(format), tokenized = texts || format == FORMAT_TOKENS;
    bool questions = data->unlabeled && job->task == TASK_SPAN && format == FORMAT_RECORDS;
    job->squad = format == FORMAT_SQUAD || questions;
    job->chats = format == FORMAT_CHAT;
    if (tokenized && !job->tokenizer && !wants_bytes(job) && has_own_tokenizer(job))
        TRY(load_tokenizer(job, job->model_dir));
    if (format == FORMAT_TOKENS && !job->tokens_known && data->files_count)
        TRY(find_prepared_tokenizer(job, data->files[0]));
    TRY(check_bytes(job, format));
    job->bytes = job->tokens_known ? job->tokens.kind == TOKENIZER_BYTES : format == FORMAT_BYTES || texts;
    return OK;
}

/* ---- labels ---- */

static Status parse_problem(const char *name, ProblemType *ret_problem) {
    static const char *const names[] = {[PROBLEM_AUTO] = "auto",
                                        [PROBLEM_SINGLE_LABEL] = "single-label",
                                        [PROBLEM_REGRESSION] = "regression",
                                        [PROBLEM_MULTI_LABEL] = "multi-label"};
    *ret_problem = PROBLEM_AUTO;
    if (!name) return OK;
    for (ProblemType one = PROBLEM_AUTO; one <= PROBLEM_MULTI_LABEL; one++) {
        if (strcmp(names[one], name)) continue;
        *ret_problem = one;
        return OK;
    }
    return USAGE("unknown problem type '%s'; expected auto, regression, single-label or multi-label", name);
}

/* A checkpoint with several labels and no problem_type is single-label or multi-label, as in transformers. */
static Status check_trained(const Job *job, LabelKind *kind) {
    if (kind->problem != PROBLEM_REGRESSION) return OK;
    if (kind->lists || kind->from_columns)
        return USAGE("%s has no problem_type, and %s has labels outside 0 to 1; pass {problem-type} "
                     "regression if the model predicts numbers",
                     job->model_dir, job->settings.data.files[0]);
    kind->problem = PROBLEM_SINGLE_LABEL;
    return OK;
}

/* Takes the problem type and the number and names of the labels from the data, unless they are known. `known`
 * is the number of labels, 0 if unknown; `trained`: the checkpoint has a classification head. */
static Status labels_from_data(Job *job, DataFormat format, int64_t known, bool trained,
                               ModelConfig *config) {
    const DataSettings *data = &job->settings.data;
    const char *field = text_of(job)->label_field ? text_of(job)->label_field : "label";
    bool ids = format == FORMAT_IDS, asked = config->problem != PROBLEM_AUTO;
    LabelKind kind = {.problem = config->problem};
    if (config->problem != PROBLEM_SINGLE_LABEL)
        TRY(labels_inspect(&kind, data->files, data->files_count, field, ids, config->problem));
    if (trained && !asked) TRY(check_trained(job, &kind));
    config->problem = kind.problem;
    if (known) return OK;
    if (kind.outputs) config->labels = kind.outputs;
    if (kind.from_columns) return label_fields_split(&job->labels, field);
    if (kind.outputs || (ids && kind.problem == PROBLEM_SINGLE_LABEL)) return OK;
    if (kind.problem == PROBLEM_MULTI_LABEL)
        TRY(label_set_find_lists(&job->labels, data->files, data->files_count, field, ids));
    else
        TRY(label_set_find(&job->labels, data->files, data->files_count, field));
    if (kind.problem == PROBLEM_SINGLE_LABEL && job->labels.count < 2)
        return FAILED("%s: every row has the label '%s'; at least two different labels are needed",
                      data->files[0], job->labels.name[0]);
    config->labels = (int64_t)job->labels.count;
    return OK;
}

/* The problem type that options and checkpoint agree on; PROBLEM_AUTO: it follows from the data. `known` as
 * above. */
static Status known_problem(const Job *job, const ModelConfig *old, int64_t known, ProblemType *ret_problem) {
    TRY(parse_problem(job->settings.model.problem_type, ret_problem));
    if (*ret_problem != PROBLEM_AUTO && old->problem != PROBLEM_AUTO && *ret_problem != old->problem)
        return USAGE("{problem-type} %s: the checkpoint %s has the problem_type %s",
                     job->settings.model.problem_type, job->model_dir, problem_name(old->problem));
    if (*ret_problem == PROBLEM_AUTO) *ret_problem = old->problem;
    if (*ret_problem == PROBLEM_AUTO && known == 1) *ret_problem = PROBLEM_REGRESSION;
    return OK;
}

Status job_find_labels(Job *job, ModelConfig *config) {
    const DataSettings *data = &job->settings.data;
    int64_t asked = job->settings.model.labels;
    DataFormat format = FORMAT_AUTO;
    ModelConfig old = {0};
    if (job->model_dir) TRY(hf_config_read(job->model_dir, &old));
    bool trained = config_labeled(&old);
    if (!trained) old.problem = PROBLEM_AUTO;
    int64_t known = asked ? asked : trained ? old.labels : 0;
    TRY(known_problem(job, &old, known, &config->problem));
    TRY(common_format(job, data->files, data->files_count, &format));
    bool readable = format == FORMAT_RECORDS || format == FORMAT_IDS;
    if (data->files_count && readable && !data->unlabeled && !(known && config->problem != PROBLEM_AUTO))
        TRY(labels_from_data(job, format, known, trained, config));
    config->problem = config_problem(config);
    if (config->problem == PROBLEM_SINGLE_LABEL && config->labels < 2)
        return USAGE("single-label classification needs at least 2 labels, but %s has 1; use {problem-type} "
                     "regression or multi-label",
                     asked ? "the model" : job->model_dir);
    if (trained && old.labels == config->labels) {
        label_set_done(&job->labels);
        return hf_labels_read(job->model_dir, config->labels, &job->labels);
    }
    return OK;
}

json_t *job_label_json(const Job *job, int64_t label) {
    if ((size_t)label < job->labels.count) return json_string(job->labels.name[label]);
    return json_sprintf("%lld", (long long)label);
}

Status job_find_words(Job *job, int64_t vocab) {
    if (!job->tokenizer || job->tokens.kind != TOKENIZER_WORDPIECE)
        return USAGE("{whole-word-masking} needs a WordPiece tokenizer; pass it with {tokenizer}");
    TRY(mem_new((size_t)vocab, 1, &job->continues));
    for (int64_t id = 0; id < tokenizer_vocab(job->tokenizer) && id < vocab; id++) {
        job->continues[id] = tokenizer_continues(job->tokenizer, (int32_t)id);
    }
    return OK;
}

/* ---- opening ---- */

/* Where token files go: the cache or, without it, the run directory or a temporary directory. */
static Status find_root(Job *job, char **ret_root) {
    if (!text_of(job)->no_cache) {
        CLEANUP(mem_freep) char *cache = NULL;
        TRY(cache_root(&cache));
        return path_join(ret_root, cache, "shards");
    }
    if (job->settings.ckpt.out && (job->first || !job->disk))
        return path_join(ret_root, job->settings.ckpt.out, "shards");
    if (!job->scratch_dir) TRY(dir_make_temporary(&job->scratch_dir));
    return str_dup(job->scratch_dir, ret_root);
}

/* Training and validation may use parts of the same files; both then read the same token files, even if the
 * text has changed in between. */
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
    TRY(progress_new(&progress, job->settings.report.log, "prepare", 0, 5, job->settings.report.quiet));
    progress_bytes(progress);
    PrepareSpec spec = {.tokenizer = job->tokenizer,
                        .paths = paths,
                        .path_count = count,
                        .field = field_of(job),
                        .sentences = job->next_sentence,
                        .threads = job->device->threads,
                        .progress = progress,
                        .stop = job->settings.run.stop};
    if (text_of(job)->documents) TRY(documents_parse(text_of(job)->documents, &spec.documents));
    CLEANUP(mem_freep) char *dir = NULL;
    bool made = false;
    TRY(cache_prepare(&spec, root, !text_of(job)->no_cache, progress, &dir, &made));
    if (!made) progress_line(progress, "%s: using cached tokens in %s", paths[0], dir);
    TRY(cache_tell_notes(dir, progress));
    free(job->prepared);
    job->prepared = NULL;
    TRY(str_dup(dir, &job->prepared));
    job->prepared_from = paths;
    job->prepared_count = count;
    return MOVE(ret_dir, dir);
}

static Status print_warning(const Job *job, const char *path, const Dataset *data) {
    CLEANUP(mem_freep) char *text = NULL;
    CLEANUP(progress_freep) Progress *progress = NULL;
    TRY(dataset_warning(data, &text));
    if (!text || !job->settings.report.log || !job->first) return OK;
    TRY(progress_new(&progress, job->settings.report.log, "data", 0, 5, false));
    progress_line(progress, "warning: %s: %s", path, text);
    return OK;
}

Status job_format(const Job *job, const char *const *paths, int count, DataFormat *ret_format) {
    return common_format(job, paths, count, ret_format);
}

DataPart job_training_part(const DataSettings *data, bool split) {
    return (DataPart){
        .fraction = data->fraction, .first = split ? 1 - data->val_fraction : 0, .stride = data->stride};
}

static Status print_text(const Job *job, const char *path, const Dataset *data) {
    CLEANUP(mem_freep) char *text = NULL;
    CLEANUP(progress_freep) Progress *progress = NULL;
    TRY(dataset_text(data, &text));
    if (!text || !job->settings.report.log || !job->first) return OK;
    TRY(progress_new(&progress, job->settings.report.log, "data", 0, 5, job->settings.report.quiet));
    progress_line(progress, "%s: %s", path, text);
    return OK;
}

/* The requested template, or that beside the tokenizer. */
static Status find_chat(Job *job, DataSpec *spec) {
    const char *file = text_of(job)->chat_template,
               *dir = job->tokenizer_dir ? job->tokenizer_dir : job->model_dir;
    if (!job->chat && file)
        TRY(chat_template_read(&job->chat, file, dir));
    else if (!job->chat && dir)
        TRY(chat_template_load(&job->chat, dir));
    spec->chat = job->chat;
    spec->loss_on = (LossOn)text_of(job)->loss_on;
    spec->unpacked = text_of(job)->no_packing;
    spec->end = (int32_t)job->model->config.eos_token;
    return OK;
}

Status job_data(Job *job, const char *const *paths, int count, DataPart part, double mask_rate, uint64_t seed,
                Dataset **ret_data) {
    const ModelConfig *config = &job->model->config;
    DataSpec spec = {
        .paths = paths,
        .path_count = count,
        .task = job->task,
        .seq = job->seq,
        .fixed_seq = job->fixed_seq,
        .vocab = config->vocab,
        .types = config->types,
        .labels = config->labels,
        .problem = config_labeled(config) ? config_problem(config) : PROBLEM_AUTO,
        .label_names = (const char *const *)job->labels.name,
        .special = job->special,
        .next_sentence = job->next_sentence,
        .no_masks = job->no_masks,
        .continues = job->continues,
        .mask_rate = mask_rate,
        .separate = text_of(job)->no_cross_document,
        .end = (int32_t)job->end_token,
        .windows = job->windows,
        .unlabeled = job->settings.data.unlabeled,
        .named = job->settings.data.named,
        .id_field = text_of(job)->id_field,
        .part = part,
        .seed = seed,
    };
    TRY(common_format(job, paths, count, &spec.format));
    CLEANUP(mem_freep) char *dir = NULL;
    const char *prepared[1];
    if (spec.format == FORMAT_TEXT) {
        TRY(dataset_check_task(&spec, FORMAT_TEXT));
        TRY(prepare_text(job, paths, count, &dir));
        prepared[0] = dir;
        spec.sources = paths;
        spec.source_count = count;
        spec.paths = prepared;
        spec.path_count = 1;
        spec.format = FORMAT_TOKENS;
    }
    if (needs_tokenizer(spec.format)) {
        TRY(job_need_tokenizer(job));
        spec.encoder = job->tokenizer;
        spec.text_field = text_of(job)->text_field;
        spec.pair_field = text_of(job)->pair_field;
        spec.label_field = text_of(job)->label_field;
        if (spec.format == FORMAT_RECORDS && !spec.text_field) spec.text_field = text_of(job)->field;
        spec.doc_stride = text_of(job)->doc_stride;
        spec.max_query = text_of(job)->max_query;
    }
    if (spec.format == FORMAT_CHAT) TRY(find_chat(job, &spec));
    if (job->tokens_known) {
        spec.tokenizer = &job->tokens;
        spec.tokenizer_name = job->tokenizer_name;
    }
    CLEANUP(dataset_freep) Dataset *data = NULL;
    Status status = dataset_open(&data, &spec);
    if (!status) {
        TRY(dataset_check_counted(data, spec.paths));
        if (!(part.last > 0)) TRY(print_text(job, paths[0], data));
        if (!(part.last > 0)) TRY(print_warning(job, paths[0], data));
        return MOVE(ret_data, data);
    }
    if (!dir || status_exit_code(status) == STATUS_USAGE || status_kind(status) == STATUS_REFUSED)
        return status;
    return status_wrap(status, "%s, tokenized earlier (remove %s to tokenize it again)", paths[0], dir);
}

Status job_val_token_files(const char *const *paths, int count, TokenFileList *list) {
    for (int i = 0; i < count; i++)
        if (path_is_dir(paths[i])) TRY(token_file_list_dir(list, paths[i], "val"));
    return OK;
}
