#include "model/parts/norm.h"

#include "model/parts/common.h"

Status describe_norm(const ModelConfig *config, ParamList *list, int id, int64_t width, bool per_row,
                     const char *prefix) {
    ParamDesc weight = {
        .id = id, .ndim = 1, .dim = {width}, .split = -1, .init = INIT_ONES, .per_row = per_row};
    snprintf(weight.name, sizeof weight.name, "%s.weight", prefix);
    TRY(param_add(list, weight));
    if (config->norm == NORM_RMS) return OK;
    TRY(describe_bias(list, id + 1, -1, width, 0, "%s.bias", prefix));
    list->desc[list->count - 1].per_row = per_row;
    return OK;
}

Norm norm_of(const Block *block, const Tensor *views, int id) {
    return (Norm){.weight = block_param(block, views, id), .bias = block_param(block, views, id + 1)};
}

NormStats norm_stats(const ModelConfig *config, int64_t rows, Bump *bump) {
    NormStats stats = {0};
    if (config->norm == NORM_LAYER) stats.mean = tensor_take(bump, tensor_1d(NULL, DT_F32, rows));
    stats.rstd = tensor_take(bump, tensor_1d(NULL, DT_F32, rows));
    return stats;
}

NormStats norm_stats_slice(NormStats stats, int64_t rows) {
    if (stats.mean.ndim) stats.mean = tensor_slice(stats.mean, 0, rows);
    stats.rstd = tensor_slice(stats.rstd, 0, rows);
    return stats;
}

Status norm_forward(Exec *exec, const ModelConfig *config, Tensor y, NormStats stats, Tensor x, Norm norm) {
    if (config->norm == NORM_RMS)
        return rmsnorm_forward(exec, y, stats.rstd, x, norm.weight, config->norm_eps, (HeadRange){0});
    return layernorm_forward(exec, y, stats.mean, stats.rstd, x, norm.weight, norm.bias, config->norm_eps);
}

Status norm_forward_sum(Exec *exec, const ModelConfig *config, Tensor sum, Tensor out, NormStats stats,
                        Tensor res, Tensor y, Norm norm, Dropout dropout) {
    if (config->norm == NORM_RMS)
        return dropout_add_rmsnorm_forward(exec, sum, out, stats.rstd, res, y, norm.weight, config->norm_eps,
                                           dropout);
    return dropout_add_norm_forward(exec, sum, out, stats.mean, stats.rstd, res, y, norm.weight, norm.bias,
                                    config->norm_eps, dropout);
}

Status norm_forward_fp8(Exec *exec, const ModelConfig *config, Tensor sum, Tensor out, Fp8Input quantized,
                        NormStats stats, Tensor res, Tensor y, Norm norm, Dropout dropout, Fp8Scale scale) {
    return norm_fp8_forward(exec, sum, out, quantized, stats.mean, stats.rstd, res, y, norm.weight, norm.bias,
                            config->norm_eps, dropout, scale);
}

Status norm_backward(Exec *exec, const ModelConfig *config, Tensor dx, Norm grad, Tensor dy, Tensor x,
                     NormStats stats, Norm norm, Tensor dres, NormSums sums) {
    if (config->norm == NORM_RMS)
        return rmsnorm_backward(exec, dx, grad.weight, dy, x, stats.rstd, norm.weight, dres, (HeadRange){0});
    return layernorm_backward(exec, dx, grad.weight, grad.bias, dy, x, stats.mean, stats.rstd, norm.weight,
                              dres, sums);
}
