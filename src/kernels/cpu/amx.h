/* AMX tiles, for the micro-kernels that use them. */
#ifndef WEFT_KERNELS_CPU_AMX_H
#define WEFT_KERNELS_CPU_AMX_H

#include <stdbool.h>
#include <stdint.h>

/* Feature bits of CPUID leaf 7. */
enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };

/* Whether the CPU has tile multiplication for `type` and the OS lets this process use it. Requests
 * permission from Linux if necessary. */
bool amx_has(uint32_t type);

/* The operand of LDTILECFG: the shape of each tile. */
typedef struct TileConfig {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TileConfig;

/* Eight full tiles: 16 rows of 64 bytes. */
#define TILE_CONFIG_FULL                                                                                     \
    { .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}, }

#endif
