/* In a CRC a byte sequence is a polynomial over two elements, modulo the Castagnoli polynomial; bit 31 of a
 * CRC is the coefficient of x^0. Appending n bytes multiplies by x^(8n). */
#include "base/crc32c.h"

#include <stdbool.h>
#include <string.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#elif defined(__x86_64__)
#include <nmmintrin.h>
#endif

enum { BITS = 32 };

static const uint32_t polynomial = 0x82f63b78;

/* One byte at a time, without a table: only for CPUs without the instruction. */
static uint32_t update_plain(uint32_t crc, const unsigned char *at, size_t size) {
    for (; size > 0; size--) {
        crc ^= *at++;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (polynomial & -(crc & 1));
    }
    return crc;
}

#if defined(__aarch64__)

static bool has_instruction(void) {
    return getauxval(AT_HWCAP) & HWCAP_CRC32;
}

/* Assembly, because clang 14 declares the intrinsics only if the whole file may use them. */
static uint32_t update_fast(uint32_t crc, const unsigned char *at, size_t size) {
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    }
    for (; size > 0; size--)
        __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)*at++));
    return crc;
}

#elif defined(__x86_64__)

static bool has_instruction(void) {
    return __builtin_cpu_supports("sse4.2");
}

__attribute__((target("sse4.2"))) static uint32_t update_fast(uint32_t crc, const unsigned char *at,
                                                              size_t size) {
    uint64_t wide = crc;
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size > 0; size--) crc = _mm_crc32_u8(crc, *at++);
    return crc;
}

#else

static bool has_instruction(void) {
    return false;
}

static uint32_t update_fast(uint32_t crc, const unsigned char *at, size_t size) {
    return update_plain(crc, at, size);
}

#endif

uint32_t crc32c(uint32_t before, const void *data, size_t size) {
    return ~(has_instruction() ? update_fast(~before, data, size) : update_plain(~before, data, size));
}

static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int bit = BITS - 1; bit >= 0; bit--) {
        product ^= b & -(a >> bit & 1);
        b = b >> 1 ^ (polynomial & -(b & 1)); /* b times x */
    }
    return product;
}

uint32_t crc32c_part(uint32_t part, uint64_t after) {
    uint32_t power = 1u << (BITS - 1 - 8); /* x^8 */
    for (; after > 0; after >>= 1) {
        if (after & 1) part = multiply(part, power);
        power = multiply(power, power);
    }
    return part;
}
