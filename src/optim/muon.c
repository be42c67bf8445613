/* Muon (Keller Jordan et al., 2024): the momentum of a hidden matrix is replaced by a nearly orthogonal
 * matrix with the same singular vectors, by five Newton-Schulz iterations. Embeddings, output heads, norms
 * and biases are left to AdamW.
 *
 * q, k and v, which are one parameter, are three matrices. Matmuls run in fp32 in an fp32 run and in bf16
 * otherwise.
 */
#include <math.h>

#include "base/memory.h"
#include "optim/rows.h"

const char *const muon_scale_names[] = {"original", "match-adamw", NULL};

enum { ITERATIONS = 5 };
static const float quintic[3] = {3.4445f, -4.7750f, 2.0315f};

static Status begin(Exec *exec, const OptimSpec *spec, const OptimStep *step, const OptimPart *part) {
    Momentum update = {.beta = (float)spec->momentum,
                       .grad_scale = (float)step->grad_scale,
                       .nesterov = spec->nesterov,
                       .keep_zeros = part->rule->keep_zeros};
    return momentum_step(exec, part->grad, part->state[0], part->param, part->copy, update);
}

static Status finish(Exec *exec, const OptimSpec *spec, const OptimStep *step, const OptimPart *part) {
    (void)spec;
    Apply update = {.lr = (float)(step->lr * part->rule->lr),
                    .decay = (float)part->rule->decay,
                    .keep_zeros = part->rule->keep_zeros};
    return apply_step(exec, part->param, part->copy, part->grad, update);
}

/* Memory of one transform: X and Y are the matrix, wide (R <= C), A and B are square. */
typedef struct Work {
    Tensor total; /* (1) */
    Tensor x, y;  /* (R,C) */
    Tensor a, b;  /* (R,R) */
} Work;

static Tensor take(Bump *bump, Tensor shape) {
    shape.data = bump_take(bump, tensor_bytes(shape));
    return shape;
}

static Work work_of(Bump *bump, int64_t rows, int64_t cols, DType dtype) {
    int64_t R = rows < cols ? rows : cols, C = rows < cols ? cols : rows;
    Work work = {.total = take(bump, tensor_1d(NULL, DT_F64, 1))};
    work.x = take(bump, tensor_2d(NULL, dtype, R, C));
    work.y = take(bump, tensor_2d(NULL, dtype, R, C));
    work.a = take(bump, tensor_2d(NULL, dtype, R, R));
    work.b = take(bump, tensor_2d(NULL, dtype, R, R));
    return work;
}

static DType work_type(DType dtype) {
    return dtype == DT_F32 ? DT_F32 : DT_BF16;
}

static size_t work_bytes(int64_t rows, int64_t cols, DType dtype) {
    Bump bump = {0};
    work_of(&bump, rows, cols, work_type(dtype));
    return bump.used;
}

static void swap(Tensor *a, Tensor *b) {
    Tensor c = *a;
    *a = *b;
    *b = c;
}

/* The same elements as a matrix of another shape. */
static Tensor as(Tensor t, int64_t rows, int64_t cols) {
    return tensor_2d(t.data, t.dtype, rows, cols);
}

/* Transposes blocks (rows, cols / blocks), one after the other, into the matrix (cols, rows); or back. */
static Status transpose_blocks(Exec *exec, Tensor to, Tensor from, int64_t rows, int64_t cols, int blocks,
                               bool back) {
    int64_t width = cols / blocks, size = rows * width;
    for (int i = 0; i < blocks; i++) {
        Tensor y = tensor_slice(tensor_1d(to.data, to.dtype, rows * cols), i * size, size);
        Tensor x = tensor_slice(tensor_1d(from.data, from.dtype, rows * cols), i * size, size);
        TRY(back ? transpose(exec, as(y, rows, width), as(x, width, rows))
                 : transpose(exec, as(y, width, rows), as(x, rows, width)));
    }
    return OK;
}

/* Rearranges x, which has the order of the matrix's data, into a wide matrix. */
static Status to_wide(Exec *exec, const OptimMatrix *matrix, Work *work) {
    int64_t rows = matrix->rows, cols = matrix->cols;
    bool tall = rows > cols;
    if (matrix->column_blocks > 1) {
        TRY(transpose_blocks(exec, work->y, work->x, rows, cols, matrix->column_blocks, false));
        if (!tall) return transpose(exec, as(work->x, rows, cols), as(work->y, cols, rows));
    } else if (tall) {
        TRY(transpose(exec, as(work->y, cols, rows), as(work->x, rows, cols)));
    } else {
        return OK;
    }
    swap(&work->x, &work->y);
    return OK;
}

static Status from_wide(Exec *exec, const OptimMatrix *matrix, Work *work) {
    int64_t rows = matrix->rows, cols = matrix->cols;
    bool tall = rows > cols;
    if (matrix->column_blocks > 1) {
        if (!tall) {
            TRY(transpose(exec, as(work->y, cols, rows), as(work->x, rows, cols)));
            swap(&work->x, &work->y);
        }
        TRY(transpose_blocks(exec, work->y, work->x, rows, cols, matrix->column_blocks, true));
    } else if (tall) {
        TRY(transpose(exec, as(work->y, rows, cols), as(work->x, cols, rows)));
    } else {
        return OK;
    }
    swap(&work->x, &work->y);
    return OK;
}

/* X = a X + (b A + c A A) X with A = X X^T, which moves the singular values toward 1. A is symmetric, so its
 * product with itself is also a product with its transpose, as linear_forward computes it. */
static Status iterate(Exec *exec, Work *work) {
    Tensor x = work->x, y = work->y, a = work->a, b = work->b, none = TENSOR_NONE;
    TRY(linear_forward(exec, a, none, x, x, none, ACT_NONE));
    TRY(linear_forward(exec, b, none, a, a, none, ACT_NONE));
    TRY(scale(exec, a, quintic[1]));
    TRY(scale(exec, b, quintic[2]));
    TRY(add(exec, b, a));
    TRY(convert(exec, y, x));
    TRY(scale(exec, y, quintic[0]));
    TRY(linear_backward_input(exec, y, TENSOR_NONE, b, x, ACT_NONE, none, true));
    swap(&work->x, &work->y);
    return OK;
}

static double scale_of(const OptimSpec *spec, const OptimMatrix *matrix) {
    double rows = (double)matrix->rows, cols = (double)matrix->cols;
    return spec->muon_scale == MUON_ORIGINAL ? sqrt(fmax(1, rows / cols)) : 0.2 * sqrt(fmax(rows, cols));
}

static Status transform(Exec *exec, const OptimSpec *spec, OptimMatrix matrix, OptimWork memory) {
    Bump bump = {.base = memory.data, .size = SIZE_MAX};
    Work work = work_of(&bump, matrix.rows, matrix.cols, work_type(memory.dtype));
    Tensor all = tensor_1d(matrix.data, DT_F32, matrix.rows * matrix.cols);
    TRY(stream_zero(exec->stream, work.total.data, tensor_bytes(work.total)));
    TRY(sum_squares(exec, work.total, all));
    TRY(normalize(exec, tensor_1d(work.x.data, work.x.dtype, tensor_count(all)), all, work.total, 1e-7f));
    TRY(to_wide(exec, &matrix, &work));
    for (int i = 0; i < ITERATIONS; i++) TRY(iterate(exec, &work));
    TRY(from_wide(exec, &matrix, &work));
    TRY(convert(exec, all, tensor_1d(work.x.data, work.x.dtype, tensor_count(all))));
    return scale(exec, all, (float)scale_of(spec, &matrix));
}

static const OptimSetting settings[] = {
    {"lr", 0.02},       {"weight-decay", 0.01}, {"momentum", 0.95}, {"nesterov", 1}, {"muon-scale", 0},
    {"adamw-lr", 6e-4}, {"beta1", 0.9},         {"beta2", 0.95},    {"eps", 1e-8},   {0}};

const Optimizer optim_muon = {
    .name = "muon",
    .settings = settings,
    .states = {2, {"exp_avg", "exp_avg_sq"}},
    .whole = {1, {"momentum_buffer"}},
    .step = adamw,
    .begin = begin,
    .transform = transform,
    .finish = finish,
    .work_bytes = work_bytes,
};
