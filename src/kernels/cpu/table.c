/* Installs all slots of one instruction set. */
#include "kernels/cpu/variant.h"

void VARIANT(table_override)(KernelTable *table) {
    VARIANT(act_override)(table);
    VARIANT(attention_backward_override)(table);
    VARIANT(attention_decode_override)(table);
    VARIANT(attention_forward_override)(table);
    VARIANT(dropout_override)(table);
    VARIANT(elementwise_override)(table);
    VARIANT(embedding_override)(table);
    VARIANT(layernorm_override)(table);
    VARIANT(linear_override)(table);
    VARIANT(linear_int8_override)(table);
    VARIANT(linear_sparse_override)(table);
    VARIANT(optim_override)(table);
    VARIANT(round_override)(table);
    VARIANT(rows_override)(table);
    VARIANT(sketch_override)(table);
    VARIANT(xent_override)(table);
}
