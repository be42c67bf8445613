/* Random projections, element by element. */
#include "kernels/ref/ref.h"

Status sketch_ref(Stream *stream, Tensor totals, Tensor x, SketchMap map) {
    (void)stream;
    int64_t size = tensor_count(totals), words = size / SKETCH_WORD;
    for (int64_t i = 0; i < tensor_count(x); i++) {
        int64_t at = i / map.run * map.group + map.start + i % map.run, word = at / SKETCH_WORD;
        int64_t to = (word ^ sketch_round(map.key, word / words)) & (words - 1);
        bool negative = (sketch_signs(map.key, word) >> (at % SKETCH_WORD) & 1) != map.subtract;
        double value = (double)tensor_f32(x)[i];
        ((double *)totals.data)[to * SKETCH_WORD + at % SKETCH_WORD] += negative ? -value : value;
    }
    return OK;
}
