/* The pickle of a state dict has calls that rebuild tensors from parts of storages, and storages are objects
 * outside of it: members of the archive or, in the older format, blocks that follow the pickles. */
#include "checkpoint/torch_read.h"

#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "checkpoint/pickle.h"

#define REBUILD   "torch._utils _rebuild_tensor_v2"
#define PARAMETER "torch._utils _rebuild_parameter"

static const struct {
    const char *global, *type;
    DType dtype;
    size_t size;
} storages[] = {
    {"torch FloatStorage", "F32", DT_F32, 4},      {"torch HalfStorage", "F16", DT_F16, 2},
    {"torch BFloat16Storage", "BF16", DT_BF16, 2}, {"torch DoubleStorage", "F64", DT_F64, 8},
    {"torch LongStorage", "I64", DT_I64, 8},       {"torch IntStorage", "I32", DT_I32, 4},
    {"torch ShortStorage", "I16", DT_COUNT, 2},    {"torch CharStorage", "I8", DT_I8, 1},
    {"torch ByteStorage", "U8", DT_U8, 1},         {"torch BoolStorage", "BOOL", DT_COUNT, 1},
};
enum { STORAGES = sizeof storages / sizeof *storages };

static const char *const allowed[] = {
    "torch FloatStorage",
    "torch HalfStorage",
    "torch BFloat16Storage",
    "torch DoubleStorage",
    "torch LongStorage",
    "torch IntStorage",
    "torch ShortStorage",
    "torch CharStorage",
    "torch ByteStorage",
    "torch BoolStorage",
    REBUILD,
    PARAMETER,
    "collections OrderedDict",
    NULL,
};

/* Memory with the values of tensors. */
typedef struct Storage {
    const char *key; /* not terminated */
    size_t key_size;
    int type; /* row of `storages` */
    int64_t count;
    const unsigned char *data; /* NULL: not found yet */
} Storage;

typedef struct Torch {
    const char *path;
    FileMap map;
    TorchZip zip;
    Pickle pickle;
    Storage *storage; /* sorted by key */
    size_t storages, storage_capacity;
    SafeTensor *tensor;
    size_t count, capacity;
} Torch;

static void torch_done(Torch *torch) {
    for (size_t i = 0; torch->tensor && i < torch->count; i++) free((char *)(uintptr_t)torch->tensor[i].name);
    free(torch->tensor);
    free(torch->storage);
    pickle_done(&torch->pickle);
    torch_zip_done(&torch->zip);
    file_map_done(&torch->map);
}

static Status damaged(const Torch *torch, const char *what) {
    return DAMAGED("%s: not a valid PyTorch file: %s", torch->path, what);
}

/* ---- storages ---- */

static int by_key(const void *a, const void *b) {
    const Storage *x = a, *y = b;
    int order = memcmp(x->key, y->key, x->key_size < y->key_size ? x->key_size : y->key_size);
    return order ? order : x->key_size < y->key_size ? -1 : x->key_size > y->key_size;
}

static Storage *find_storage(const Torch *torch, const PickleValue *key) {
    Storage wanted = {.key = key->text, .key_size = key->size};
    if (!torch->storages) return NULL;
    return bsearch(&wanted, torch->storage, torch->storages, sizeof *torch->storage, by_key);
}

/* The id of a storage: ("storage", its class, key, device, number of values), in the older format with a
 * view. */
static Status add_storage(Torch *torch, const PickleValue *object) {
    const Pickle *p = &torch->pickle;
    const PickleValue *id = pickle_item(p, object, 0), *key = pickle_item(p, id, 2),
                      *count = pickle_item(p, id, 4);
    const PickleValue *view = pickle_item(p, id, 5);
    int type = 0;
    while (type < STORAGES && !pickle_is(pickle_item(p, id, 1), storages[type].global)) type++;
    if (!pickle_is(pickle_item(p, id, 0), "storage") || type == STORAGES || !key ||
        key->kind != PICKLE_TEXT || !count || count->kind != PICKLE_INT || count->integer < 0 ||
        count->integer > INT64_MAX / 8)
        return damaged(torch, "an object is not a storage");
    if (view && view->kind != PICKLE_NONE)
        return FAILED("%s: its storages are parts of others, which weft does not read", torch->path);
    TRY(mem_grow(&torch->storage, &torch->storage_capacity, torch->storages + 1, sizeof *torch->storage));
    torch->storage[torch->storages++] =
        (Storage){.key = key->text, .key_size = key->size, .type = type, .count = count->integer};
    return OK;
}

static Status list_storages(Torch *torch) {
    for (size_t i = 0; i < torch->pickle.count; i++) {
        const PickleValue *value = pickle_at(&torch->pickle, (uint32_t)i);
        if (value->kind == PICKLE_PERSISTENT) TRY(add_storage(torch, value));
    }
    if (torch->storages) qsort(torch->storage, torch->storages, sizeof *torch->storage, by_key);
    size_t kept = 0; /* of equal keys, the first */
    for (size_t i = 0; i < torch->storages; i++) {
        Storage *one = &torch->storage[i], *last = kept ? &torch->storage[kept - 1] : NULL;
        if (last && !by_key(last, one)) {
            if (last->type != one->type || last->count != one->count)
                return damaged(torch, "a storage has two types or sizes");
            continue;
        }
        torch->storage[kept++] = *one;
    }
    torch->storages = kept;
    return OK;
}

static size_t storage_bytes(const Storage *storage) {
    return (size_t)storage->count * storages[storage->type].size;
}

/* ---- tensors ---- */

/* Values of a tensor whose elements are not in order; `layout` has its strides. */
static Status read_strided(const SafeTensor *tensor, int64_t first, int64_t count, float *ret_values) {
    size_t size = dtype_size(tensor->dtype);
    for (int64_t i = first; i < first + count; i++) {
        int64_t rest = i, at = 0;
        double value;
        for (int k = tensor->ndim - 1; k >= 0; k--) {
            at += rest % tensor->dim[k] * tensor->layout[k];
            rest /= tensor->dim[k];
        }
        memcpy(&value, tensor->data + (size_t)at * size, size);
        TRY(dtype_convert(ret_values++, DT_F32, &value, tensor->dtype, 1));
    }
    return OK;
}

/* Reads shape and strides. *ret_last is the offset of the tensor's last value from its first; -1: it is
 * empty. */
static Status read_shape(const Torch *torch, const PickleValue *dims, const PickleValue *strides,
                         SafeTensor *tensor, bool *ret_in_order, int64_t *ret_last) {
    int64_t count = 1, last = 0, usual = 1;
    bool empty = false, in_order = true;
    if (!dims || !strides || dims->kind != PICKLE_LIST || strides->kind != PICKLE_LIST ||
        dims->count != strides->count)
        return damaged(torch, "a tensor has no shape");
    if (dims->count > SAFE_DIMS) return FAILED("%s: a tensor has more than %d dims", torch->path, SAFE_DIMS);
    tensor->ndim = (int)dims->count;
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        const PickleValue *dim = pickle_item(&torch->pickle, dims, (size_t)i);
        const PickleValue *stride = pickle_item(&torch->pickle, strides, (size_t)i);
        if (dim->kind != PICKLE_INT || stride->kind != PICKLE_INT || dim->integer < 0 || stride->integer < 0)
            return damaged(torch, "a tensor has no shape");
        tensor->dim[i] = dim->integer;
        tensor->layout[i] = stride->integer;
        int64_t span = 0;
        empty = empty || dim->integer == 0;
        in_order = in_order && (dim->integer == 1 || stride->integer == usual);
        if (dim->integer && (__builtin_mul_overflow(dim->integer - 1, stride->integer, &span) ||
                             __builtin_add_overflow(last, span, &last) ||
                             __builtin_mul_overflow(count, dim->integer, &count) || count > INT64_MAX / 8))
            return damaged(torch, "a tensor is too large");
        usual = count;
    }
    tensor->bytes = empty ? 0 : (size_t)count; /* values, until the type is known */
    *ret_in_order = in_order || empty;
    *ret_last = empty ? -1 : last;
    return OK;
}

/* A call: (storage, offset, shape, strides ...). */
static Status read_tensor(const Torch *torch, const PickleValue *call, SafeTensor *ret_tensor) {
    const Pickle *p = &torch->pickle;
    const PickleValue *arguments = pickle_item(p, call, 1), *object = pickle_item(p, arguments, 0);
    const PickleValue *offset = pickle_item(p, arguments, 1);
    SafeTensor tensor = {0};
    bool in_order = false;
    int64_t last = 0;
    if (!object || object->kind != PICKLE_PERSISTENT || !offset || offset->kind != PICKLE_INT ||
        offset->integer < 0)
        return damaged(torch, "a tensor has no storage");
    const Storage *storage = find_storage(torch, pickle_item(p, pickle_item(p, object, 0), 2));
    TRY(read_shape(torch, pickle_item(p, arguments, 2), pickle_item(p, arguments, 3), &tensor, &in_order,
                   &last));
    if (last >= 0 && (offset->integer >= storage->count || last >= storage->count - offset->integer))
        return damaged(torch, "a tensor is outside of its storage");
    tensor.type = storages[storage->type].type;
    tensor.dtype = storages[storage->type].dtype;
    tensor.bytes *= storages[storage->type].size;
    tensor.data = storage->data + (last < 0 ? 0 : (size_t)offset->integer * storages[storage->type].size);
    if (!in_order) tensor.read = read_strided;
    *ret_tensor = tensor;
    return OK;
}

/* Adds a tensor under its name; other values do not count. */
static Status add_tensor(Torch *torch, const PickleValue *key, const PickleValue *value) {
    const Pickle *p = &torch->pickle;
    if (value->kind == PICKLE_CALL && pickle_is(pickle_item(p, value, 0), PARAMETER))
        value = pickle_item(p, pickle_item(p, value, 1), 0);
    if (!value || value->kind != PICKLE_CALL || !pickle_is(pickle_item(p, value, 0), REBUILD)) return OK;
    if (key->kind != PICKLE_TEXT || memchr(key->text, 0, key->size) || key->size > INT32_MAX)
        return damaged(torch, "a tensor has no name");
    SafeTensor tensor;
    char *name = NULL;
    TRY(read_tensor(torch, value, &tensor));
    TRY(mem_grow(&torch->tensor, &torch->capacity, torch->count + 1, sizeof *torch->tensor));
    TRY(str_format(&name, "%.*s", (int)key->size, key->text));
    tensor.name = name;
    torch->tensor[torch->count++] = tensor;
    return OK;
}

static Status add_tensors(Torch *torch, const PickleValue *dict) {
    for (size_t i = 0; dict && i + 1 < dict->count; i += 2)
        TRY(add_tensor(torch, pickle_item(&torch->pickle, dict, i),
                       pickle_item(&torch->pickle, dict, i + 1)));
    return OK;
}

/* The state dict is the object itself, or one of its members. */
static Status find_tensors(Torch *torch, uint32_t object) {
    static const char *const members[] = {"state_dict", "model", "module", NULL};
    const PickleValue *dict = pickle_at(&torch->pickle, object);
    if (dict->kind != PICKLE_DICT)
        return FAILED("%s: expected a state dict, found another object", torch->path);
    TRY(add_tensors(torch, dict));
    for (const char *const *name = members; *name && !torch->count; name++) {
        const PickleValue *member = pickle_find(&torch->pickle, dict, *name);
        if (member && member->kind == PICKLE_DICT) TRY(add_tensors(torch, member));
    }
    return torch->count ? OK : FAILED("%s: its state dict has no tensors", torch->path);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const SafeTensor *)a)->name, ((const SafeTensor *)b)->name);
}

static Status check_names(const Torch *torch) {
    char shown[NAME_TEXT];
    qsort(torch->tensor, torch->count, sizeof *torch->tensor, by_name);
    for (size_t i = 1; i < torch->count; i++)
        if (!by_name(&torch->tensor[i - 1], &torch->tensor[i]))
            return DAMAGED("%s: tensor '%s' occurs twice", torch->path,
                           name_text(shown, torch->tensor[i].name));
    return OK;
}

/* ---- files ---- */

static Status read_archive(Torch *torch) {
    TRY(torch_zip_open(&torch->zip, torch->path, torch->map.data, torch->map.size));
    const TorchMember *pickle = torch_zip_find(&torch->zip, "data.pkl", 8);
    const TorchMember *order = torch_zip_find(&torch->zip, "byteorder", 9);
    if (!pickle || !pickle->data) return damaged(torch, "it has no data.pkl");
    if (order && order->data && (order->size != 6 || memcmp(order->data, "little", 6)))
        return FAILED("%s: its values are big-endian, which weft does not read", torch->path);
    size_t at = 0;
    uint32_t object = 0;
    TRY(pickle_read(&torch->pickle, pickle->data, pickle->size, &at, &object));
    TRY(list_storages(torch));
    for (size_t i = 0; i < torch->storages; i++) {
        Storage *storage = &torch->storage[i];
        CLEANUP(mem_freep) char *name = NULL;
        if (storage->key_size > INT16_MAX) return damaged(torch, "a storage has no name");
        TRY(str_format(&name, "data/%.*s", (int)storage->key_size, storage->key));
        const TorchMember *member = torch_zip_find(&torch->zip, name, strlen(name));
        if (!member || !member->data || storage_bytes(storage) > member->size)
            return damaged(torch, "a storage is missing or too short");
        storage->data = member->data;
    }
    return find_tensors(torch, object);
}

static const unsigned char old_magic[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c, 0x46,
                                          0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

/* The older format: a magic number, a version, a description of the machine, the object and the keys of
 * storages, each a pickle; then the storages, each after its number of values. */
static Status read_old(Torch *torch) {
    const unsigned char *data = torch->map.data;
    size_t size = torch->map.size, at = sizeof old_magic;
    uint32_t part[4];
    for (int i = 0; i < 4; i++) TRY(pickle_read(&torch->pickle, data, size, &at, &part[i]));
    const PickleValue *little =
        pickle_find(&torch->pickle, pickle_at(&torch->pickle, part[1]), "little_endian");
    if (little && !little->integer)
        return FAILED("%s: its values are big-endian, which weft does not read", torch->path);
    TRY(list_storages(torch));
    const PickleValue *keys = pickle_at(&torch->pickle, part[3]);
    for (size_t i = 0; i < keys->count; i++) {
        const PickleValue *key = pickle_item(&torch->pickle, keys, i);
        Storage *storage = key->kind == PICKLE_TEXT ? find_storage(torch, key) : NULL;
        int64_t count;
        if (!storage || size - at < sizeof count)
            return damaged(torch, "a storage is missing; is it complete?");
        memcpy(&count, data + at, sizeof count);
        at += sizeof count;
        if (count != storage->count || storage_bytes(storage) > size - at)
            return damaged(torch, "a storage is too short; is it complete?");
        storage->data = data + at;
        at += storage_bytes(storage);
    }
    for (size_t i = 0; i < torch->storages; i++)
        if (!torch->storage[i].data) return damaged(torch, "a storage is missing");
    return find_tensors(torch, part[2]);
}

Status torch_open(SafeFile **ret_file, const char *path) {
    CLEANUP(torch_done) Torch torch = {.path = path, .pickle = {.path = path, .allowed = allowed}};
    TRY(file_map_init(&torch.map, path));
    const unsigned char *data = torch.map.data;
    bool old = torch.map.size >= sizeof old_magic && !memcmp(data, old_magic, sizeof old_magic);
    if (!old && (torch.map.size < 4 || memcmp(data, "PK\3\4", 4)))
        return FAILED(
            "%s: not a file of torch.save; load the model in transformers and call save_pretrained(), "
            "which writes safetensors",
            path);
    TRY(old ? read_old(&torch) : read_archive(&torch));
    TRY(check_names(&torch));
    return safe_adopt(ret_file, path, &torch.map, &torch.tensor, torch.count);
}
