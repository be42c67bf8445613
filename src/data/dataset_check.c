/* Checks of a DataSpec, before anything is read. */
#include "base/memory.h"
#include "base/setting.h"
#include "data/task.h"
#include "model/head.h"

bool format_is_examples(DataFormat format) {
    return format == FORMAT_PAIRS || format == FORMAT_CORNELL || format == FORMAT_RECORDS;
}

/* A format that only some tasks can use. */
static Status check_format(const DataSpec *spec, DataFormat format) {
    bool records = format == FORMAT_RECORDS, known = task_data(spec->task)->formats & FORMAT_BIT(format);
    bool rows = records || format == FORMAT_IDS;
    if (spec->unlabeled && !rows)
        return USAGE(
            "%s is read as %s, but predictions are made for rows: lines of text, .csv, .tsv or .jsonl",
            spec->paths[0], data_format_name(format));
    if (spec->unlabeled) return spec->encoder || !records ? OK : FAILED("internal: text without a tokenizer");
    if (format == FORMAT_SQUAD && !known)
        return USAGE("%s is read as SQuAD questions, which require {task} squad (see {task}, or {format} to "
                     "read the file differently)",
                     spec->paths[0]);
    if (format == FORMAT_CHAT && !known)
        return USAGE("%s is read as conversations, which require {task} lm and a model of any family but "
                     "BERT (see also "
                     "{format})",
                     spec->paths[0]);
    if (format_is_examples(format) && !known)
        return USAGE("%s is read as %s, which require BERT and {task} %s (see also {format})", spec->paths[0],
                     records ? "labeled records" : "pairs of sentences", records ? "classify" : "mlm");
    if (!spec->encoder && (format == FORMAT_SQUAD || format == FORMAT_CHAT || format_is_examples(format)))
        return FAILED("internal: text data without a tokenizer");
    return OK;
}

/* Records are arranged by the tokenizer's post-processor. */
static Status check_records(const DataSpec *spec) {
    bool pair = spec->pair_field != NULL;
    const TokenTemplate *tpl = tokenizer_template(spec->encoder, pair);
    int64_t minimum = token_template_special(tpl) + 1 + pair;
    TRY(token_template_check_once(tpl, pair));
    TRY(token_template_check_types(tpl, spec->types));
    if (spec->seq < minimum)
        return USAGE("the sequence length is %lld; expected at least %lld", (long long)spec->seq,
                     (long long)minimum);
    return OK;
}

static Status check_pairs(const DataSpec *spec) {
    const SpecialTokens *special = &spec->special;
    if (special->cls < 0 || special->sep < 0 || special->cls >= spec->vocab || special->sep >= spec->vocab)
        return USAGE("the vocabulary lacks [CLS] or [SEP], which begin and end BERT's sequences");
    if (spec->types == 1) return USAGE("text pairs need 2 token types, but the model has 1");
    if (spec->seq < 5) return USAGE("the sequence length is %lld; expected at least 5", (long long)spec->seq);
    return OK;
}

Status dataset_check_task(const DataSpec *spec, DataFormat format) {
    const TaskData *task = task_data(spec->task);
    if (!task->needs || task->formats & FORMAT_BIT(format)) return OK;
    return USAGE("%s is read as %s, but {task} %s needs %s or examples as JSON lines ({format} ids)",
                 spec->paths[0], data_format_name(format), task_names[spec->task], task->needs);
}

static Status check_special(const DataSpec *spec, const char *name, int32_t token) {
    if (token >= spec->vocab)
        return USAGE("the %s token is %d, outside the vocabulary of %lld tokens", name, token,
                     (long long)spec->vocab);
    return OK;
}

static Status check_part(const DataSpec *spec, DataFormat format) {
    const DataPart *part = &spec->part;
    double kept = part->first > 0 ? part->first : part->last;
    if (!(part->fraction >= 0 && part->fraction <= 1))
        return USAGE("{data-fraction} %g: expected a number above 0 and up to 1", part->fraction);
    if (!(kept >= 0 && kept <= 1) || (part->first > 0 && part->last > 0))
        return USAGE("the fraction of the data to use is %g; expected 0 to 1 and from one end only", kept);
    if (!part->stride) return OK;
    if (!task_data(spec->task)->windows || !(FORMATS_STREAM & FORMAT_BIT(format)))
        return USAGE("{stride} is for text and language models, not for {task} %s on %s",
                     task_names[spec->task], data_format_name(format));
    if (part->stride < 0 || part->stride > spec->seq)
        return USAGE("{stride} %lld: expected 1 to %lld, the sequence length", (long long)part->stride,
                     (long long)spec->seq);
    return OK;
}

Status dataset_check(const DataSpec *spec, DataFormat format) {
    const TaskData *task = task_data(spec->task);
    TRY(check_format(spec, format));
    if (format == FORMAT_RECORDS) TRY(check_records(spec));
    if (format == FORMAT_PAIRS || format == FORMAT_CORNELL) TRY(check_pairs(spec));
    if (format == FORMAT_TEXT) return FAILED("internal: text data that was not prepared");
    if (spec->seq < 1 || spec->seq > INT32_MAX)
        return USAGE("the sequence length is %lld; expected at least 1", (long long)spec->seq);
    if (spec->vocab < 1 || spec->vocab > INT32_MAX)
        return USAGE("the vocabulary size is %lld; expected 1 to %d", (long long)spec->vocab, INT32_MAX);
    if (!spec->unlabeled) TRY(dataset_check_task(spec, format));
    TRY(check_part(spec, format));
    TRY(check_special(spec, "padding", spec->special.pad));
    TRY(check_special(spec, "start ([CLS])", spec->special.cls));
    TRY(check_special(spec, "separator ([SEP])", spec->special.sep));
    TRY(check_special(spec, "mask ([MASK])", spec->special.mask));
    return task->check && !spec->unlabeled ? task->check(spec, format) : OK;
}

/* "text.txt", or "text.txt and 3 more". */
static Status describe_files(const DataSpec *spec, char **ret_text) {
    const char *const *names = spec->sources ? spec->sources : spec->paths;
    int count = spec->sources ? spec->source_count : spec->path_count;
    if (count == 1) return str_dup(names[0], ret_text);
    return str_format(ret_text, "%s and %d more", names[0], count - 1);
}

Status too_little_data(const DataSpec *spec, const char *unit, int64_t have, int64_t all, int64_t need) {
    CLEANUP(mem_freep) char *files = NULL;
    CLEANUP(mem_freep) char *of_total = NULL;
    TRY(describe_files(spec, &files));
    TRY(str_format(&of_total, " of %lld", (long long)all));
    return REFUSED("%s: too little data: %lld%s %s; expected at least %lld", files, (long long)have,
                   have < all ? of_total : "", unit, (long long)need);
}

Status too_few_tokens(const DataSpec *spec, int64_t have, int64_t all, int64_t need) {
    CLEANUP(status_freep) Status status = too_little_data(spec, "tokens", have, all, need);
    char smaller[32];
    setting_print(smaller, sizeof smaller, "a smaller {seq} or ");
    return REFUSED("%s for a sequence length of %lld; use %smore data", status_message(status),
                   (long long)spec->seq, spec->fixed_seq ? "" : smaller);
}
