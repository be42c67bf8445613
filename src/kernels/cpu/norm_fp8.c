/* Norms with results in fp8: the norms of the cpu backend, then the reference's quantization. A norm that
 * backward recomputes (selective recompute) thereby has the same bits. Only tests train in fp8 on a CPU. */
#include <string.h>

#include "base/memory.h"
#include "kernels/cpu/norm_fp8.h"
#include "kernels/ref/ref.h"

static Status norm_fp8_forward_cpu(Stream *stream, Tensor sum, Tensor out, Fp8Input quantized, Tensor mean,
                                   Tensor rstd, Tensor res, Tensor y, Tensor gamma, Tensor beta, float eps,
                                   Dropout dropout, Fp8Scale scale) {
    CLEANUP(mem_freep) char *buffer = NULL;
    const KernelTable *cpu;
    Tensor normed = res;
    TRY(kernels_find("cpu", &cpu));
    TRY(mem_new(tensor_bytes(res), 1, &buffer));
    normed.data = buffer;
    if (y.data && beta.data)
        TRY(cpu->dropout_add_norm_forward(stream, sum, normed, mean, rstd, res, y, gamma, beta, eps,
                                          dropout));
    else if (y.data)
        TRY(cpu->dropout_add_rmsnorm_forward(stream, sum, normed, rstd, res, y, gamma, eps, dropout));
    else if (beta.data)
        TRY(cpu->layernorm_forward(stream, normed, mean, rstd, res, gamma, beta, eps));
    else
        TRY(cpu->rmsnorm_forward(stream, normed, rstd, res, gamma, eps, (HeadRange){0}));
    if (out.data) memcpy(out.data, normed.data, tensor_bytes(normed));
    quantize_input_ref(quantized, normed, scale);
    return OK;
}

void norm_fp8_override(KernelTable *table) {
    table->norm_fp8_forward = norm_fp8_forward_cpu;
}
