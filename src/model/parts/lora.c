/* M rows; N outputs and K inputs of the matrix, all on this rank; S adapters of rank r. */
#include "model/parts/lora.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "model/parts/attention.h"
#include "model/parts/blocks.h"

enum { MOST_PARTS = 3 };

/* The adapters of matrices that are computed as one: their number, and the first one's index. */
typedef struct Joint {
    int id;
    int first, parts;
} Joint;

static const Joint joints[] = {{QKV_W, 0, 3}, {OUT_W, 3, 1}, {UP_W, 4, 2}, {DOWN_W, 6, 1}};
enum { JOINTS = sizeof joints / sizeof *joints };

static const Joint *joint_of(int id) {
    for (int i = 0; i < JOINTS; i++)
        if (joints[i].id == id || (i == 0 && (id == Q_W || id == KV_W))) return &joints[i];
    return NULL;
}

static int a_of(int index) {
    return LORA_FIRST + 2 * index;
}
static int b_of(int index) {
    return LORA_FIRST + 2 * index + 1;
}

/* ---- parameters ---- */

bool param_is_adapter(const ParamDesc *desc) {
    const char *end = strrchr(desc->name, '.');
    return end && (!strcmp(end, ".lora_a") || !strcmp(end, ".lora_b"));
}

bool param_takes_adapter(const ParamDesc *desc) {
    bool place = strstr(desc->name, ".attn.") || strstr(desc->name, ".mlp.");
    return place && desc->ndim >= 2 && desc->decay && !param_is_adapter(desc) &&
           !strncmp(desc->name, "layer.", 6);
}

static bool targeted(const ParamDesc *matrix, int part, const LoraTarget *target, int count) {
    for (int i = 0; i < count; i++)
        if (target[i].part == part && !strcmp(target[i].matrix, matrix->name)) return true;
    return false;
}

/* "layer.0.attn.qkv.weight" and part 1 become "layer.0.attn.qkv.1.lora_a". */
static void name_adapter(ParamDesc *desc, const ParamDesc *matrix, int part, const char *end) {
    int stem = (int)(strrchr(matrix->name, '.') - matrix->name);
    if (part < 0)
        snprintf(desc->name, sizeof desc->name, "%.*s.%s", stem, matrix->name, end);
    else
        snprintf(desc->name, sizeof desc->name, "%.*s.%d.%s", stem, matrix->name, part, end);
}

/* A is drawn with the variance of PEFT's uniform distribution. */
static ParamDesc describe_a(const ParamDesc *matrix, int part, int rank, int index) {
    int last = matrix->ndim - 1;
    bool cut = matrix->split == last;
    ParamDesc a = {.id = a_of(index),
                   .ndim = 2,
                   .dim = {rank, matrix->dim[last]},
                   .split = cut ? 1 : -1,
                   .init = INIT_NORMAL,
                   .std = 1 / sqrtf(3 * (float)matrix->dim[last]),
                   .decay = true,
                   .partial = !cut};
    name_adapter(&a, matrix, part, "lora_a");
    return a;
}

/* Of a stack of matrices with one adapter, the B's are one stack. */
static ParamDesc describe_b(const ParamDesc *matrix, int part, int rank, int index) {
    int last = matrix->ndim - 1, skip = part >= 0;
    bool cut = matrix->split == last;
    ParamDesc b = {.id = b_of(index),
                   .split = cut ? -1 : matrix->split - skip,
                   .init = INIT_ZEROS,
                   .decay = true,
                   .partial = cut,
                   .parts = matrix->parts};
    for (int i = skip; i < last; i++) b.dim[b.ndim++] = matrix->dim[i];
    b.dim[b.ndim++] = rank;
    name_adapter(&b, matrix, part, "lora_b");
    return b;
}

/* Adds A's (which = 0) or B's of the matrices that `joint` stands for. */
static Status describe_side(const Block *block, ParamList *list, const Joint *joint, int which,
                            const LoraTarget *target, int count) {
    bool follows = false;
    for (size_t i = 0, matrices = list->count; i < matrices; i++) {
        ParamDesc matrix = list->desc[i];
        if (matrix.id >= LAYER_PARAMS || joint_of(matrix.id) != joint) continue;
        for (int part = -1; part < joint->parts; part++) {
            if (!targeted(&matrix, part, target, count)) continue;
            int index = joint->first + (part < 0 ? 0 : part) + (matrix.id == KV_W),
                rank = block->config->lora.rank;
            ParamDesc desc =
                which ? describe_b(&matrix, part, rank, index) : describe_a(&matrix, part, rank, index);
            desc.joined = follows && !which;
            follows = true;
            TRY(param_add(list, desc));
        }
    }
    return OK;
}

Status describe_lora(const Block *block, ParamList *list, const LoraTarget *target, int count) {
    for (int i = 0; i < JOINTS; i++)
        for (int which = 0; which < 2; which++)
            TRY(describe_side(block, list, &joints[i], which, target, count));
    return OK;
}

/* ---- views ---- */

/* The B of one adapter: `rows` of it from `from` on belong to the outputs from `at` on. */
typedef struct LoraPart {
    Tensor b, db;
    int64_t at, from, rows;
} LoraPart;

typedef struct Adapters {
    Tensor a, da; /* (S*r,K) */
    LoraPart part[MOST_PARTS];
    int parts; /* S */
    int64_t rank;
} Adapters;

bool lora_has(const Block *block, int id) {
    const Joint *joint = block->config->lora.rank ? joint_of(id) : NULL;
    for (int i = 0; joint && i < joint->parts; i++)
        if (block->slot[a_of(joint->first + i)] >= 0) return true;
    return false;
}

static Tensor rows_matrix(Tensor t) {
    return t.ndim == 3 ? tensor_matrix(t) : t;
}

/* A rank that shares key-value heads has the B's of all of them. */
static LoraPart part_of(const Block *block, const Pass *pass, const Joint *joint, int i, int64_t N) {
    LoraPart part = {.b = rows_matrix(block_param(block, pass->param, b_of(joint->first + i))),
                     .db = rows_matrix(block_param(block, pass->grad, b_of(joint->first + i)))};
    part.rows = part.b.dim[0];
    if (joint->id == QKV_W && i > 0) {
        int64_t own = attention_kv_rows(block->config, pass->shape.tp);
        if (own < part.rows) part.from = attention_kv_first(block, pass);
        part.rows = own;
    }
    part.at = i ? N - (joint->parts - i) * part.rows : 0;
    return part;
}

static Adapters adapters_of(const Block *block, const Pass *pass, int id, int64_t N) {
    const Joint *joint = joint_of(id);
    Adapters all = {.rank = block->config->lora.rank};
    for (int i = 0; i < joint->parts; i++) {
        Tensor a = block_param(block, pass->param, a_of(joint->first + i));
        if (!a.data) continue;
        if (!all.parts) {
            all.a = a;
            all.da = block_param(block, pass->grad, a_of(joint->first + i));
        }
        all.part[all.parts++] = part_of(block, pass, joint, i, N);
    }
    all.a.dim[0] *= all.parts;
    if (all.da.data) all.da.dim[0] *= all.parts;
    return all;
}

/* ---- workspace ---- */

typedef struct Workspace {
    Tensor h, dh; /* (M,S*r) scale * dropout(x) A^T, and its gradient */
    Tensor b;     /* (S*r,N) the B's, transposed, on the diagonal */
    Tensor x;     /* (M,K) with dropout */
    Tensor db;    /* (N,S*r) the gradient of b; ... */
    Tensor own;   /* ... and the part of it that is one B's */
} Workspace;

/* Sizes of what `id` stands for on a rank. */
static void sizes_of(const ModelConfig *c, int id, int tp, int64_t *ret_N, int64_t *ret_K) {
    int64_t inner = c->inner / tp, width = config_attention(c) / tp;
    *ret_N = id == QKV_W ? attention_rows(c, tp) : id == UP_W ? (c->gated ? 2 : 1) * inner : c->hidden;
    *ret_K = id == OUT_W ? width : id == DOWN_W ? inner : c->hidden;
}

static void grow(int64_t *most, int64_t count) {
    if (count > *most) *most = count;
}

static Workspace take(const Block *block, Shape shape, Bump *bump) {
    const ModelConfig *c = block->config;
    int64_t rows = shape.B * shape.T, ranks = 0, inputs = 0, square = 0, one = 0;
    for (int i = 0; i < JOINTS; i++) {
        int64_t N, K, S = 0;
        for (int k = 0; k < joints[i].parts; k++) S += block->slot[a_of(joints[i].first + k)] >= 0;
        sizes_of(c, joints[i].id, shape.tp, &N, &K);
        if (!S) continue;
        grow(&ranks, S * c->lora.rank);
        grow(&inputs, K);
        grow(&square, S * c->lora.rank * N);
        grow(&one, c->lora.rank * N);
    }
    Workspace w = {0};
    w.h = tensor_take(bump, tensor_1d(NULL, shape.dtype, rows * ranks));
    w.b = tensor_take(bump, tensor_1d(NULL, shape.dtype, square));
    if (!shape.train) return w;
    w.dh = tensor_take(bump, tensor_1d(NULL, shape.dtype, rows * ranks));
    if (c->lora.dropout > 0) w.x = tensor_take(bump, tensor_1d(NULL, shape.dtype, rows * inputs));
    w.db = tensor_take(bump, tensor_1d(NULL, DT_F32, square));
    w.own = tensor_take(bump, tensor_1d(NULL, DT_F32, one));
    return w;
}

void lora_layout(const Block *block, Shape shape, Bump *scratch) {
    if (block->config->lora.rank) take(block, shape, scratch);
}

/* The workspace with the shapes of a call. */
static Workspace workspace_of(const Block *block, const Pass *pass, const Adapters *all, int64_t M,
                              int64_t N) {
    Bump bump = bump_over(pass->scratch);
    Workspace w = take(block, pass->shape, &bump);
    int64_t R = all->parts * all->rank;
    w.h = tensor_2d(w.h.data, w.h.dtype, M, R);
    w.dh = tensor_2d(w.dh.data, w.h.dtype, M, R);
    w.b = tensor_2d(w.b.data, w.b.dtype, R, N);
    w.db = tensor_2d(w.db.data, DT_F32, N, R);
    return w;
}

/* ---- computation ---- */

static float scale_of(const Block *block) {
    const LoraConfig *lora = &block->config->lora;
    return lora->alpha / (lora->rslora ? sqrtf((float)lora->rank) : (float)lora->rank);
}

/* The mask of the inputs of a matrix. With `cut`, a rank has some of their columns. */
static Dropout mask_of(const Block *block, const Pass *pass, int id, bool cut, int64_t K) {
    const ModelConfig *c = block->config;
    Shape shape = pass->shape;
    Pass whole = {
        .micro = pass->micro, .shape = shape, .seed = pass->seed, .step = pass->step, .at = pass->at};
    whole.shape.sequence = false; /* a split region has all rows */
    Dropout mask = dropout_at(&whole, c->lora.dropout, cut ? K * shape.tp : K, "layer.%d.lora.%d",
                              block->index, joint_of(id)->first);
    if (cut) mask.origin[2] = local_start(pass, K);
    return mask;
}

/* Rows (M,K) as (B,T,K), as dropout takes them. */
static Tensor sequences(const Pass *pass, Tensor rows) {
    return tensor_3d(rows.data, rows.dtype, pass->shape.B, pass->shape.T, tensor_cols(rows));
}

/* B's transposed, with zeros elsewhere. */
static Status place_b(Pass *pass, const Adapters *all, Tensor b) {
    int64_t N = b.dim[1], r = all->rank;
    if (all->parts > 1 || all->part[0].rows < N)
        TRY(stream_zero(pass->exec->stream, b.data, tensor_bytes(b)));
    for (int i = 0; i < all->parts; i++) {
        const LoraPart *part = &all->part[i];
        Blocks blocks = {.size = 1,
                         .count = {r, part->rows, 1},
                         .to = {.at = i * r * N + part->at, .stride = {N, 1, 0}},
                         .from = {.at = part->from * r, .stride = {1, r, 0}}};
        TRY(copy_blocks(pass->exec, b, part->b, blocks));
    }
    return OK;
}

/* h and b; *x becomes the input after dropout. */
static Status prepare(const Block *block, Pass *pass, const Adapters *all, const Workspace *w, Dropout mask,
                      Tensor *x) {
    Tensor plain = *x;
    if (mask.p > 0) {
        x->data = w->x.data;
        TRY(dropout_add_forward(pass->exec, sequences(pass, *x), TENSOR_NONE, sequences(pass, plain), mask));
    }
    TRY(linear_forward(pass->exec, w->h, TENSOR_NONE, tensor_matrix(*x), all->a, TENSOR_NONE, ACT_NONE));
    TRY(scale(pass->exec, w->h, scale_of(block)));
    return place_b(pass, all, w->b);
}

Status lora_forward(const Block *block, Pass *pass, int id, bool cut, Tensor y, Tensor x) {
    Tensor out = tensor_matrix(y);
    Adapters all = adapters_of(block, pass, id, out.dim[1]);
    Workspace w = workspace_of(block, pass, &all, out.dim[0], out.dim[1]);
    TRY(prepare(block, pass, &all, &w, mask_of(block, pass, id, cut, tensor_cols(x)), &x));
    return linear_backward_input(pass->exec, out, TENSOR_NONE, w.h, w.b, ACT_NONE, TENSOR_NONE, true);
}

/* One B alone has the gradient of b; several have the blocks on its diagonal. */
static Status add_b(Pass *pass, const Adapters *all, const Workspace *w, Tensor dy) {
    int64_t r = all->rank, R = all->parts * r;
    const LoraPart *first = &all->part[0];
    if (all->parts == 1 && first->rows == dy.dim[1] && !first->from)
        return linear_backward_weight(pass->exec, first->db, TENSOR_NONE, dy, w->h, true);
    TRY(linear_backward_weight(pass->exec, w->db, TENSOR_NONE, dy, w->h, false));
    for (int i = 0; i < all->parts; i++) {
        const LoraPart *part = &all->part[i];
        Tensor own = tensor_2d(w->own.data, DT_F32, part->rows, r);
        Blocks blocks = {.size = r,
                         .count = {part->rows, 1, 1},
                         .to = {.stride = {r, 0, 0}},
                         .from = {.at = part->at * R + i * r, .stride = {R, 0, 0}}};
        TRY(copy_blocks(pass->exec, own, w->db, blocks));
        TRY(add(pass->exec, tensor_slice(part->db, part->from, part->rows), own));
    }
    return OK;
}

/* The mask also applies to the adapters' part of the input gradient. */
static Status back_input(Pass *pass, const Adapters *all, const Workspace *w, Dropout mask, Tensor dx,
                         const LinearInput *in) {
    Exec *e = pass->exec;
    Tensor to = dx;
    if (mask.p > 0 && in->add) to.data = w->x.data;
    TRY(linear_backward_input(e, to, TENSOR_NONE, w->dh, all->a, in->act, in->pre, in->add && mask.p == 0));
    if (mask.p == 0) return OK;
    TRY(dropout_backward(e, sequences(pass, to), TENSOR_NONE, sequences(pass, to), mask));
    return in->add ? add(e, dx, to) : OK;
}

Status lora_backward(const Block *block, Pass *pass, int id, bool grads, Tensor dx, Tensor dy,
                     const LinearInput *in) {
    Exec *e = pass->exec;
    Tensor x = in->x, out = tensor_matrix(dy);
    Adapters all = adapters_of(block, pass, id, out.dim[1]);
    Workspace w = workspace_of(block, pass, &all, out.dim[0], out.dim[1]);
    Dropout mask = mask_of(block, pass, id, in->cut, all.a.dim[1]);
    if (grads)
        TRY(prepare(block, pass, &all, &w, mask, &x));
    else
        TRY(place_b(pass, &all, w.b));
    TRY(linear_forward(e, w.dh, TENSOR_NONE, out, w.b, TENSOR_NONE, ACT_NONE));
    TRY(scale(e, w.dh, scale_of(block)));
    if (grads) TRY(add_b(pass, &all, &w, out));
    if (grads) TRY(linear_backward_weight(e, all.da, TENSOR_NONE, w.dh, tensor_matrix(x), true));
    return dx.data ? back_input(pass, &all, &w, mask, dx, in) : OK;
}
