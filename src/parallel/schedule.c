#include "parallel/schedule.h"

#include "base/memory.h"

Status schedule_single(Schedule *ret_schedule, int micros) {
    Schedule schedule = {.in_flight = 1};
    TRY(mem_new((size_t)micros * 2, sizeof *schedule.action, &schedule.action));
    for (int micro = 0; micro < micros; micro++) {
        schedule.action[schedule.count++] = (Action){ACTION_FORWARD, micro};
        schedule.action[schedule.count++] = (Action){ACTION_BACKWARD, micro};
    }
    *ret_schedule = schedule;
    return OK;
}

void schedule_done(Schedule *schedule) {
    free(schedule->action);
    *schedule = (Schedule){0};
}
