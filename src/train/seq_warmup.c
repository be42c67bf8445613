#include "train/seq_warmup.h"

Status seq_warmup_init(SeqWarmup *ret_warmup, const TrainingSettings *training, const ModelConfig *config,
                       int64_t seq) {
    const int64_t parts = 8; /* of a sequence in the first step */
    *ret_warmup = (SeqWarmup){.seq = seq};
    if (!training->seq_warmup) return OK;
    if (!config_is_decoder(config) || !config_causal(config))
        return USAGE("{seq-warmup} is for language models that attend to earlier tokens only; %s attends in "
                     "both directions",
                     config->family->title);
    int64_t from = training->seq_warmup_from ? training->seq_warmup_from : seq < parts ? 1 : seq / parts;
    if (from > seq)
        return USAGE("{seq-warmup-from} %lld is longer than the sequences, which have %lld tokens",
                     (long long)from, (long long)seq);
    *ret_warmup = (SeqWarmup){.steps = training->seq_warmup, .from = from, .seq = seq};
    return OK;
}

int64_t seq_warmup_length(const SeqWarmup *warmup, int64_t step) {
    int64_t length = warmup->from, lengths = 0;
    if (step > warmup->steps) return warmup->seq;
    for (int64_t l = length; l < warmup->seq; l *= 2) lengths++;
    for (int64_t n = (step - 1) * lengths / warmup->steps; n > 0; n--) length *= 2;
    return length;
}
