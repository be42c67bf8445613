/* One table of signatures, of which the first that matches counts: formats inside a common container (zip)
 * come before the container. */
#include "data/signature.h"

#include <string.h>

#include "tokenizer/tokenizer.h"

#define UNPACK      "unpack it first"
#define DECOMPRESS  "decompress it first"
#define EXTRACT     "extract its text first"
#define CONVERT     "convert it to text or JSON lines first"
#define TO_UTF8     "convert it to UTF-8 (iconv -f " /* ends with the encoding and a parenthesis */
#define WEIGHTS     "pass text or token ids"
#define OTHER       "pass text or token ids"
#define BYTES(text) sizeof(text) - 1, text

/* clang-format off */
static const Signature table[] = {
    {"text in UTF-32", TO_UTF8 "UTF-32 -t UTF-8)", 0, BYTES("\xff\xfe\0\0"), NULL},
    {"text in UTF-32", TO_UTF8 "UTF-32 -t UTF-8)", 0, BYTES("\0\0\xfe\xff"), NULL},
    {"text in UTF-16", TO_UTF8 "UTF-16 -t UTF-8)", 0, BYTES("\xff\xfe"), NULL},
    {"text in UTF-16", TO_UTF8 "UTF-16 -t UTF-8)", 0, BYTES("\xfe\xff"), NULL},
    {"compressed with gzip", DECOMPRESS, 0, BYTES("\x1f\x8b\x08"), NULL},
    {"compressed with compress", DECOMPRESS, 0, BYTES("\x1f\x9d"), NULL},
    {"compressed with bzip2", DECOMPRESS, 0, BYTES("BZh"), "1AY&SY"},
    {"compressed with xz", DECOMPRESS, 0, BYTES("\xfd" "7zXZ\0"), NULL},
    {"compressed with zstd", DECOMPRESS, 0, BYTES("\x28\xb5\x2f\xfd"), NULL},
    {"compressed with lz4", DECOMPRESS, 0, BYTES("\x04\x22\x4d\x18"), NULL},
    {"compressed with lzma", DECOMPRESS, 0, BYTES("]\0\0"), NULL},
    {"compressed with lzip", DECOMPRESS, 0, BYTES("LZIP\1"), NULL},
    {"compressed with snappy", DECOMPRESS, 0, BYTES("\xff\6\0\0sNaPpY"), NULL},
    {"a tar archive", UNPACK, 257, BYTES("ustar"), NULL},
    {"a 7z archive", UNPACK, 0, BYTES("7z\xbc\xaf\x27\x1c"), NULL},
    {"a rar archive", UNPACK, 0, BYTES("Rar!\x1a\x07"), NULL},
    {"a PyTorch checkpoint", OTHER, 0, BYTES("PK\3\4"), "/data.pkl"},
    {"a file of NumPy arrays", CONVERT, 0, BYTES("PK\3\4"), ".npy"},
    {"an Office document", EXTRACT, 0, BYTES("PK\3\4"), "[Content_Types].xml"},
    {"an Office document", EXTRACT, 30, BYTES("docProps/"), "PK\3\4"},
    {"an OpenDocument or EPUB file", EXTRACT, 30, BYTES("mimetype"), "PK\3\4"},
    {"a zip archive", UNPACK, 0, BYTES("PK\3\4"), NULL},
    {"a zip archive", UNPACK, 0, BYTES("PK\5\6"), NULL},
    {"an Office document", EXTRACT, 0, BYTES("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), NULL},
    {"a PDF document", EXTRACT, 0, BYTES("%PDF-"), NULL},
    {"an RTF document", EXTRACT, 0, BYTES("{\\rtf"), NULL},
    {"a Parquet table", CONVERT, 0, BYTES("PAR1"), NULL},
    {"an Arrow table", CONVERT, 0, BYTES("ARROW1\0\0"), NULL},
    {"an Arrow stream", CONVERT, 0, BYTES("\xff\xff\xff\xff"), NULL},
    {"a Feather table", CONVERT, 0, BYTES("FEA1"), NULL},
    {"an Avro file", CONVERT, 0, BYTES("Obj\1"), NULL},
    {"an HDF5 file", CONVERT, 0, BYTES("\x89HDF\r\n\x1a\n"), NULL},
    {"an SQLite database", CONVERT, 0, BYTES("SQLite format 3\0"), NULL},
    {"a NumPy array", CONVERT, 0, BYTES("\x93NUMPY"), NULL},
    {"a GGUF model", OTHER, 0, BYTES("GGUF"), NULL},
    {"a safetensors file", OTHER, 4, BYTES("\0\0\0\0{\""), NULL},
    {"a PyTorch checkpoint", OTHER, 0, BYTES("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20"), NULL},
    {"a Python pickle", CONVERT, 0, BYTES("\x80\2"), NULL},
    {"a Python pickle", CONVERT, 0, BYTES("\x80\3"), NULL},
    {"a Python pickle", CONVERT, 0, BYTES("\x80\4\x95"), NULL},
    {"a Python pickle", CONVERT, 0, BYTES("\x80\5\x95"), NULL},
    {"a Python pickle", CONVERT, 0, BYTES("(dp0\n"), NULL},
    {"a Python pickle", CONVERT, 0, BYTES("(lp0\n"), NULL},
    {"a Python pickle", CONVERT, 0, BYTES("ccopy_reg\n_reconstructor\n"), NULL},
    {"a Python pickle", CONVERT, 0, BYTES("}q\0"), NULL},
    {"a Python pickle", CONVERT, 0, BYTES("]q\0"), NULL},
    {"a token file of weft prepare", "its name must end in .tokens", 0, BYTES("weftTOK\n"), NULL},
    {"a PNG image", OTHER, 0, BYTES("\x89PNG\r\n\x1a\n"), NULL},
    {"a JPEG image", OTHER, 0, BYTES("\xff\xd8\xff"), NULL},
    {"a GIF image", OTHER, 0, BYTES("GIF87a"), NULL},
    {"a GIF image", OTHER, 0, BYTES("GIF89a"), NULL},
    {"a WebP image", OTHER, 8, BYTES("WEBPVP8"), "RIFF"},
    {"a TIFF image", OTHER, 0, BYTES("II*\0"), NULL},
    {"a TIFF image", OTHER, 0, BYTES("MM\0*"), NULL},
    {"a WAV recording", OTHER, 8, BYTES("WAVEfmt"), "RIFF"},
    {"an Ogg file", OTHER, 0, BYTES("OggS\0"), NULL},
    {"a FLAC recording", OTHER, 0, BYTES("fLaC\0"), NULL},
    {"an MP3 recording", OTHER, 0, BYTES("ID3\3"), NULL},
    {"an MP3 recording", OTHER, 0, BYTES("ID3\4"), NULL},
    {"an MP4 file", OTHER, 0, BYTES("\0\0\0"), "ftyp"},
    {"an executable", OTHER, 0, BYTES("\x7f" "ELF"), NULL},
    {"an executable", OTHER, 0, BYTES("\0asm\1\0\0\0"), NULL},
};
/* clang-format on */

/* Without a byte-order mark, UTF-16 shows in English text, where every other byte is zero. In other scripts
 * only spaces, digits and line ends are such, and the text is not valid UTF-8. */
static const Signature utf16_le = {"text in UTF-16", TO_UTF8 "UTF-16LE -t UTF-8)", 0, 0, "", NULL};
static const Signature utf16_be = {"text in UTF-16", TO_UTF8 "UTF-16BE -t UTF-8)", 0, 0, "", NULL};

static const Signature *find_utf16(const unsigned char *start, size_t size) {
    enum { LEAST = 16, INVALID = 16 };
    size_t zeros[2] = {0};
    size &= ~(size_t)1;
    for (size_t i = 0; i < size; i++) zeros[i % 2] += start[i] == 0;
    if (size < LEAST || (zeros[0] && zeros[1])) return NULL;
    size_t most = zeros[0] + zeros[1], first;
    bool wide = most == size / 2 ||
                (most > 1 && text_invalid_utf8((const char *)start, size, &first) >= (int64_t)size / INVALID);
    return !wide ? NULL : zeros[1] ? &utf16_le : &utf16_be;
}

static bool matches(const Signature *row, const void *start, size_t size) {
    if (size < row->at + row->size || memcmp((const char *)start + row->at, row->magic, row->size))
        return false;
    return !row->inside || memmem(start, size, row->inside, strlen(row->inside));
}

const Signature *signature_find(const void *start, size_t size) {
    if (size > SIGNATURE_START) size = SIGNATURE_START;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (matches(&table[i], start, size)) return &table[i];
    return find_utf16(start, size);
}

static Status refuse(const char *path, const Signature *found, bool or_bytes) {
    return or_bytes ? FAILED("%s is %s; %s, or read it as plain bytes with {format} bytes", path, found->name,
                             found->advice)
                    : FAILED("%s is %s; %s", path, found->name, found->advice);
}

Status signature_check_text(const char *path, const void *start, size_t size, bool or_bytes) {
    const Signature *found = signature_find(start, size);
    return found ? refuse(path, found, or_bytes) : OK;
}

Status signature_check_ids(const char *path, const void *start, size_t size) {
    const Signature *found = signature_find(start, size);
    return found && found->size >= SIGNATURE_LONG ? refuse(path, found, true) : OK;
}
