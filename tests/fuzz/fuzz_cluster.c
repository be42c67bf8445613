/* A cluster's description: what is accepted has figures that one can divide by and add up. */
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
    fuzz_require(cluster.efficiencies >= 1 && cluster.efficiencies <= EFFICIENCIES);
    for (int i = 0; i < cluster.efficiencies; i++)
        fuzz_require(cluster.efficiency[i].share > 0 && cluster.efficiency[i].share <= 1);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char seed[] =
        "{\"name\":\"a\",\"device\":{\"kind\":\"cuda\",\"name\":\"b\",\"memory_bytes\":{\"value\":9,"
        "\"source\":"
        "\"s\"},\"reserve_bytes\":{\"value\":1,\"source\":\"s\"},\"memory_bandwidth\":{\"value\":2,"
        "\"source\":"
        "\"s\"},\"peak_flops\":{\"fp32\":{\"value\":3,\"source\":\"s\"}},\"product_efficiency\":{\"by_size\":"
        "[["
        "1,0.5],[2,1]],\"source\":\"s\"}},\"devices_per_node\":{\"value\":4,\"source\":\"s\"},\"host_memory_"
        "bytes\":{\"value\":5,\"source\":\"s\"},\"links\":{\"within\":{\"latency_s\":{\"value\":0,\"source\":"
        "\"s\"},\"bandwidth\":{\"value\":1,\"source\":\"s\"}},\"between\":{\"latency_s\":{\"value\":0,"
        "\"source\":\"s\"},\"bandwidth\":{\"value\":1,\"source\":\"s\"}},\"host\":{\"latency_s\":{\"value\":"
        "0,"
        "\"source\":\"s\"},\"bandwidth\":{\"value\":1,\"source\":\"s\"}}}}";
    return index == 0 ? fuzz_seed_text(seed, out) : 0;
}
