/* AMX's tiles, for the kernels that multiply by them, each in its own type. */
#ifndef WEFT_KERNELS_CPU_AMX_H
#define WEFT_KERNELS_CPU_AMX_H

#include <stdbool.h>
#include <stdint.h>

/* Bits of CPUID's leaf 7: what tiles can hold. */
enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };

/* Whether this process may use tiles, and the machine has the products of `type`. */
bool amx_has(uint32_t type);

/* What LDTILECFG reads: the shape of each tile. */
typedef struct TileConfig {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TileConfig;

/* Eight tiles of 16 rows of 64 bytes. */
#define TILE_CONFIG_WHOLE                                                                                    \
    { .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}, }

#endif
