/* Epoch boundaries follow from the step number alone, so a resumed run needs no more than the sums of the
 * epoch in progress. */
#include "train/epoch.h"

#include <math.h>

void epochs_done(Epochs *epochs) {
    json_decref(epochs->done);
}

/* Epochs completed after `step`. */
static int64_t completed(const Epochs *epochs, int64_t step) {
    return step * epochs->batch / epochs->samples;
}

int64_t epochs_at(const Epochs *epochs, int64_t step) {
    return step > 0 ? completed(epochs, step - 1) + 1 : 0;
}

bool epochs_end(const Epochs *epochs, int64_t step) {
    return step > 0 && completed(epochs, step) > completed(epochs, step - 1);
}

bool epochs_due(const Epochs *epochs, int64_t every, int64_t step) {
    if (every == EVERY_EPOCH) return epochs_end(epochs, step);
    return every > 0 && step % every == 0;
}

void epochs_add(Epochs *epochs, double loss, double seconds) {
    epochs->steps++;
    epochs->loss += loss;
    epochs->seconds += seconds;
}

Status epochs_finish(Epochs *epochs, int64_t step, json_t **ret_epoch) {
    json_t *epoch = json_pack("{s:I, s:I, s:I, s:f, s:f}", "epoch", (json_int_t)completed(epochs, step),
                              "step", (json_int_t)step, "steps", (json_int_t)epochs->steps, "seconds",
                              epochs->seconds, "loss", epochs->loss / (double)epochs->steps);
    if (!epochs->done) epochs->done = json_array();
    if (!epoch || json_array_append_new(epochs->done, epoch) != 0) return FAILED("out of memory");
    if (json_array_size(epochs->done) > EPOCHS_LISTED) json_array_remove(epochs->done, 0);
    epochs->steps = 0;
    epochs->loss = epochs->seconds = 0;
    *ret_epoch = epoch;
    return OK;
}

Status epochs_save(const Epochs *epochs, json_t **ret_json) {
    *ret_json = json_pack("{s:I, s:f, s:f, s:O?}", "steps", (json_int_t)epochs->steps, "loss", epochs->loss,
                          "seconds", epochs->seconds, "done", epochs->done);
    return *ret_json ? OK : FAILED("out of memory");
}

void epochs_restore(Epochs *epochs, const json_t *json) {
    json_t *done = json_object_get(json, "done");
    epochs->steps = json_int_at(json, "steps");
    epochs->loss = json_number_at(json, "loss");
    epochs->seconds = json_number_at(json, "seconds");
    json_decref(epochs->done);
    epochs->done = json_is_array(done) ? json_clone_deep(done) : NULL;
}
