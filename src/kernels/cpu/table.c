/* Installs all slots of one instruction set. */
#include "kernels/cpu/variant.h"

void VARIANT(table_override)(KernelTable *table) {
#define SLOTS(name) VARIANT(name##_override)(table);
#include "kernels/cpu/slots.def"
}
