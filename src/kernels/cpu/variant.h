/* What the files compiled once per instruction set share: the suffix of their symbols, the split of work
 * over threads, and the list of what each file puts into the table.
 *
 * cmake/KernelVariants.cmake compiles these files again with WEFT_ISA set to avx2 and avx512 on x86-64, to
 * neon_bf16 on aarch64; backend.c chooses at run time. Everything but the functions declared here is static,
 * so no code compiled for a newer machine is ever shared with an older one.
 */
#ifndef WEFT_KERNELS_CPU_VARIANT_H
#define WEFT_KERNELS_CPU_VARIANT_H

#include <omp.h>

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

/* Each replaces the slots that its file implements; table_override calls them all. */
void VARIANT(table_override)(KernelTable *table);
void VARIANT(act_override)(KernelTable *table);
void VARIANT(attention_backward_override)(KernelTable *table);
void VARIANT(attention_decode_override)(KernelTable *table);
void VARIANT(attention_forward_override)(KernelTable *table);
void VARIANT(dropout_override)(KernelTable *table);
void VARIANT(elementwise_override)(KernelTable *table);
void VARIANT(embedding_override)(KernelTable *table);
void VARIANT(layernorm_override)(KernelTable *table);
void VARIANT(linear_override)(KernelTable *table);
void VARIANT(linear_int8_override)(KernelTable *table);
void VARIANT(linear_sparse_override)(KernelTable *table);
void VARIANT(optim_override)(KernelTable *table);
void VARIANT(round_override)(KernelTable *table);
void VARIANT(rows_override)(KernelTable *table);
void VARIANT(xent_override)(KernelTable *table);

/* A product of so many rows, as generation has them, is summed up in a way that does not depend on how many
 * there are: a sequence gets the same bits alone and in a batch. */
enum { FEW_ROWS = 64 };

/* Part of a count: [from, to). */
typedef struct Range {
    int64_t from, to;
} Range;

/* Part `part` of `parts` of [0, count), cut at multiples of `unit`. */
static inline Range range_part(int64_t count, int64_t unit, int part, int parts) {
    int64_t units = (count + unit - 1) / unit;
    int64_t from = units * part / parts * unit, to = units * (part + 1) / parts * unit;
    return (Range){from < count ? from : count, to < count ? to : count};
}

/* The calling thread's part. Fixed for a number of threads, so that sums are too. */
static inline Range range_mine(int64_t count, int64_t unit) {
    return range_part(count, unit, omp_get_thread_num(), omp_get_num_threads());
}

/* All of the device's threads for work of so many elements, or one where waking them costs more than
 * they bring. Nothing between: a pool that changes its size makes threads anew. */
static inline int threads_for(const Stream *stream, int64_t elements) {
    return elements < 8192 ? 1 : stream->device->threads;
}

#endif
