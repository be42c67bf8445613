/* Softmax cross-entropy in two steps: between them, ranks that have different parts of the vocabulary
 * combine their statistics. Padding columns count as -infinity: they do not contribute to the sum and have
 * gradient 0. */
#include <math.h>

#include "kernels/ref/ref.h"

Status xent_partial_ref(Stream *stream, Tensor stats, Tensor logits, Tensor labels, VocabPart part) {
    (void)stream;
    int64_t V = tensor_cols(logits), real = vocab_columns(part, V);
    for (int64_t m = 0; m < tensor_rows(logits); m++) {
        double largest = -INFINITY, total = 0;
        for (int64_t v = 0; v < real; v++) {
            double logit = tensor_get(logits, m * V + v);
            largest = logit > largest ? logit : largest;
        }
        for (int64_t v = 0; v < real; v++) total += exp(tensor_get(logits, m * V + v) - largest);
        int64_t label = vocab_row(part, V, tensor_i32(labels)[m]);
        float *stat = tensor_f32(stats) + m * 3;
        stat[0] = (float)largest;
        stat[1] = (float)total;
        stat[2] = label < 0 ? 0 : (float)tensor_get(logits, m * V + label);
    }
    return OK;
}

Status xent_combine_ref(Stream *stream, Tensor stats, Tensor parts) {
    (void)stream;
    int64_t ranks = parts.dim[0], M = tensor_rows(stats);
    for (int64_t m = 0; m < M; m++) {
        const float *part = tensor_f32(parts) + m * 3;
        float largest = -INFINITY, label = 0;
        double total = 0;
        for (int64_t r = 0; r < ranks; r++) largest = fmaxf(largest, part[r * M * 3]);
        for (int64_t r = 0; r < ranks; r++) {
            const float *rank_part = part + r * M * 3;
            if (rank_part[1] != 0) total += rank_part[1] * exp((double)rank_part[0] - largest);
            label += rank_part[2];
        }
        float *stat = tensor_f32(stats) + m * 3;
        stat[0] = largest;
        stat[1] = (float)total;
        stat[2] = label;
    }
    return OK;
}

Status xent_finish_ref(Stream *stream, Tensor losses, Tensor logits, Tensor stats, Tensor labels,
                       VocabPart part, float scale, bool gradient) {
    (void)stream;
    int64_t V = tensor_cols(logits), real = vocab_columns(part, V);
    for (int64_t m = 0; m < tensor_rows(logits); m++) {
        const float *stat = tensor_f32(stats) + m * 3;
        bool counted = tensor_i32(labels)[m] >= 0 && tensor_i32(labels)[m] < part.valid;
        int64_t label = vocab_row(part, V, tensor_i32(labels)[m]);
        tensor_f32(losses)[m] = counted ? (float)(log(stat[1]) + stat[0] - stat[2]) : 0;
        for (int64_t v = 0; gradient && v < V; v++) {
            double softmax = v < real ? exp(tensor_get(logits, m * V + v) - stat[0]) / stat[1] : 0;
            tensor_put(logits, m * V + v, counted ? (softmax - (v == label)) * scale : 0);
        }
    }
    return OK;
}

Status xent_loss_ref(Stream *stream, Tensor losses, Tensor stats, Tensor logits, Tensor labels,
                     VocabPart part, float scale, bool gradient) {
    TRY(xent_partial_ref(stream, stats, logits, labels, part));
    return xent_finish_ref(stream, losses, logits, stats, labels, part, scale, gradient);
}

Status xent_loss_fp8_ref(Stream *stream, Tensor losses, Tensor stats, Tensor logits, Tensor labels,
                         VocabPart part, float scale, Fp8Gradient gradient) {
    int64_t V = tensor_cols(logits), real = vocab_columns(part, V);
    float unit = tensor_f32(gradient.scale.scale)[0];
    TRY(xent_loss_ref(stream, losses, stats, logits, labels, part, scale, false));
    for (int64_t m = 0; m < tensor_rows(logits); m++) {
        const float *stat = tensor_f32(stats) + m * 3;
        bool counted = tensor_i32(labels)[m] >= 0 && tensor_i32(labels)[m] < part.valid;
        int64_t label = vocab_row(part, V, tensor_i32(labels)[m]);
        for (int64_t v = 0; v < V; v++) {
            double softmax = v < real ? exp(tensor_get(logits, m * V + v) - stat[0]) / stat[1] : 0;
            tensor_put(gradient.plain, m * V + v, counted ? (softmax - (v == label)) * scale / unit : 0);
        }
    }
    return OK;
}

Status xent_hits_ref(Stream *stream, Tensor hits, Tensor stats, Tensor labels, int64_t valid) {
    (void)stream;
    for (int64_t m = 0; m < tensor_rows(stats); m++) {
        const float *stat = tensor_f32(stats) + m * 3;
        int32_t label = tensor_i32(labels)[m];
        tensor_f32(hits)[m] = label >= 0 && label < valid && stat[2] >= stat[0];
    }
    return OK;
}
