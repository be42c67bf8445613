/* The tables of other tools' names. A name may have several rows; the first that applies to the command
 * counts. */
#include "cli/foreign.h"

#include <string.h>
#include <strings.h>

#include "base/memory.h"

#define NANOGPT      "nanoGPT"
#define TRANSFORMERS "transformers"
#define MEGATRON     "Megatron-LM"
#define DEEPSPEED    "DeepSpeed"
#define LLAMA        "llama.cpp"
#define TORCHRUN     "torchrun"
#define LIGHTNING    "Lightning"

#define HOSTS "to use several hosts, pass --ranks and --hosts, or start weft with mpirun or srun"
#define CODE  "weft's own kernels need no such choice"
#define LOGS  "runs with --out always write metrics.jsonl and TensorBoard event files"

static const ForeignOption options[] = {
    /* model */
    {"n-layer", NANOGPT, "--layers %", "the number of layers"},
    {"num-layers", MEGATRON, "--layers %", "the number of layers"},
    {"num-hidden-layers", TRANSFORMERS, "--layers %", "the number of layers"},
    {"n-embd", NANOGPT, "--hidden %", "the hidden size"},
    {"hidden-size", MEGATRON, "--hidden %", "the hidden size"},
    {"d-model", TRANSFORMERS, "--hidden %", "the hidden size"},
    {"n-head", NANOGPT, "--heads %", "the number of attention heads"},
    {"num-attention-heads", MEGATRON, "--heads %", "the number of attention heads"},
    {"ffn-hidden-size", MEGATRON, "--inner %", "the size of the feed-forward layer"},
    {"intermediate-size", TRANSFORMERS, "--inner %", "the size of the feed-forward layer"},
    {"n-inner", TRANSFORMERS, "--inner %", "the size of the feed-forward layer"},
    {"block-size", NANOGPT, "--seq %", "the sequence length"},
    {"seq-length", MEGATRON, "--seq %", "the sequence length"},
    {"max-position-embeddings", MEGATRON, "--seq %", "the sequence length"},
    {"max-seq-length", TRANSFORMERS, "--seq %", "the sequence length"},
    {"max-seq-len", TRANSFORMERS, "--seq %", "the sequence length"},
    {"n-positions", TRANSFORMERS, "--seq %", "the sequence length"},
    {"n-ctx", TRANSFORMERS, "--seq %", "the sequence length"},
    {"ctx-size", LLAMA, "--seq %", "the sequence length"},
    {"vocab-size", TRANSFORMERS, "--vocab %", "the vocabulary size"},
    {"attention-dropout", MEGATRON, "--dropout %", "the dropout rate"},
    {"hidden-dropout", MEGATRON, "--dropout %", "the dropout rate"},
    {"model-name-or-path", TRANSFORMERS, "--model %", "the model"},
    {"init-from=resume", NANOGPT, "--resume", "continuing the run in --out"},
    {"init-from=scratch", NANOGPT, "--model gpt2", "a model with random weights"},
    {"init-from", NANOGPT, "--model %", "the model to start from"},
    {"load", MEGATRON, "--model %", "the checkpoint to start from"},
    {"from-pretrained", TRANSFORMERS, "--model %", "the model to start from"},
    {"tokenizer-name", TRANSFORMERS, "--tokenizer %", "the tokenizer"},
    {"reset-attention-mask", MEGATRON, "--no-cross-document", "attention within documents"},
    {"reset-position-ids", MEGATRON, "--no-cross-document", "positions that restart in each document"},
    {"eod-mask-loss", MEGATRON, "--no-cross-document", "no prediction after the end of a document"},
    {"vocab-file", MEGATRON, "--tokenizer DIR", "the tokenizer's files"},
    {"merge-file", MEGATRON, "--tokenizer DIR", "the tokenizer's files"},
    {"tokenizer-type", MEGATRON, "--tokenizer DIR", "the tokenizer"},
    {"task-name", TRANSFORMERS, "--task classify", "a classification task"},
    {"mlm", TRANSFORMERS, "--task mlm", "training on masked tokens"},
    {"num-labels", TRANSFORMERS, "--labels %", "the number of labels"},
    {"bias", NANOGPT, NULL, "weft's models always have biases, as GPT-2 and BERT do"},
    {"init-method-std", MEGATRON, NULL, "weft initializes weights as GPT-2 and BERT do"},
    {"make-vocab-size-divisible-by", MEGATRON, NULL, "weft pads the vocabulary by itself"},
    /* data */
    {"dataset", NANOGPT, "--data %", "the training data"},
    {"dataset-name", TRANSFORMERS, "--data FILE", "the training data"},
    {"train-file", TRANSFORMERS, "--data %", "the training data"},
    {"train-data", MEGATRON, "--data %", "the training data"},
    {"data-path", MEGATRON, "--data %", "the training data"},
    {"train-data-path", MEGATRON, "--data %", "the training data"},
    {"data-dir", NANOGPT, "--data %", "the training data"},
    {"input", MEGATRON, "--data %", "the input files"},
    {"input-bin", "llm.c", "--data %", "the training data"},
    {"validation-file", TRANSFORMERS, "--val %", "the validation data"},
    {"valid-data-path", MEGATRON, "--val %", "the validation data"},
    {"eval-file", TRANSFORMERS, "--data %", "the data to evaluate on"},
    {"predict-file", TRANSFORMERS, "--data %", "the data to evaluate on"},
    {"validation-split-percentage", TRANSFORMERS, "--val-fraction X", "the fraction held out, in percent"},
    {"split", MEGATRON, "--val-fraction X", "the fractions of training and validation data"},
    {"json-keys", MEGATRON, "--field %", "the field that contains the text"},
    {"text-column", TRANSFORMERS, "--text-field %", "the column with the text"},
    {"text-column-name", TRANSFORMERS, "--text-field %", "the column with the text"},
    {"label-column-name", TRANSFORMERS, "--label-field %", "the column with the label"},
    {"output-prefix", MEGATRON, "--out %", "the output"},
    {"workers", MEGATRON, "--threads %", "the number of threads"},
    {"mask-prob", MEGATRON, "--mask-rate %", "the fraction of masked tokens"},
    {"mlm-probability", TRANSFORMERS, "--mask-rate %", "the fraction of masked tokens"},
    {"whole-word-mask", TRANSFORMERS, "--whole-word-masking", "masking whole words"},
    {"max-query-length", TRANSFORMERS, "--max-query %", "the maximum length of a question"},
    {"max-answer-length", TRANSFORMERS, "--max-answer %", "the maximum length of an answer"},
    {"n-best-size", TRANSFORMERS, "--n-best %", "the number of candidate answers"},
    {"null-score-diff-threshold", TRANSFORMERS, "--null-threshold %", "the threshold for no answer"},
    {"num-workers", LIGHTNING, NULL, "weft maps its data into memory and needs no loader processes"},
    {"dataloader-num-workers", TRANSFORMERS, NULL, "weft maps its data into memory and needs no workers"},
    {"preprocessing-num-workers", TRANSFORMERS, "--threads %", "the number of threads"},
    /* length, batch and optimizer */
    {"max-iters", NANOGPT, "--steps %", "the number of steps"},
    {"train-iters", MEGATRON, "--steps %", "the number of steps"},
    {"max-steps", TRANSFORMERS, "--steps %", "the number of steps"},
    {"max-train-steps", TRANSFORMERS, "--steps %", "the number of steps"},
    {"num-iterations", "llm.c", "--steps %", "the number of steps"},
    {"iters", NANOGPT, "--steps %", "the number of steps"},
    {"num-train-epochs", TRANSFORMERS, "--epochs %", "the number of epochs"},
    {"num-epochs", TRANSFORMERS, "--epochs %", "the number of epochs"},
    {"max-epochs", LIGHTNING, "--epochs %", "the number of epochs"},
    {"global-batch-size", MEGATRON, "--batch %", "the sequences per step over all ranks"},
    {"train-batch-size", DEEPSPEED, "--batch %", "the sequences per step over all ranks"},
    {"total-batch-size", "llm.c", "--batch N", "the tokens per step; --batch counts sequences"},
    {"micro-batch-size", MEGATRON, "--micro-batch %", "the sequences per forward pass"},
    {"per-device-train-batch-size", TRANSFORMERS, "--micro-batch %", "the sequences per forward pass"},
    {"per-gpu-train-batch-size", TRANSFORMERS, "--micro-batch %", "the sequences per forward pass"},
    {"train-micro-batch-size-per-gpu", DEEPSPEED, "--micro-batch %", "the sequences per forward pass"},
    {"batch-size", NANOGPT, "--micro-batch %", "the sequences per forward pass; --batch is the global batch"},
    {"batch-size", TRANSFORMERS, "--batch %", "the sequences per batch"},
    {"per-device-eval-batch-size", TRANSFORMERS, "--batch %", "the sequences per forward pass"},
    {"gradient-accumulation-steps", TRANSFORMERS, "--batch N",
     "the micro-batches per step; batch = micro-batch x replicas x accumulation"},
    {"accumulate-grad-batches", LIGHTNING, "--batch N",
     "the micro-batches per step; batch = micro-batch x replicas x accumulation"},
    {"learning-rate", TRANSFORMERS, "--lr %", "the learning rate"},
    {"lr-warmup-iters", MEGATRON, "--warmup %", "the warm-up steps"},
    {"warmup-iters", NANOGPT, "--warmup %", "the warm-up steps"},
    {"warmup-steps", TRANSFORMERS, "--warmup %", "the warm-up steps"},
    {"num-warmup-steps", TRANSFORMERS, "--warmup %", "the warm-up steps"},
    {"lr-warmup-fraction", MEGATRON, "--warmup-ratio %", "the warm-up as a fraction of the steps"},
    {"lr-decay-style", MEGATRON, "--schedule %", "the schedule of the learning rate"},
    {"lr-scheduler-type", TRANSFORMERS, "--schedule %", "the schedule of the learning rate"},
    {"lr-scheduler", TRANSFORMERS, "--schedule %", "the schedule of the learning rate"},
    {"decay-lr=false", NANOGPT, "--schedule constant", "a learning rate without decay"},
    {"decay-lr", NANOGPT, "--schedule cosine", "the decay of the learning rate"},
    {"lr-decay-iters", MEGATRON, "--steps N", "the end of the decay, which in weft is the last step"},
    {"clip-grad", MEGATRON, "--clip %", "the maximum gradient norm"},
    {"grad-clip", NANOGPT, "--clip %", "the maximum gradient norm"},
    {"max-grad-norm", TRANSFORMERS, "--clip %", "the maximum gradient norm"},
    {"gradient-clip-val", LIGHTNING, "--clip %", "the maximum gradient norm"},
    {"gradient-clipping", DEEPSPEED, "--clip %", "the maximum gradient norm"},
    {"adam-beta1", MEGATRON, "--beta1 %", "Adam's first decay rate"},
    {"adam-beta2", MEGATRON, "--beta2 %", "Adam's second decay rate"},
    {"adam-eps", MEGATRON, "--eps %", "Adam's epsilon"},
    {"adam-epsilon", TRANSFORMERS, "--eps %", "Adam's epsilon"},
    {"optimizer", MEGATRON, NULL, "weft trains with AdamW"},
    {"optim", TRANSFORMERS, NULL, "weft trains with AdamW"},
    {"random-seed", MEGATRON, "--seed %", "the random seed"},
    {"manual-seed", "PyTorch", "--seed %", "the random seed"},
    /* precision and memory */
    {"dtype", NANOGPT, "--precision %", "the compute precision"},
    {"torch-dtype", TRANSFORMERS, "--precision %", "the compute precision"},
    {"params-dtype", MEGATRON, "--precision %", "the compute precision"},
    {"mixed-precision", "accelerate", "--precision %", "the compute precision"},
    {"bf16", TRANSFORMERS, "--precision bf16", "bf16 precision"},
    {"bf16", TRANSFORMERS, "--dtype bf16", "bf16 weights"},
    {"fp16", TRANSFORMERS, "--precision fp16", "fp16 precision"},
    {"fp16", TRANSFORMERS, "--dtype fp16", "fp16 weights"},
    {"half", "PyTorch", "--precision fp16", "fp16 precision"},
    {"fp32", MEGATRON, "--precision fp32", "fp32 precision"},
    {"tf32", TRANSFORMERS, "--precision tf32", "TF32 precision"},
    {"fp8", MEGATRON, "--precision fp8", "fp8 precision"},
    {"fp8-format", MEGATRON, "--precision fp8", "fp8 precision"},
    {"fp8-recipe", MEGATRON, "--fp8-scaling %", "how fp8 operands are scaled"},
    {"amp", "PyTorch", "--precision fp16", "automatic mixed precision"},
    {"initial-loss-scale", MEGATRON, "--loss-scale %", "the initial loss scale"},
    {"loss-scale-window", MEGATRON, "--loss-scale-steps %", "the steps before the loss scale grows"},
    {"outtype", LLAMA, "--dtype %", "the type of the weights"},
    {"cache-type-k", LLAMA, "--kv %", "the type of the KV cache"},
    {"cache-type-v", LLAMA, "--kv %", "the type of the KV cache"},
    {"gradient-checkpointing", TRANSFORMERS, "--recompute block", "activation checkpointing"},
    {"activation-checkpointing", DEEPSPEED, "--recompute block", "activation checkpointing"},
    {"checkpoint-activations", MEGATRON, "--recompute block", "activation checkpointing"},
    {"recompute-activations", MEGATRON, "--recompute selective", "selective recomputation"},
    {"recompute-granularity", MEGATRON, "--recompute %", "what is recomputed"},
    {"recompute-method", MEGATRON, "--recompute block", "how blocks are recomputed"},
    {"recompute-num-layers", MEGATRON, "--recompute block", "the recomputed layers, in weft all of them"},
    {"cpu-offload", DEEPSPEED, "--offload optimizer", "offloading the optimizer state"},
    {"optimizer-cpu-offload", MEGATRON, "--offload optimizer", "offloading the optimizer state"},
    {"offload-optimizer", DEEPSPEED, "--offload optimizer", "offloading the optimizer state"},
    {"offload-param", DEEPSPEED, "--offload params", "offloading the parameters"},
    /* layout */
    {"tensor-model-parallel-size", MEGATRON, "--tp %", "the size of tensor parallelism"},
    {"tensor-parallel-size", "vLLM", "--tp %", "the size of tensor parallelism"},
    {"model-parallel-size", MEGATRON, "--tp %", "the size of tensor parallelism"},
    {"pipeline-model-parallel-size", MEGATRON, "--pp %", "the number of pipeline stages"},
    {"pipeline-parallel-size", DEEPSPEED, "--pp %", "the number of pipeline stages"},
    {"pipe-parallel-size", DEEPSPEED, "--pp %", "the number of pipeline stages"},
    {"num-layers-per-virtual-pipeline-stage", MEGATRON, "--pp-schedule interleaved",
     "the interleaved schedule; --pp-chunks sets the chunks per stage"},
    {"virtual-pipeline-model-parallel-size", MEGATRON, "--pp-chunks %", "the model chunks per stage"},
    {"data-parallel-size", MEGATRON, "--dp %", "the number of replicas"},
    {"use-distributed-optimizer", MEGATRON, "--zero 1", "sharding the optimizer state"},
    {"zero-stage", DEEPSPEED, "--zero %", "the ZeRO stage"},
    {"zero1", DEEPSPEED, "--zero 1", "ZeRO stage 1"},
    {"zero2", DEEPSPEED, "--zero 2", "ZeRO stage 2"},
    {"zero3", DEEPSPEED, "--zero 3", "ZeRO stage 3"},
    {"fsdp", TRANSFORMERS, "--zero 3", "fully sharded data parallelism"},
    {"use-torch-fsdp2", MEGATRON, "--zero 3", "fully sharded data parallelism"},
    {"ddp", "PyTorch", "--dp N", "data parallelism"},
    {"nproc-per-node", TORCHRUN, "--ranks %", "the number of processes"},
    {"nproc", TORCHRUN, "--ranks %", "the number of processes"},
    {"num-processes", "accelerate", "--ranks %", "the number of processes"},
    {"world-size", MEGATRON, "--ranks %", "the number of processes"},
    {"num-gpus", DEEPSPEED, "--ranks %", "the number of processes"},
    {"gpus", LIGHTNING, "--ranks %", "the number of processes"},
    {"devices", LIGHTNING, "--ranks %", "the number of processes"},
    {"np", "mpirun", "--ranks %", "the number of processes"},
    {"include", DEEPSPEED, NULL, HOSTS},
    {"num-nodes", DEEPSPEED, NULL, HOSTS},
    {"nnodes", TORCHRUN, NULL, HOSTS},
    {"node-rank", TORCHRUN, NULL, HOSTS},
    {"master-addr", TORCHRUN, NULL, HOSTS},
    {"master-port", TORCHRUN, NULL, HOSTS},
    {"rdzv-backend", TORCHRUN, NULL, HOSTS},
    {"rdzv-endpoint", TORCHRUN, NULL, HOSTS},
    {"rdzv-id", TORCHRUN, NULL, HOSTS},
    {"standalone", TORCHRUN, "--ranks N", "processes on this host only"},
    {"local-rank", TORCHRUN, NULL, "weft finds its rank by itself"},
    {"distributed-backend", MEGATRON, NULL, "weft uses NCCL between GPUs and MPI elsewhere"},
    {"backend", NANOGPT, NULL, "weft uses NCCL between GPUs and MPI elsewhere"},
    {"no-cuda", TRANSFORMERS, "--device cpu", "running on the CPU"},
    {"use-cpu", TRANSFORMERS, "--device cpu", "running on the CPU"},
    {"accelerator", LIGHTNING, "--device %", "the device"},
    {"n-gpu-layers", LLAMA, "--device cuda", "running on the GPU"},
    {"gpu-layers", LLAMA, "--device cuda", "running on the GPU"},
    {"ngl", LLAMA, "--device cuda", "running on the GPU"},
    {"cuda", "PyTorch", "--device cuda", "running on the GPU"},
    {"gpu", "PyTorch", "--device cuda", "running on the GPU"},
    {"cpu", "PyTorch", "--device cpu", "running on the CPU"},
    {"num-threads", LLAMA, "--threads %", "the number of threads"},
    {"compile", NANOGPT, NULL, CODE},
    {"torch-compile", TRANSFORMERS, NULL, CODE},
    {"use-flash-attn", MEGATRON, NULL, CODE},
    {"flash-attn", LLAMA, NULL, CODE},
    {"attn-implementation", TRANSFORMERS, NULL, CODE},
    {"transformer-impl", MEGATRON, NULL, CODE},
    {"overlap-grad-reduce", MEGATRON, NULL, "weft always overlaps communication"},
    {"overlap-param-gather", MEGATRON, NULL, "weft always overlaps communication"},
    /* the run */
    {"out-dir", NANOGPT, "--out %", "the output directory"},
    {"output-dir", TRANSFORMERS, "--out %", "the output directory"},
    {"save", MEGATRON, "--out %", "the output directory"},
    {"outfile", LLAMA, "--out %", "the output"},
    {"output", LLAMA, "--out %", "the output"},
    {"logdir", LIGHTNING, "--out %", "the output directory"},
    {"eval-interval", NANOGPT, "--eval-every %", "the steps between evaluations"},
    {"eval-steps", TRANSFORMERS, "--eval-every %", "the steps between evaluations"},
    {"val-check-interval", LIGHTNING, "--eval-every %", "the steps between evaluations"},
    {"eval-iters", NANOGPT, "--eval-batches %", "the batches per evaluation"},
    {"eval-iters", NANOGPT, "--max-batches %", "the batches per evaluation"},
    {"max-eval-samples", TRANSFORMERS, "--eval-samples %", "the sequences per evaluation"},
    {"eval-only", NANOGPT, NULL, "use 'weft eval'"},
    {"do-train", TRANSFORMERS, NULL, "'weft train' always trains"},
    {"do-eval", TRANSFORMERS, NULL, "'weft train' evaluates every --eval-every steps; see also 'weft eval'"},
    {"do-predict", TRANSFORMERS, NULL, "use 'weft eval' or 'weft answer'"},
    {"save-interval", MEGATRON, "--save-every %", "the steps between checkpoints"},
    {"save-steps", TRANSFORMERS, "--save-every %", "the steps between checkpoints"},
    {"save-freq", NANOGPT, "--save-every %", "the steps between checkpoints"},
    {"always-save-checkpoint", NANOGPT, "--save-every N", "saving after every evaluation"},
    {"save-total-limit", TRANSFORMERS, "--keep %", "the number of checkpoints to keep"},
    {"log-interval", MEGATRON, "--log-every %", "the steps between log lines"},
    {"logging-steps", TRANSFORMERS, "--log-every %", "the steps between log lines"},
    {"resume-from-checkpoint", TRANSFORMERS, "--resume", "continuing the run in --out"},
    {"resume-from", NANOGPT, "--resume", "continuing the run in --out"},
    {"resume-training", NANOGPT, "--resume", "continuing the run in --out"},
    {"overwrite-output-dir", TRANSFORMERS, NULL, "weft never overwrites a run; choose another --out"},
    {"disable-tqdm", TRANSFORMERS, "--quiet", "hiding the progress"},
    {"wandb-log", NANOGPT, NULL, LOGS},
    {"wandb-project", NANOGPT, NULL, LOGS},
    {"wandb-run-name", NANOGPT, NULL, LOGS},
    {"report-to", TRANSFORMERS, NULL, LOGS},
    {"logging-dir", TRANSFORMERS, NULL, LOGS},
    {"tensorboard-dir", MEGATRON, NULL, LOGS},
    {"profile", MEGATRON, "--trace", "recording a timeline"},
    {"deepspeed", TRANSFORMERS, "--config %", "the DeepSpeed configuration"},
    {"deepspeed-config", DEEPSPEED, "--config %", "the DeepSpeed configuration"},
    {"config-file", DEEPSPEED, "--config %", "the configuration"},
    {"yaml-cfg", MEGATRON, "--config FILE", "the configuration, in JSON"},
    {"args", TRANSFORMERS, "--config FILE", "the configuration, in JSON"},
    /* generation */
    {"start", NANOGPT, "--prompt %", "the prompt"},
    {"p", LLAMA, "--prompt %", "the prompt"},
    {"m", LLAMA, "--model %", "the model"},
    {"t", LLAMA, "--threads %", "the number of threads"},
    {"n", LLAMA, "--max-tokens %", "the number of new tokens"},
    {"n", "mpirun", "--ranks %", "the number of processes"},
    {"f", LLAMA, "--prompt-file %", "the file with the prompt"},
    {"file", LLAMA, "--prompt-file %", "the file with the prompt"},
    {"s", LLAMA, "--seed %", "the random seed"},
    {"r", LLAMA, "--stop %", "the text that ends the output"},
    {"o", "gcc", "--out %", "the output"},
    {"q", "wget", "--quiet", "hiding the progress"},
    {"v", "gcc", NULL, "'weft version' prints the version; progress is shown by default"},
    {"reverse-prompt", LLAMA, "--stop %", "the text that ends the output"},
    {"stop-sequence", LLAMA, "--stop %", "the text that ends the output"},
    {"n-predict", LLAMA, "--max-tokens %", "the number of new tokens"},
    {"predict", LLAMA, "--max-tokens %", "the number of new tokens"},
    {"max-new-tokens", TRANSFORMERS, "--max-tokens %", "the number of new tokens"},
    {"max-length", TRANSFORMERS, "--max-tokens N", "the length of prompt and new tokens together"},
    {"num-samples", NANOGPT, "--samples %", "the continuations per prompt"},
    {"num-return-sequences", TRANSFORMERS, "--samples %", "the continuations per prompt"},
    {"num-beams", TRANSFORMERS, "--beams %", "the number of beams"},
    {"no-repeat-ngram-size", TRANSFORMERS, "--no-repeat-ngram %", "the length of n-grams not to repeat"},
    {"repeat-penalty", LLAMA, "--repetition-penalty %", "the repetition penalty"},
    {"temp", LLAMA, "--temperature %", "the temperature"},
    {"typical", LLAMA, "--typical-p %", "locally typical sampling"},
    {"ignore-eos", LLAMA, "--ignore-end", "continuing past end tokens"},
    {"do-sample", TRANSFORMERS, "--temperature X", "sampling, which is weft's default"},
    {"conversation", LLAMA, "--interactive", "continuing a text interactively"},
    {"cnv", LLAMA, "--interactive", "continuing a text interactively"},
    {0},
};

static const ForeignCommand commands[] = {
    {"sample", NANOGPT, "weft generate", "generating text"},
    {"run", "ollama", "weft generate", "generating text"},
    {"infer", LLAMA, "weft generate", "generating text"},
    {"inference", LLAMA, "weft generate", "generating text"},
    {"complete", LLAMA, "weft generate", "generating text"},
    {"completion", LLAMA, "weft generate", "generating text"},
    {"chat", LLAMA, "weft generate --interactive", "continuing a text interactively"},
    {"cli", LLAMA, "weft generate", "generating text"},
    {"predict", TRANSFORMERS, "weft eval", "running a model on a dataset"},
    {"test", LIGHTNING, "weft eval", "evaluating a model"},
    {"validate", LIGHTNING, "weft eval", "evaluating a model"},
    {"perplexity", LLAMA, "weft eval", "evaluating a model"},
    {"pretrain", MEGATRON, "weft train", "training from scratch"},
    {"fit", LIGHTNING, "weft train", "training"},
    {"finetune", LLAMA, "weft train --model DIR", "training from a checkpoint"},
    {"fine-tune", LLAMA, "weft train --model DIR", "training from a checkpoint"},
    {"resume", NANOGPT, "weft train --out RUN --resume", "continuing a run"},
    {"launch", "accelerate", "weft train --ranks N", "starting several processes"},
    {"torchrun", "PyTorch", "weft train --ranks N", "starting several processes"},
    {"qa", TRANSFORMERS, "weft answer", "answering questions"},
    {"download", "huggingface-cli", "weft fetch", "downloading files"},
    {"pull", "ollama", "weft fetch", "downloading files"},
    {"preprocess", MEGATRON, "weft prepare", "tokenizing a corpus"},
    {"tokenize", LLAMA, "weft tokenizer encode", "converting text to tokens"},
    {"encode", "tokenizers", "weft tokenizer encode", "converting text to tokens"},
    {"decode", "tokenizers", "weft tokenizer decode", "converting tokens to text"},
    {"detokenize", LLAMA, "weft tokenizer decode", "converting tokens to text"},
    {"export", "optimum", "weft convert", "writing a checkpoint in another form"},
    {"merge", MEGATRON, "weft convert", "writing a checkpoint in another form"},
    {"profile", LIGHTNING, "weft bench", "measuring a step"},
    {"estimate", "accelerate", "weft plan", "predicting memory"},
    {"estimate-memory", "accelerate", "weft plan", "predicting memory"},
    {"sweep", "wandb", "weft compare", "running several variants"},
    {"tune", LIGHTNING, "weft plan --search", "searching for a layout"},
    {"autotune", DEEPSPEED, "weft plan --search", "searching for a layout"},
    {"env", "accelerate", "weft info", "describing this machine"},
    {"show", "ollama", "weft info", "describing a model"},
    {"tensorboard", "TensorBoard", "weft report --watch", "following a run"},
    {"serve", LLAMA, NULL, "weft has no server"},
    {"server", LLAMA, NULL, "weft has no server"},
    {0},
};

static const ForeignValue values[] = {
    {"precision", "bfloat16", "bf16"},
    {"precision", "torch.bfloat16", "bf16"},
    {"precision", "bf16-mixed", "bf16"},
    {"precision", "bf16-true", "bf16"},
    {"precision", "float16", "fp16"},
    {"precision", "torch.float16", "fp16"},
    {"precision", "half", "fp16"},
    {"precision", "f16", "fp16"},
    {"precision", "16", "fp16"},
    {"precision", "16-mixed", "fp16"},
    {"precision", "float32", "fp32"},
    {"precision", "torch.float32", "fp32"},
    {"precision", "float", "fp32"},
    {"precision", "f32", "fp32"},
    {"precision", "32", "fp32"},
    {"precision", "no", "fp32"},
    {"precision", "e4m3", "fp8"},
    {"precision", "hybrid", "fp8"},
    {"fp8-scaling", "tensorwise", "exact"},
    {"dtype", "bfloat16", "bf16"},
    {"dtype", "float16", "fp16"},
    {"dtype", "half", "fp16"},
    {"dtype", "f16", "fp16"},
    {"dtype", "float32", "fp32"},
    {"dtype", "float", "fp32"},
    {"dtype", "f32", "fp32"},
    {"dtype", "auto", "same"},
    {"kv", "bfloat16", "bf16"},
    {"kv", "float32", "fp32"},
    {"kv", "f32", "fp32"},
    {"kv", "q8_0", "int8"},
    {"device", "gpu", "cuda"},
    {"device", "cuda:0", "cuda"},
    {"device", "nvidia", "cuda"},
    {"schedule", "constant_with_warmup", "constant"},
    {"schedule", "none", "constant"},
    {"schedule", "cosine_annealing", "cosine"},
    {"warmup-type", "logarithmic", "log"},
    {"recompute", "full", "block"},
    {"recompute", "uniform", "block"},
    {"recompute", "off", "none"},
    {"offload", "cpu", "optimizer"},
    {"offload", "param", "params"},
    {"pp-schedule", "1F1B", "1f1b"},
    {"pp-schedule", "interleaved-1f1b", "interleaved"},
    {"pp-schedule", "vpp", "interleaved"},
    {"pp-schedule", "zb", "zero-bubble"},
    {"pp-schedule", "zbh1", "zero-bubble"},
    {"task", "clm", "lm"},
    {"task", "causal-lm", "lm"},
    {"task", "causal_lm", "lm"},
    {"task", "text-generation", "lm"},
    {"task", "masked-lm", "mlm"},
    {"task", "fill-mask", "mlm"},
    {"task", "question-answering", "span"},
    {"task", "qa", "span"},
    {"task", "text-classification", "classify"},
    {"task", "classification", "classify"},
    {"task", "sequence-classification", "classify"},
    {"problem-type", "single_label_classification", "single-label"},
    {"problem-type", "multi_label_classification", "multi-label"},
    {"format", "txt", "text"},
    {"format", "bin", "u16"},
    {"format", "csv", "records"},
    {"format", "tsv", "records"},
    {"kind", "unstructured", "weights"},
    {"kind", "neurons", "rows"},
    {"model", "gpt2-124M", "gpt2"},
    {"model", "gpt2-small-124M", "gpt2"},
    {"model", "gpt2-355M", "gpt2-medium"},
    {"model", "gpt2-774M", "gpt2-large"},
    {"model", "gpt2-1.5B", "gpt2-xl"},
    {0},
};

const ForeignOption *foreign_options(void) {
    return options;
}

const ForeignCommand *foreign_commands(void) {
    return commands;
}

const ForeignValue *foreign_values(void) {
    return values;
}

/* `name` may end with "=VALUE", which must then be the value. */
static bool same_name(const char *typed, const char *value, const char *name) {
    for (; *typed && *name; typed++, name++)
        if ((*typed == '_' ? '-' : *typed) != *name) return false;
    return !*typed && (!*name || (*name == '=' && value && !strcasecmp(value, name + 1)));
}

enum { OWNER_SIZE = 32 };

static const char *possessive(const char *tool, char *buffer) {
    bool plural = tool[strlen(tool) - 1] == 's';
    snprintf(buffer, OWNER_SIZE, "%s'%s", tool, plural ? "" : "s");
    return buffer;
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

const ForeignOption *foreign_option(const Invocation *call, const char *name, const char *value) {
    name += strspn(name, "-");
    for (const ForeignOption *row = options; row->name; row++)
        if (same_name(name, value, row->name) && (!row->use || slot_of(call, row->use))) return row;
    return NULL;
}

Status foreign_refuse_option(const Invocation *call, const ForeignOption *row, const char *typed,
                             const char *value) {
    const char *command = call->command->name;
    if (!row->use)
        return USAGE("weft %s has no %s, an option of %s; %s", command, typed, row->tool, row->what);
    char owner[OWNER_SIZE];
    const Option *option = slot_of(call, row->use)->option;
    const char *own = value ? foreign_value(option->name, value) : NULL;
    size_t before = strcspn(row->use, "%");
    bool has_value = row->use[before] == '%';
    return USAGE("weft %s has no %s; use %.*s%s (%s name for %s)", command, typed, (int)before, row->use,
                 !has_value ? ""
                 : own      ? own
                 : value    ? value
                            : option->placeholder,
                 possessive(row->tool, owner), row->what);
}

const ForeignCommand *foreign_command(const char *name) {
    for (const ForeignCommand *row = commands; row->name; row++)
        if (same_name(name, NULL, row->name)) return row;
    return NULL;
}

Status foreign_refuse_command(const ForeignCommand *row) {
    char owner[OWNER_SIZE];
    if (!row->use)
        return USAGE("weft has no command '%s', a command of %s; %s", row->name, row->tool, row->what);
    return USAGE("weft has no command '%s'; use '%s' (%s name for %s)", row->name, row->use,
                 possessive(row->tool, owner), row->what);
}

const char *foreign_value(const char *option, const char *text) {
    for (const ForeignValue *row = values; row->option; row++)
        if (!strcmp(row->option, option) && !strcasecmp(row->value, text)) return row->weft;
    return NULL;
}
