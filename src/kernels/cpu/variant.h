/* What the files compiled once per instruction set share: the suffix of their symbols, the partitioning of
 * work across threads, and the functions that install each file's slots in the table.
 *
 * cmake/KernelVariants.cmake compiles these files again with WEFT_ISA set to avx2 and avx512 on x86-64, and
 * to neon_bf16 on aarch64; backend.c chooses at run time. Everything except the functions declared here is
 * static, so code compiled for a newer CPU is never linked into a path that runs on an older one. */
#ifndef WEFT_KERNELS_CPU_VARIANT_H
#define WEFT_KERNELS_CPU_VARIANT_H

#include <omp.h>

#include "device/pool.h"
#include "kernels/backend.h"

#ifndef WEFT_ISA
#if defined(__aarch64__)
#define WEFT_ISA neon
#elif defined(__x86_64__)
#define WEFT_ISA sse2
#else
#define WEFT_ISA plain
#endif
#endif

#define VARIANT_PASTE_(name, isa) name##_##isa
#define VARIANT_PASTE(name, isa)  VARIANT_PASTE_(name, isa)
#define VARIANT(name)             VARIANT_PASTE(name, WEFT_ISA)

/* The functions NAME_override, which install the slots of their file; table_override calls all of them. */
#define SLOTS(name) void VARIANT(name##_override)(KernelTable * table);
#include "kernels/cpu/slots.def"
void VARIANT(table_override)(KernelTable *table);

/* GEMMs with up to this many rows, as in generation, accumulate in an order that does not depend on the
 * number of rows, so a sequence gets the same bits alone and in a batch. */
enum { SKINNY_ROWS = 16 };

static inline int64_t min_of(int64_t a, int64_t b) {
    return a < b ? a : b;
}
/* How many parts of `each` cover `size`; the last part may be smaller. */
static inline int64_t parts_of(int64_t size, int64_t each) {
    return (size + each - 1) / each;
}
static inline int64_t round_up(int64_t value, int64_t unit) {
    return parts_of(value, unit) * unit;
}

/* A half-open interval [from, to). */
typedef struct Range {
    int64_t from, to;
} Range;

/* Part `part` of `parts` of [0, count), split at multiples of `unit`. */
static inline Range range_part(int64_t count, int64_t unit, int part, int parts) {
    int64_t units = (count + unit - 1) / unit;
    int64_t from = units * part / parts * unit, to = units * (part + 1) / parts * unit;
    return (Range){from < count ? from : count, to < count ? to : count};
}

/* The calling thread's part. */
static inline Range range_mine(int64_t count, int64_t unit) {
    return range_part(count, unit, omp_get_thread_num(), omp_get_num_threads());
}

/* The number of threads for work on this many elements: all of the device's, or one if waking them would
 * cost more than it saves. Never anything in between, because an OpenMP pool that changes size recreates
 * its threads. */
static inline int threads_for(const Stream *stream, int64_t elements) {
    return elements < 8192 ? 1 : stream->device->threads;
}

/* Kernels of training run as jobs of the device's pool, those of generation as OpenMP regions, which start
 * sooner. Both at a time would compete for the cores, so a pool is used for large amounts of work only. */
enum { POOL_ELEMENTS = 65536 };

static inline Pool *pool_for(const Stream *stream, int64_t elements) {
    return elements < POOL_ELEMENTS ? NULL : stream->device->pool;
}
/* The number of parts for this many elements: several per thread, because threads may progress at different
 * speeds. */
static inline int parts_for(const Stream *stream, int64_t elements) {
    return elements < POOL_ELEMENTS || stream->device->threads == 1 ? 1 : 4 * stream->device->threads;
}
/* The number of parts whose sums over rows of C elements are added in order. It does not depend on the number
 * of threads, and neither do the sums. */
static inline int sum_row_parts(int64_t rows, int64_t C) {
    int64_t each = C < 512 ? 16384 / C : 32;
    return (int)((rows + each - 1) / each);
}

/* Columns per task when these sums are added: few tasks, because each takes only a microsecond. */
enum { SUM_COLUMNS = 128 };

/* Work on any part of a range. */
typedef void RangeTask(const void *context, Range range);

typedef struct RangeJob {
    RangeTask *run;
    const void *context;
    int64_t count, unit;
    int parts;
} RangeJob;

static inline void range_task(const void *context, int64_t part, int thread) {
    (void)thread;
    const RangeJob *job = context;
    Range range = range_part(job->count, job->unit, (int)part, job->parts);
    if (range.to > range.from) job->run(job->context, range);
}

/* Runs the work over [0, count), split at multiples of `unit`. `elements` is the amount of work. */
static inline void ranges_run(const Stream *stream, int64_t count, int64_t unit, int64_t elements,
                              RangeTask *run, const void *context) {
    RangeJob job = {run, context, count, unit, parts_for(stream, elements)};
    pool_run(pool_for(stream, elements), job.parts, range_task, &job);
}

#endif
