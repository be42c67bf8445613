/* Other tools' names of options, commands and values, and their lookup. A name may be in several rows; the
 * first that applies to the command counts. */
#include "cli/foreign.h"

#include <string.h>
#include <strings.h>

/* clang-format off */
static const ForeignRow options[] = {
    /* model */
    {"nanoGPT: n-layer; Megatron-LM: num-layers; transformers: num-hidden-layers; torchtitan: n-layers",
     "--layers %", "the number of layers"},
    {"nanoGPT: n-embd; Megatron-LM: hidden-size; transformers: d-model; torchtitan: dim; PyTorch: "
     "embed-dim embedding-dim",
     "--hidden %", "the hidden size"},
    {"nanoGPT: n-head; Megatron-LM: num-attention-heads; torchtitan: n-heads; PyTorch: num-heads",
     "--heads %", "the number of attention heads"},
    {"Megatron-LM: ffn-hidden-size; transformers: intermediate-size n-inner",
     "--inner %", "the size of the feed-forward layer"},
    {"nanoGPT: block-size; Megatron-LM: seq-length max-position-embeddings; transformers: max-seq-length "
     "max-seq-len n-positions n-ctx model-max-length; llama.cpp: ctx-size; axolotl: sequence-len; PyTorch: "
     "context-length context-size; vLLM: max-model-len",
     "--seq %", "the sequence length"},
    {"llama.cpp: rope-scale", "--rope-scaling yarn:FACTOR", "an extended context"},
    {"transformers: vocab-size", "--vocab %", "the vocabulary size"},
    {"Megatron-LM: attention-dropout hidden-dropout", "--dropout %", "the dropout rate"},
    {"transformers: model-name-or-path; llama.cpp: m", "--model %", "the model"},
    {"nanoGPT: init-from=resume resume-from resume-training; Lightning: ckpt-path; transformers: "
     "resume-from-checkpoint",
     "--resume", "continuing the run in --out"},
    {"nanoGPT: init-from=scratch", "--model gpt2", "a model with random weights"},
    {"nanoGPT: init-from; transformers: from-pretrained; axolotl: base-model",
     "--model %", "the model to start from"},
    {"Megatron-LM: load", "--model %", "the checkpoint to start from"},
    {"transformers: tokenizer-name", "--tokenizer %", "the tokenizer"},
    {"Megatron-LM: reset-attention-mask", "--no-cross-document", "attention within documents"},
    {"Megatron-LM: reset-position-ids", "--no-cross-document", "positions that restart in each document"},
    {"Megatron-LM: eod-mask-loss", "--no-cross-document", "no prediction after the end of a document"},
    {"Megatron-LM: vocab-file merge-file tokenizer-model", "--tokenizer DIR", "the tokenizer's files"},
    {"Megatron-LM: tokenizer-type", "--tokenizer DIR", "the tokenizer"},
    {"transformers: task-name", "--task classify", "a classification task"},
    {"transformers: mlm", "--task mlm", "training on masked tokens"},
    {"transformers: num-labels", "--labels %", "the number of labels"},
    {"Megatron-LM: untie-embeddings-and-output-weights", "--untie", "an output matrix of its own"},
    {"nanoGPT: bias; Megatron-LM: add-bias-linear disable-bias-linear add-qkv-bias swiglu squared-relu "
     "openai-gelu normalization norm-epsilon qk-layernorm position-embedding-type rotary-* "
     "use-rope-scaling group-query-attention num-query-groups kv-channels; llama.cpp: rope-freq-* yarn-*; transformers: num-key-value-heads "
     "num-kv-heads; torchtitan: n-kv-heads",
     NULL, "the model's family determines it; --model takes a preset of another family, or a checkpoint "
     "with its own config.json"},
    {"Megatron-LM: init-method-std", NULL, "weft initializes weights as the model's family does"},
    {"transformers: config-overrides", "--layers N", "sizes; --hidden, --heads and --inner set the others"},
    {"transformers: model-type", "--model NAME", "the model; presets determine its family"},
    {"timm: pretrained; PyTorch: load-checkpoint", "--model DIR", "the checkpoint to start from"},
    {"llama.cpp: hf-repo hf-file model-url hf-token; transformers: use-auth-token revision",
     NULL, "see 'weft fetch --list'; other models: download them and pass their directory"},
    {"transformers: trust-remote-code", NULL, "weft runs no code of checkpoints"},
    {"Megatron-LM: expert-model-parallel-size", "--ep %", "the size of expert parallelism"},
    {"Megatron-LM: num-experts; transformers: num-local-experts", "--experts %", "the number of experts"},
    {"Megatron-LM: moe-router-topk", "--top-k %", "the number of experts per token"},
    {"Megatron-LM: moe-ffn-hidden-size; transformers: moe-intermediate-size",
     "--expert-inner %", "the size of an expert's feed-forward layer"},
    {"Megatron-LM: moe-aux-loss-coeff; transformers: router-aux-loss-coef",
     "--balance-coef %", "the factor of the balancing loss"},
    {"Megatron-LM: moe-z-loss-coeff", "--z-loss %", "the factor of the z-loss"},
    {"Megatron-LM: expert-tensor-parallel-size", NULL, "--tp splits experts, too"},
    {"Megatron-LM: expert-* moe-*", NULL, "weft sends each token to its --top-k best experts and drops none"},
    {"Megatron-LM: mamba-*", NULL, "weft has no state-space models"},
    {"Megatron-LM: multi-latent-attention", NULL, "weft has no latent attention"},
    {"Megatron-LM: mtp-*", NULL, "weft has no multi-token prediction"},
    {"Megatron-LM: make-vocab-size-divisible-by", NULL, "weft pads the vocabulary by itself"},
    /* data */
    {"nanoGPT: dataset data-dir; transformers: train-file; Megatron-LM: train-data data-path "
     "train-data-path; llm.c: input-bin",
     "--data %", "the training data"},
    {"transformers: dataset-name dataset-config-name; axolotl: datasets", "--data FILE", "the training data"},
    {"Megatron-LM: input", "--data %", "the input files"},
    {"TRL: dataset-text-field", "--text-field %", "the field with the text"},
    {"axolotl: dataset-prepared-path", NULL, "weft caches tokenized text; 'weft prepare' writes it to files"},
    {"Megatron-LM: data-cache-path", NULL, "WEFT_CACHE is the directory of tokenized text"},
    {"transformers: cache-dir",
     NULL, "WEFT_CACHE is the directory of tokenized text, WEFT_DATA of downloads"},
    {"transformers: overwrite-cache", NULL, "weft notices when data change"},
    {"llama.cpp: mmap* no-mmap mlock", NULL, "weft always maps its data and weights into memory"},
    {"LangChain: streaming", "--stream", "printing text as it is generated"},
    {"transformers: streaming", NULL, "weft maps its data into memory, whatever their size"},
    {"axolotl: sample-packing; transformers: pad-to-*",
     NULL, "weft fills every sequence with text; see --packing and --no-cross-document"},
    {"axolotl: train-on-inputs", "--loss-on all", "a loss on everything"},
    {"TRL: assistant-only-loss", "--loss-on assistant", "a loss on the assistant's words"},
    {"TRL: completion-only-loss", "--loss-on completion", "a loss on completions"},
    {"transformers: line-by-line", "--documents line", "one document per line"},
    {"transformers: max-train-samples", "--steps N", "less training; to use less data, pass a smaller file"},
    {"axolotl: val-set-size; scikit-learn: test-size", "--val-fraction %", "the fraction held out"},
    {"fairseq: valid-file dev-file; transformers: validation-file; Megatron-LM: valid-data-path",
     "--val %", "the validation data"},
    {"transformers: do-lower-case", NULL, "the tokenizer's own configuration says whether it lowercases"},
    {"transformers: use-fast-tokenizer", NULL, "weft has one tokenizer of each kind"},
    {"transformers: eval-file predict-file", "--data %", "the data to evaluate on"},
    {"transformers: validation-split-percentage", "--val-fraction X", "the fraction held out, in percent"},
    {"Megatron-LM: split", "--val-fraction X", "the fractions of training and validation data"},
    {"Megatron-LM: json-keys", "--field %", "the field that contains the text"},
    {"transformers: text-column text-column-name", "--text-field %", "the column with the text"},
    {"transformers: label-column-name", "--label-field %", "the column with the label"},
    {"Megatron-LM: output-prefix; llama.cpp: outfile output; gcc: o", "--out %", "the output"},
    {"Megatron-LM: workers; datasets: num-proc; transformers: preprocessing-num-workers; llama.cpp: "
     "num-threads threads-batch t",
     "--threads %", "the number of threads"},
    {"Megatron-LM: mask-prob; transformers: mlm-probability",
     "--mask-rate %", "the fraction of masked tokens"},
    {"transformers: whole-word-mask", "--whole-word-masking", "masking whole words"},
    {"transformers: max-query-length", "--max-query %", "the maximum length of a question"},
    {"transformers: max-answer-length", "--max-answer %", "the maximum length of an answer"},
    {"transformers: n-best-size", "--n-best %", "the number of candidate answers"},
    {"transformers: null-score-diff-threshold", "--null-threshold %", "the threshold for no answer"},
    {"Lightning: num-workers", NULL, "weft maps its data into memory and needs no loader processes"},
    {"transformers: dataloader-*; PyTorch: prefetch-factor pin-memory",
     NULL, "weft maps its data into memory and needs no workers"},
    /* length, batch and optimizer */
    {"nanoGPT: max-iters iters; Megatron-LM: train-iters; transformers: max-steps max-train-steps; llm.c: "
     "num-iterations; PyTorch: train-steps total-steps",
     "--steps %", "the number of steps"},
    {"transformers: num-train-epochs num-epochs; Lightning: max-epochs; PyTorch: epoch n-epochs",
     "--epochs %", "the number of epochs"},
    {"Megatron-LM: global-batch-size; DeepSpeed: train-batch-size",
     "--batch %", "the sequences per step over all ranks"},
    {"llm.c: total-batch-size", "--batch N", "the tokens per step; --batch counts sequences"},
    {"Megatron-LM: micro-batch-size; transformers: per-device-train-batch-size per-gpu-train-batch-size; "
     "DeepSpeed: train-micro-batch-size-per-gpu",
     "--micro-batch %", "the sequences per forward pass"},
    {"nanoGPT: batch-size", "--micro-batch %", "the sequences per forward pass; --batch is the global batch"},
    {"transformers: batch-size", "--batch %", "the sequences per batch"},
    {"transformers: per-device-eval-batch-size", "--batch %", "the sequences per forward pass"},
    {"transformers: gradient-accumulation-steps; Lightning: accumulate-grad-batches; PyTorch: accum-steps "
     "accumulation-steps grad-accum* gradient-accumulation",
     "--batch N", "the micro-batches per step; batch = micro-batch x replicas x accumulation"},
    {"transformers: learning-rate", "--lr %", "the learning rate"},
    {"Megatron-LM: lr-warmup-iters; nanoGPT: warmup-iters; transformers: warmup-steps num-warmup-steps",
     "--warmup %", "the warm-up steps"},
    {"Megatron-LM: lr-warmup-fraction", "--warmup-ratio %", "the warm-up as a fraction of the steps"},
    {"Megatron-DeepSpeed: curriculum-learning*", "--seq-warmup N", "sequences that grow"},
    {"Megatron-LM: lr-decay-style; transformers: lr-scheduler-type lr-scheduler",
     "--schedule %", "the schedule of the learning rate"},
    {"nanoGPT: decay-lr=false", "--schedule constant", "a learning rate without decay"},
    {"nanoGPT: decay-lr", "--schedule cosine", "the decay of the learning rate"},
    {"Megatron-LM: lr-decay-iters lr-decay-samples",
     "--steps N", "the end of the decay, which in weft is the last step"},
    {"Megatron-LM: clip-grad; nanoGPT: grad-clip; transformers: max-grad-norm; Lightning: "
     "gradient-clip-val; DeepSpeed: gradient-clipping; PyTorch: gradient-clip max-norm; fairseq: clip-norm",
     "--clip %", "the maximum gradient norm"},
    {"Megatron-LM: adam-beta1", "--beta1 %", "Adam's first decay rate"},
    {"Megatron-LM: adam-beta2", "--beta2 %", "Adam's second decay rate"},
    {"Megatron-LM: adam-eps; transformers: adam-epsilon", "--eps %", "Adam's epsilon"},
    {"transformers: optim", "--optimizer %", "the optimizer"},
    {"Megatron-LM: sgd-momentum", "--momentum %", "the momentum of SGD"},
    {"PyTorch: betas", "--beta1 X", "Adam's decay rates; --beta2 sets the second"},
    {"Megatron-LM: lr-wsd-decay-iters", "--decay-steps %", "the steps of the decay at the end"},
    {"Megatron-LM: lr-wsd-decay-style", "--decay-type %", "the shape of the decay at the end"},
    {"Megatron-LM: lr-warmup-samples", "--warmup N", "the warm-up, in steps"},
    {"Megatron-LM: lr-warmup-init", NULL, "weft's warm-up starts at 0"},
    {"Megatron-LM: start-weight-decay end-weight-decay weight-decay-incr-style",
     NULL, "weft's weight decay is constant"},
    {"Megatron-LM: decoupled-lr", "--group GROUP", "learning rates of some parameters"},
    {"Megatron-LM: rampup-batch-size", NULL, "weft's batch has the same size in every step"},
    {"transformers: label-smoothing*", NULL, "weft has no label smoothing"},
    {"timm: ema*", NULL, "weft does not average weights"},
    {"PaLM: z-loss*", NULL, "weft's loss is the cross-entropy alone"},
    {"transformers: early-stopping-patience", "--patience %", "stopping without improvement"},
    {"transformers: data-seed; Lightning: seed-everything; Megatron-LM: random-seed; PyTorch: manual-seed; "
     "llama.cpp: s",
     "--seed %", "the random seed"},
    {"transformers: full-determinism; PyTorch: deterministic*",
     NULL, "weft's results depend on --seed and the layout only"},
    {"Megatron-LM: accumulate-allreduce-grads-in-fp32",
     "--grad-dtype fp32", "the type of gradients on the wire"},
    {"Megatron-LM: grad-reduce-in-bf16", "--grad-dtype bf16", "the type of gradients on the wire"},
    {"Megatron-LM: main-grads-dtype", "--grad-dtype %", "the type of gradients on the wire"},
    /* precision and memory */
    {"nanoGPT: dtype; transformers: torch-dtype; Megatron-LM: params-dtype; accelerate: mixed-precision; "
     "timm: amp-dtype",
     "--precision %", "the compute precision"},
    {"transformers: bf16", "--precision bf16", "bf16 precision"},
    {"transformers: bf16", "--dtype bf16", "bf16 weights"},
    {"transformers: fp16; PyTorch: half", "--precision fp16", "fp16 precision"},
    {"transformers: fp16", "--dtype fp16", "fp16 weights"},
    {"Megatron-LM: fp32", "--precision fp32", "fp32 precision"},
    {"transformers: tf32", "--precision tf32", "TF32 precision"},
    {"Megatron-LM: fp8 fp8-format", "--precision fp8", "fp8 precision"},
    {"Megatron-LM: fp4-format", NULL, "weft's smallest precision for training is fp8"},
    {"Megatron-LM: fp8-recipe", "--fp8-scaling %", "how fp8 operands are scaled"},
    {"PyTorch: amp", "--precision fp16", "automatic mixed precision"},
    {"Megatron-LM: initial-loss-scale", "--loss-scale %", "the initial loss scale"},
    {"Megatron-LM: loss-scale-window", "--loss-scale-steps %", "the steps before the loss scale grows"},
    {"llama.cpp: outtype", "--dtype %", "the type of the weights"},
    {"llama.cpp: cache-type-k cache-type-v; vLLM: kv-cache-dtype", "--kv %", "the type of the KV cache"},
    {"transformers: gradient-checkpointing; DeepSpeed: activation-checkpointing; Megatron-LM: "
     "checkpoint-activations",
     "--recompute block", "activation checkpointing"},
    {"Megatron-LM: recompute-activations", "--recompute selective", "selective recomputation"},
    {"Megatron-LM: recompute-granularity", "--recompute %", "what is recomputed"},
    {"Megatron-LM: recompute-method", "--recompute block", "how blocks are recomputed"},
    {"Megatron-LM: recompute-num-layers", "--recompute block", "the recomputed layers, in weft all of them"},
    {"DeepSpeed: cpu-offload offload-optimizer; Megatron-LM: optimizer-cpu-offload",
     "--offload optimizer", "offloading the optimizer state"},
    {"DeepSpeed: offload-param; accelerate: fsdp-cpu-offload",
     "--offload params", "offloading the parameters"},
    {"DeepSpeed: cpu-checkpointing checkpoint-in-cpu; TRL: activation-offloading",
     "--offload activations", "offloading the activations"},
    /* layout */
    {"Megatron-LM: tensor-model-parallel-size model-parallel-size; vLLM: tensor-parallel-size "
     "tensor-parallel",
     "--tp %", "the size of tensor parallelism"},
    {"Megatron-LM: pipeline-model-parallel-size; DeepSpeed: pipeline-parallel-size pipe-parallel-size; "
     "vLLM: pipeline-parallel",
     "--pp %", "the number of pipeline stages"},
    {"Megatron-LM: num-layers-per-virtual-pipeline-stage",
     "--pp-schedule interleaved", "the interleaved schedule; --pp-chunks sets the chunks per stage"},
    {"Megatron-LM: virtual-pipeline-model-parallel-size", "--pp-chunks %", "the model chunks per stage"},
    {"Megatron-LM: data-parallel-size; vLLM: data-parallel", "--dp %", "the number of replicas"},
    {"Megatron-LM: use-distributed-optimizer", "--zero 1", "sharding the optimizer state"},
    {"DeepSpeed: zero-stage", "--zero %", "the ZeRO stage"},
    {"DeepSpeed: zero1", "--zero 1", "ZeRO stage 1"},
    {"DeepSpeed: zero2", "--zero 2", "ZeRO stage 2"},
    {"DeepSpeed: zero3", "--zero 3", "ZeRO stage 3"},
    {"transformers: fsdp fsdp-*; Megatron-LM: use-torch-fsdp2", "--zero 3", "fully sharded data parallelism"},
    {"PyTorch: ddp", "--dp N", "data parallelism"},
    {"Megatron-LM: context-parallel-size; DeepSpeed: ulysses-sequence-parallel-size sequence-parallel-size",
     "--cp %", "the size of context parallelism"},
    {"Megatron-LM: cp-comm-type", "--cp-mode auto",
     "the exchange of context parallelism: heads (a2a), gather (all_gather) or ring (p2p)"},
    {"DeepSpeed: zero-optimization", "--zero N", "the ZeRO stage; --config reads DeepSpeed's files"},
    {"Lightning: strategy", "--zero N", "data parallelism, replicated (0) or sharded (1 to 3)"},
    {"transformers: ddp-*", NULL, "weft needs no such choice for data parallelism"},
    {"DeepSpeed: launcher* exclude no-ssh* ssh-port force-multi include num-nodes; accelerate: multi-node; "
     "torchrun: nnodes node-rank master-addr master-port rdzv-backend rdzv-endpoint rdzv-id rdzv-conf "
     "local-addr",
     NULL, "to use several hosts, pass --ranks and --hosts, or start weft with mpirun or srun"},
    {"DeepSpeed: min-elastic-nodes max-elastic-nodes elastic-training", NULL, "see --max-restarts"},
    {"DeepSpeed: autotuning", NULL, "use 'weft plan --search'"},
    {"DeepSpeed: bind-core*; torchrun: numa*", NULL, "weft pins its ranks to cores by itself"},
    {"accelerate: multi-gpu", "--ranks N", "several GPUs"},
    {"Slurm: gpus-per-node num-gpus-per-node", "--ranks N", "the number of processes, over all nodes"},
    {"transformers: n-gpu; torchrun: nproc-per-node nproc; accelerate: num-processes; Megatron-LM: "
     "world-size; DeepSpeed: num-gpus; Lightning: gpus devices; mpirun: np n",
     "--ranks %", "the number of processes"},
    {"PyTorch: gpu-id*; llama.cpp: main-gpu",
     "--device cuda", "running on the GPU; CUDA_VISIBLE_DEVICES selects it"},
    {"PyTorch: device-ids", "--device cuda", "running on GPUs; CUDA_VISIBLE_DEVICES selects them"},
    {"llama.cpp: tensor-split split-mode", NULL, "'weft generate' uses one device"},
    {"transformers: device-map", "--device cpu", "the device"},
    {"torchrun: standalone", "--ranks N", "processes on this host only"},
    {"torchrun: local-rank", NULL, "weft finds its rank by itself"},
    {"torchrun: redirects tee local-ranks-filter", NULL, "rank 0 prints for all ranks"},
    {"torchrun: monitor-interval", NULL, "weft notices a failed rank by itself; see --timeout"},
    {"Megatron-LM: distributed-timeout-minutes", "--timeout N", "the seconds to wait for a rank"},
    {"torchrun: module no-python run-path", NULL, "weft itself is the program"},
    {"Megatron-LM: distributed-backend; nanoGPT: backend",
     NULL, "weft uses NCCL between GPUs and MPI elsewhere"},
    {"transformers: no-cuda use-cpu; PyTorch: cpu", "--device cpu", "running on the CPU"},
    {"Lightning: accelerator", "--device %", "the device"},
    {"llama.cpp: n-gpu-layers gpu-layers ngl; PyTorch: cuda gpu", "--device cuda", "running on the GPU"},
    {"nanoGPT: compile; transformers: torch-compile* use-liger-kernel use-flash-attention* "
     "attn-implementation; PyTorch: jit*; axolotl: liger-* unsloth* xformers* sdp-attention "
     "flash-attention; Megatron-LM: use-mcore-models attention-softmax-in-fp32 "
     "apply-query-key-layer-scaling no-gradient-accumulation-fusion no-masked-softmax-fusion no-bias-* "
     "enable-cuda-graph cuda-graph-* use-flash-attn transformer-impl; vLLM: enforce-eager; llama.cpp: "
     "flash-attn",
     NULL, "weft's own kernels need no such choice"},
    {"Megatron-LM: overlap-* tp-comm-*", NULL, "weft always overlaps communication"},
    /* the run */
    {"nanoGPT: out-dir; transformers: output-dir; Megatron-LM: save; Lightning: logdir; fairseq: save-dir; "
     "PyTorch: checkpoint-dir ckpt-dir",
     "--out %", "the output directory"},
    {"nanoGPT: eval-interval; transformers: eval-steps; Lightning: val-check-interval",
     "--eval-every %", "the steps between evaluations"},
    {"nanoGPT: eval-iters", "--eval-batches %", "the batches per evaluation"},
    {"nanoGPT: eval-iters", "--max-batches %", "the batches per evaluation"},
    {"transformers: max-eval-samples", "--eval-samples %", "the sequences per evaluation"},
    {"nanoGPT: eval-only; Megatron-LM: skip-train; llama.cpp: perplexity hellaswag*",
     NULL, "use 'weft eval'"},
    {"transformers: do-train", NULL, "'weft train' always trains"},
    {"transformers: do-eval", NULL, "'weft train' evaluates every --eval-every steps; see also 'weft eval'"},
    {"transformers: do-predict", NULL, "use 'weft predict'"},
    {"transformers: eval-strategy evaluation-strategy",
     "--eval-every %", "when to evaluate, in steps or per epoch"},
    {"transformers: save-strategy", "--save-every %", "when to save, in steps or per epoch"},
    {"transformers: load-best-model-at-end metric-for-best-model greater-is-better; PyTorch: save-best",
     NULL, "OUT/best is the checkpoint with the lowest validation loss"},
    {"Megatron-LM: finetune no-load-*",
     "--model DIR", "the checkpoint to start from, without optimizer state"},
    {"Megatron-LM: exit-signal-handler", NULL, "weft saves when it is signalled"},
    {"Megatron-LM: exit-*", NULL, "see --steps and --save-on-signal-seconds"},
    {"Megatron-LM: ckpt-format use-dist-ckpt dist-ckpt-*",
     NULL, "weft's checkpoints load in any layout and in transformers"},
    {"transformers: push-to-hub hub-*",
     NULL, "weft uploads nothing; its checkpoints are directories of transformers"},
    {"Megatron-LM: mock-data", NULL, "use 'weft bench', which needs no data"},
    {"Megatron-LM: save-interval; transformers: save-steps; nanoGPT: save-freq",
     "--save-every %", "the steps between checkpoints"},
    {"nanoGPT: always-save-checkpoint", "--save-every N", "saving after every evaluation"},
    {"transformers: save-total-limit", "--keep %", "the number of checkpoints to keep"},
    {"Megatron-LM: log-interval; transformers: logging-steps",
     "--log-every %", "the steps between log lines"},
    {"transformers: overwrite-output-dir", NULL, "weft never overwrites a run; choose another --out"},
    {"transformers: disable-tqdm log-level*; wget: q", "--quiet", "hiding the progress"},
    {"nanoGPT: wandb*; axolotl: use-wandb mlflow* comet*; PyTorch: neptune*; transformers: trackio-* "
     "report-to logging-dir; Megatron-LM: tensorboard* log-timers-to-tensorboard log-throughput; torchrun: "
     "log-dir",
     NULL, "runs with --out always write metrics.jsonl and TensorBoard event files"},
    {"transformers: run-name; PyTorch: exp-name", "--out DIR", "the run, whose directory is its name"},
    {"Megatron-LM: profile", "--trace", "recording a timeline"},
    {"transformers: deepspeed; DeepSpeed: deepspeed-config", "--config %", "the DeepSpeed configuration"},
    {"DeepSpeed: config-file", "--config %", "the configuration"},
    {"Megatron-LM: yaml-cfg; transformers: args", "--config FILE", "the configuration, in JSON"},
    /* what weft does not do */
    {"PEFT: lora-r lora-rank", "--lora %", "the rank of adapters"},
    {"PEFT: target-modules lora-target-modules", "--lora-targets %", "the layers that get adapters"},
    {"PEFT: use-rslora", "--rslora", "the scale of adapters"},
    {"PEFT: modules-to-save", "--freeze '!PATTERN'", "parameters that are trained besides adapters"},
    {"llama.cpp: lora", "--adapter %", "an adapter"},
    {"PEFT: lora* qlora* use-lora use-dora peft*; TRL: use-peft; axolotl: adapter*",
     "--lora RANK", "adapters"},
    {"llama.cpp: control-vector*", NULL, "weft has no control vectors"},
    {"transformers: load-in-4bit", "--lora-base nf4", "the type of the weights beside adapters"},
    {"transformers: load-in-8bit", "--lora-base int8", "the type of the weights beside adapters"},
    {"transformers: bnb-*; vLLM: quantization*; lit-gpt: quantize; llama.cpp: "
     "imatrix",
     NULL, "use 'weft quantize', or train with --quantize-aware"},
    {"TRL: dpo* ppo* rlhf reward-*", NULL, "weft has no preference training; --model DIR fine-tunes on text"},
    {"TRL: sft", "--model DIR", "fine-tuning: train from a checkpoint"},
    {"transformers: neftune-*", NULL, "weft adds no noise to embeddings"},
    {"optimum: onnx*", NULL, "weft does not write ONNX; see 'weft convert'"},
    /* generation */
    {"llama.cpp: draft* model-draft md gpu-layers-draft; vLLM: speculative-*; transformers: assistant-model",
     NULL, "weft has no speculative decoding"},
    {"llama.cpp: instruct conversation cnv", "--chat", "a conversation; --interactive reads it from the terminal"},
    {"llama.cpp: interactive-first", "--interactive", "continuing a text interactively"},
    {"llama.cpp: chat-template-file", "--chat-template FILE", "a Jinja template"},
    {"llama.cpp: system-prompt* sys", "--system %", "the system message"},
    {"llama.cpp: chat-template-kwargs jinja",
     NULL, "--chat applies the model's chat template, which is always Jinja"},
    {"llama.cpp: no-conversation single-turn",
     NULL, "without --interactive, weft answers the prompt and ends"},
    {"llama.cpp: no-display-prompt", NULL, "with --json, 'prompt' and 'text' are separate"},
    {"llama.cpp: escape", NULL, "the shell's $'...' has escapes such as \\n"},
    {"llama.cpp: grammar* json-schema*",
     NULL, "weft does not constrain text to a grammar; see --stop and --logit-bias"},
    {"llama.cpp: mirostat* samplers top-nsigma xtc-* dynatemp-*; KoboldAI: top-a",
     NULL, "weft samples with --temperature, --top-k, --top-p, --min-p and --typical-p"},
    {"llama.cpp: dry-multiplier dry-base dry-allowed-length presence-penalty frequency-penalty "
     "repeat-last-n",
     NULL, "see --repetition-penalty and --no-repeat-ngram"},
    {"make: dry-run", NULL, "use 'weft plan', which takes the same options and trains nothing"},
    {"llama.cpp: ubatch-size cont-batching", "--batch N", "the prompts that are processed together"},
    {"llama.cpp: parallel", "--batch %", "the prompts that are processed together"},
    {"llama.cpp: prompt-cache*", NULL, "weft stores no prompts; --prompts processes several in one start"},
    {"llama.cpp: pooling", "--pool %", "what becomes of the vectors of a text's tokens"},
    {"llama.cpp: embedding*", NULL, "use 'weft embed'"},
    {"llama.cpp: mmproj image", NULL, "weft's models read text only"},
    {"llama.cpp: host port api-key", NULL, "weft has no server"},
    {"earlier weft: watch", "--serve", "following runs"},
    {"vLLM: gpu-memory-utilization", NULL, "weft takes what it needs; 'weft plan' tells how much"},
    {"nanoGPT: start; llama.cpp: p", "--prompt %", "the prompt"},
    {"llama.cpp: n n-predict predict; transformers: max-new-tokens",
     "--max-tokens %", "the number of new tokens"},
    {"llama.cpp: f file", "--prompt-file %", "the file with the prompt"},
    {"llama.cpp: r reverse-prompt stop-sequence", "--stop %", "the text that ends the output"},
    {"gcc: v", NULL, "'weft version' prints the version; progress is shown by default"},
    {"transformers: max-length", "--max-tokens N", "the length of prompt and new tokens together"},
    {"nanoGPT: num-samples; transformers: num-return-sequences",
     "--samples %", "the continuations per prompt"},
    {"transformers: num-beams", "--beams %", "the number of beams"},
    {"transformers: no-repeat-ngram-size", "--no-repeat-ngram %", "the length of n-grams not to repeat"},
    {"llama.cpp: repeat-penalty", "--repetition-penalty %", "the repetition penalty"},
    {"llama.cpp: temp", "--temperature %", "the temperature"},
    {"llama.cpp: typical", "--typical-p %", "locally typical sampling"},
    {"llama.cpp: ignore-eos", "--ignore-end", "continuing past end tokens"},
    {"transformers: do-sample", "--temperature X", "sampling, which is weft's default"},
    {0},
};

static const ForeignRow commands[] = {
    {"nanoGPT: sample; ollama: run; llama.cpp: infer inference complete completion cli",
     "weft generate", "generating text"},
    {"llama.cpp: chat", "weft generate --interactive --chat", "talking to a model"},
    {"llama.cpp: embedding; PyTorch: embeddings", "weft embed", "computing vectors of texts"},
    {"transformers: pipeline", "weft predict", "running a model on rows without labels"},
    {"Lightning: test validate; llama.cpp: perplexity", "weft eval", "evaluating a model"},
    {"Megatron-LM: pretrain", "weft train", "training from scratch"},
    {"Lightning: fit", "weft train", "training"},
    {"llama.cpp: finetune fine-tune", "weft train --model DIR", "training from a checkpoint"},
    {"nanoGPT: resume", "weft train --out RUN --resume", "continuing a run"},
    {"accelerate: launch; PyTorch: torchrun", "weft train --ranks N", "starting several processes"},
    {"transformers: qa", "weft answer", "answering questions"},
    {"huggingface-cli: download; ollama: pull", "weft fetch", "downloading files"},
    {"Megatron-LM: preprocess", "weft prepare", "tokenizing a corpus"},
    {"llama.cpp: tokenize; tokenizers: encode", "weft tokenizer encode", "converting text to tokens"},
    {"tokenizers: decode; llama.cpp: detokenize", "weft tokenizer decode", "converting tokens to text"},
    {"optimum: export; Megatron-LM: merge", "weft convert", "writing a checkpoint in another form"},
    {"Lightning: profile", "weft bench", "measuring a step"},
    {"accelerate: estimate estimate-memory", "weft plan", "predicting memory"},
    {"wandb: sweep", "weft compare", "running several variants"},
    {"Lightning: tune; DeepSpeed: autotune", "weft plan --search", "searching for a layout"},
    {"accelerate: env", "weft info", "describing this machine"},
    {"ollama: show", "weft info", "describing a model"},
    {"TensorBoard: tensorboard", "weft report --serve", "following runs"},
    {"axolotl: lora", NULL, "weft trains all weights: 'weft train --model DIR'"},
    {"TRL: dpo", NULL, "weft has no preference training; 'weft train --model DIR' fine-tunes on text"},
    {"TRL: sft", "weft train --model DIR", "fine-tuning"},
    {"llama.cpp: quant", "weft quantize", "quantizing a model"},
    {"llama.cpp: serve server", NULL, "weft has no server"},
    {0},
};

static const ForeignRow values[] = {
    {"adam fusedadam adamw_torch adamw_torch_fused adamw_hf", "--optimizer adamw", ""},
    {"lion_32bit", "--optimizer lion", ""},
    {"dist_muon", "--optimizer muon", ""},
    {"bfloat16 torch.bfloat16 bf16-mixed bf16-true", "--precision bf16", ""},
    {"float16 torch.float16 half f16 16 16-mixed", "--precision fp16", ""},
    {"float32 torch.float32 float f32 32 no", "--precision fp32", ""},
    {"e4m3 hybrid", "--precision fp8", ""},
    {"tensorwise", "--fp8-scaling exact", ""},
    {"bfloat16", "--dtype bf16", ""},
    {"float16 half f16", "--dtype fp16", ""},
    {"float32 float f32", "--dtype fp32", ""},
    {"auto", "--dtype same", ""},
    {"bfloat16", "--kv bf16", ""},
    {"float32 f32", "--kv fp32", ""},
    {"q8_0", "--kv int8", ""},
    {"gpu cuda:0 nvidia", "--device cuda", ""},
    {"constant_with_warmup none", "--schedule constant", ""},
    {"cosine_annealing", "--schedule cosine", ""},
    {"logarithmic", "--warmup-type log", ""},
    {"full uniform", "--recompute block", ""},
    {"off", "--recompute none", ""},
    {"cpu", "--offload optimizer", ""},
    {"param", "--offload params", ""},
    {"activation", "--offload activations", ""},
    {"1F1B", "--pp-schedule 1f1b", ""},
    {"interleaved-1f1b vpp", "--pp-schedule interleaved", ""},
    {"zb zbh1", "--pp-schedule zero-bubble", ""},
    {"clm causal-lm causal_lm text-generation", "--task lm", ""},
    {"masked-lm fill-mask", "--task mlm", ""},
    {"question-answering qa", "--task span", ""},
    {"text-classification classification sequence-classification", "--task classify", ""},
    {"single_label_classification", "--problem-type single-label", ""},
    {"multi_label_classification", "--problem-type multi-label", ""},
    {"txt", "--format text", ""},
    {"bin", "--format u16", ""},
    {"csv tsv", "--format records", ""},
    {"unstructured", "--kind weights", ""},
    {"neurons", "--kind rows", ""},
    {"gpt2-124M gpt2-small-124M", "--model gpt2", ""},
    {"gpt2-355M", "--model gpt2-medium", ""},
    {"gpt2-774M", "--model gpt2-large", ""},
    {"gpt2-1.5B", "--model gpt2-xl", ""},
    {0},
};
/* clang-format on */

const ForeignRow *foreign_rows(ForeignKind kind) {
    return kind == FOREIGN_OPTION ? options : kind == FOREIGN_COMMAND ? commands : values;
}

bool foreign_next(Foreign *foreign) {
    const char *at = foreign->rest + strspn(foreign->rest, " ;"), *colon = strstr(at, ": ");
    if (colon && colon < at + strcspn(at, ";")) {
        snprintf(foreign->tool, sizeof foreign->tool, "%.*s", (int)(colon - at), at);
        at = colon + 2;
    }
    int length = (int)strcspn(at, " ;");
    snprintf(foreign->name, sizeof foreign->name, "%.*s", length, at);
    foreign->rest = at + length;
    return length > 0;
}

/* `name` may end with "=VALUE", which must then be the value, or with "*", for any rest. */
static bool same_name(const char *typed, const char *value, const char *name) {
    for (; *typed && *name && *name != '*'; typed++, name++)
        if ((*typed == '_' ? '-' : *typed) != *name) return false;
    if (*name == '*') return true;
    return !*typed && (!*name || (*name == '=' && value && !strcasecmp(value, name + 1)));
}

/* The slot of the option that `use` starts with; NULL if the command has none, or one of another type. */
static Slot *slot_of(const Invocation *call, const char *use) {
    char name[64];
    size_t length = strcspn(use, " ");
    snprintf(name, sizeof name, "%.*s", (int)length - 2, use + 2);
    Slot *slot = invocation_slot(call, name);
    if (!slot && !strncmp(name, "no-", 3)) slot = invocation_slot(call, name + 3);
    return slot && (slot->option->type == OPTION_FLAG) == !use[length] ? slot : NULL;
}

bool foreign_option(const Invocation *call, const char *name, const char *value, Foreign *ret_foreign) {
    name += strspn(name, "-");
    for (const ForeignRow *row = options; row->names; row++) {
        Foreign at = {.row = row, .rest = row->names};
        while (foreign_next(&at))
            if (same_name(name, value, at.name) && (!row->use || slot_of(call, row->use))) {
                *ret_foreign = at;
                return true;
            }
    }
    return false;
}

/* "nanoGPT's", "transformers'" */
static const char *possessive(const Foreign *foreign, char buffer[FOREIGN_TOOL + 2]) {
    bool plural = foreign->tool[strlen(foreign->tool) - 1] == 's';
    snprintf(buffer, FOREIGN_TOOL + 2, "%s'%s", foreign->tool, plural ? "" : "s");
    return buffer;
}

Status foreign_refuse_option(const Invocation *call, const Foreign *foreign, const char *typed,
                             const char *value) {
    const char *command = call->command->name, *use = foreign->row->use, *what = foreign->row->what;
    if (!use) return USAGE("weft %s has no %s, an option of %s; %s", command, typed, foreign->tool, what);
    char owner[FOREIGN_TOOL + 2];
    const Option *option = slot_of(call, use)->option;
    const char *own = value ? foreign_value(option->name, value) : NULL;
    size_t before = strcspn(use, "%");
    const char *shown = !use[before] ? "" : own ? own : value ? value : option->placeholder;
    return USAGE("weft %s has no %s; use %.*s%s (%s name for %s)", command, typed, (int)before, use, shown,
                 possessive(foreign, owner), what);
}

Status foreign_refuse_command(const char *name) {
    char owner[FOREIGN_TOOL + 2];
    for (const ForeignRow *row = commands; row->names; row++) {
        Foreign at = {.row = row, .rest = row->names};
        while (foreign_next(&at)) {
            if (!same_name(name, NULL, at.name)) continue;
            if (!row->use)
                return USAGE("weft has no command '%s', a command of %s; %s", at.name, at.tool, row->what);
            return USAGE("weft has no command '%s'; use '%s' (%s name for %s)", at.name, row->use,
                         possessive(&at, owner), row->what);
        }
    }
    return OK;
}

const char *foreign_value(const char *option, const char *text) {
    size_t length = strlen(option);
    for (const ForeignRow *row = values; row->names; row++) {
        Foreign at = {.row = row, .rest = row->names};
        bool same = !strncmp(row->use + 2, option, length) && row->use[2 + length] == ' ';
        while (same && foreign_next(&at))
            if (!strcasecmp(at.name, text)) return row->use + 2 + length + 1;
    }
    return NULL;
}
