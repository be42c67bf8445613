/* Fuzzes cluster descriptions: accepted ones have finite values, and nonzero values where the planner
 * divides. */
#include <math.h>

#include "fuzz.h"
#include "plan/cluster.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Cluster cluster;
    if (!fuzz_succeeded(cluster_parse((const char *)data, size, "input", &cluster))) return 0;
    fuzz_require(cluster.memory_bytes > cluster.reserve_bytes && isfinite(cluster.memory_bytes));
    fuzz_require(cluster.memory_bandwidth > 0 && cluster.peak_flops[RATE_FP32] > 0);
    fuzz_require(cluster.within.bandwidth > 0 && cluster.between.bandwidth > 0 && cluster.host.bandwidth > 0);
    fuzz_require(cluster.devices_per_node >= 1 &&
                 cluster.devices_per_node == floor(cluster.devices_per_node));
    for (int i = 0; i < RATE_COUNT; i++)
        fuzz_require(cluster.peak_flops[i] == 0 ||
                     (cluster.product_share[i] > 0 && cluster.product_share[i] <= 1));
    fuzz_require(cluster.memory_share > 0 && cluster.vector_flops > 0 && cluster.within.share > 0);
    return 0;
}

#define V(value) "{\"value\":" value ",\"source\":\"s\"}"
#define LINK     "{\"latency_s\":" V("0") ",\"bandwidth\":" V("1") ",\"share\":" V("1") "}"
#define K(name)  "\"" name "\":"

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char seed[] = "{" K("name") "\"a\"," K("title") "\"t\"," K("device") "{" K(
        "kind") "\"cuda\"," K("name") "\"b\"," K("memory_bytes") V("9") "," K("reserve_bytes")
        V("1") "," K("memory_bandwidth") V("2") "," K("peak_flops") "{" K("fp32")
            V("3") "}," K("product_share") "{" K("fp32") V("0.5") "}," K("product_wave")
                V("2") "," K("product_depth") V("2") "," K("memory_share") V("0.5") "," K("vector_flops")
                    V("3") "," K("attention_share") "{" K("forward") V("0.3") "," K("backward")
                        V("0.3") "}," K("launch_s") V("0") "," K("kernel_s") V("0") "}," K("devices_per_node")
                            V("4") "," K("host_memory_bytes") V("5") "," K("links") "{" K("within") LINK
        "," K("between") LINK "," K("host") LINK "}}";
    return index == 0 ? fuzz_seed_text(seed, out) : 0;
}
