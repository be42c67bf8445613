/* Tables of the options of train, bench, plan and prune. The layout options are the same in every command
 * that has them. What this version cannot run is refused by layout_check, what a model does not divide into
 * by train/job_layout.c. */
#include "cli/train_options.h"

#include <math.h>
#include <string.h>

#include "data/reader.h"
#include "kernels/kernels.h"

#define ABOVE_ZERO .low = 0, .high = INFINITY, .above_low = true
#define BELOW_ONE  .low = 0, .high = 1, .below_high = true

const char *const task_choices[] = {"auto", "lm", "mlm", "span", "classify", "squad", NULL};
const char *const format_choices[] = {"auto", "bytes", "u16",   "u32",     "ids",     "shards",
                                      "text", "squad", "pairs", "cornell", "records", NULL};
const char *const device_choices[] = {"cpu", "cuda", NULL};
const char *const kernel_choices[] = {"cpu", "ref", "cuda", NULL};
static const char *const schedule_choices[] = {"cosine", "linear", "constant", NULL};
static const char *const warmup_choices[] = {"linear", "log", NULL};
static const char *const recompute_choices[] = {"none", "selective", "block", NULL};
static const char *const pipeline_choices[] = {"gpipe", "1f1b", "interleaved", "zero-bubble", NULL};
const char *const precision_choices[] = {"fp32", "tf32", "bf16", "fp16", "fp8", NULL};
static const char *const rounding_choices[] = {"none", "int8", "int4", NULL};
static const char *const kind_choices[] = {"weights", "rows", "heads", NULL};
static const char *const ramp_choices[] = {"remaining", "even", NULL};
static const char *const offload_choices[] = {"none", "optimizer", "params", NULL};

/* clang-format off */
static const Option model_table[] = {
    {OPT_TEXT("model", TrainConfig, model, "NAME|DIR"), .fallback = "gpt2-mini",
     .help = "A preset, whose weights start random, or a directory with a checkpoint (weft's or Hugging "
             "Face's) to go on from. Presets: gpt2-tiny, gpt2-mini, gpt2-small, gpt2, gpt2-medium, "
             "gpt2-large, gpt2-xl, bert-tiny, bert-mini, bert-small, bert-base, bert-large."},
    {OPT_TEXT("tokenizer", TrainConfig, text.tokenizer, "DIR"), .shown = "the model's own, else bytes",
     .help = "The tokenizer for text: a directory with its files, or the word bytes. The vocabulary of a "
             "preset follows it, and checkpoints carry its files."},
    {OPT_CHOICE("task", TrainConfig, task, "TASK", task_choices), .fallback = "auto",
     .help = "What to learn: the next token (lm), masked tokens and the next sentence (mlm), the span of "
             "an answer (span; squad is span on SQuAD's files), a label (classify). auto takes what the "
             "model is made for."},
    {OPT_INT("labels", TrainConfig, labels), .fallback = "0", .low = 2, .high = MAX_LABELS,
     .shown = "the model's own", .help = "How many labels there are, for --task classify."},
    {OPT_FLAG("next-sentence", TrainConfig, no_next_sentence), .fallback = "on", .inverted = true,
     .help = "With --task mlm, learn masked tokens alone and leave the next sentence out."},
    {OPT_FLAG("masked-tokens", TrainConfig, no_masks), .fallback = "on", .inverted = true,
     .help = "With --task mlm, learn the next sentence alone and mask nothing."},
    {OPT_INT("layers", TrainConfig, layers), .fallback = "0", .low = 1, .high = INFINITY,
     .shown = "the model's own", .help = "Layers of the model, in place of the preset's."},
    {OPT_INT("hidden", TrainConfig, hidden), .fallback = "0", .low = 1, .high = INFINITY,
     .shown = "the model's own", .help = "Width of the model."},
    {OPT_INT("heads", TrainConfig, heads), .fallback = "0", .low = 1, .high = INFINITY,
     .shown = "the model's own", .help = "Attention heads; they must divide the width."},
    {OPT_INT("inner", TrainConfig, inner), .fallback = "0", .low = 1, .high = INFINITY,
     .shown = "4 times the width", .help = "Width inside the feed-forward part."},
    {OPT_INT("seq", TrainConfig, seq), .fallback = "0", .low = 1, .high = INFINITY,
     .shown = "the model's own", .help = "Tokens in a sequence."},
    {OPT_INT("vocab", TrainConfig, vocab), .fallback = "0", .low = 1, .high = INFINITY,
     .shown = "what the data needs", .help = "Size of the vocabulary."},
    {OPT_FLOAT("dropout", TrainConfig, dropout), .fallback = "-1", BELOW_ONE, .shown = "the model's own",
     .help = "Dropout rate, in all its places."},
};

static const Option data_table[] = {
    {OPT_LIST("data", TrainConfig, data, "FILE"), .required = true,
     .help = "What to train on: files, or a directory that 'weft prepare' made. The word self stands for "
             "weft's own source and documentation."},
    {OPT_LIST("val", TrainConfig, val, "FILE"),
     .help = "What to evaluate on, instead of a part of the data."},
    {OPT_FLOAT("val-fraction", TrainConfig, val_fraction), .fallback = "0.1", BELOW_ONE,
     .help = "The part of the data, at its end, that is kept for evaluation when --val is not given and no "
             "validation shards lie beside the data."},
    {OPT_CHOICE("format", TrainConfig, format, "FORMAT", format_choices), .fallback = "auto",
     .help =
         "How files are read: each byte a token (bytes), little-endian token numbers (u16, u32), JSON "
         "lines with token numbers and labels (ids), what 'weft prepare' writes (shards), text for the "
         "tokenizer (text), SQuAD's questions (squad), rows with q and a (pairs), the Cornell dialogues "
         "(cornell), rows with a text and a label (records). auto goes by the name: .tokens is shards, .bin "
         "and .u16 "
         "are u16, .u32 is u32, .jsonl is ids, text or pairs by its first line, .csv and .tsv are records "
         "with --task classify, "
         "movie_lines and movie_conversations are cornell, .json may be SQuAD's, all else "
         "is text or, without a tokenizer, bytes."},
    {OPT_TEXT("field", TrainConfig, text.field, "NAME"), .fallback = "text",
     .help = "The field of a JSON line that holds the text."},
    {OPT_TEXT("text-field", TrainConfig, text.text_field, "NAME"), .shown = "--field, or q of pairs",
     .help = "The field of .csv, .tsv or .jsonl rows that holds the text, or its number in files without a "
             "line of names."},
    {OPT_TEXT("pair-field", TrainConfig, text.pair_field, "NAME"), .shown = "none, or a of pairs",
     .help = "The field that holds a second text."},
    {OPT_TEXT("label-field", TrainConfig, text.label_field, "NAME"), .fallback = "label",
     .help = "With --task classify, the field that holds the label: a number or a name."},
    {OPT_CHOICE("documents", TrainConfig, text.documents, "WHAT", documents_names), .fallback = "file",
     .help = "What a document is in text files: the whole file, each line, what lies between blank lines, or "
             "an article of WikiText, from title to title."},
    {OPT_FLAG("cache", TrainConfig, text.no_cache), .fallback = "on", .inverted = true,
     .help = "Keep text that was prepared in the run's directory, or in a temporary one without --out. "
             "Otherwise it is kept for other runs in $WEFT_CACHE, or in weft below $XDG_CACHE_HOME or "
             "~/.cache."},
    {OPT_FLAG("shuffle", TrainConfig, no_shuffle), .fallback = "on", .inverted = true,
     .help = "Take the data in the order of the files. Otherwise each epoch has an order of its own, "
             "drawn from the seed."},
    {OPT_INT("doc-stride", TrainConfig, text.doc_stride), .fallback = "128", .low = 1, .high = INT32_MAX,
     .help = "SQuAD: tokens from one window of a long context to the next."},
    {OPT_INT("max-query", TrainConfig, text.max_query), .fallback = "64", .low = 1, .high = INT32_MAX,
     .help = "SQuAD: tokens of a question; what is longer is cut."},
    {OPT_FLOAT("mask-rate", TrainConfig, mask_rate), .fallback = "0.15", .low = 0, .high = 1,
     .above_low = true, .below_high = true, .help = "The part of the tokens that --task mlm masks."},
    {OPT_FLAG("whole-word-masking", TrainConfig, whole_words),
     .help = "With --task mlm, mask all tokens of a word or none (WordPiece vocabularies)."},
};

static const Option training_table[] = {
    {OPT_INT("steps", TrainConfig, steps), .fallback = "1000", .low = 1, .high = INFINITY,
     .help = "Optimizer steps of the run, from its start."},
    {OPT_FLOAT("epochs", TrainConfig, epochs), ABOVE_ZERO,
     .help = "Passes over the data, instead of --steps."},
    {OPT_INT("batch", TrainConfig, batch), .fallback = "8", .low = 1, .high = 1 << 24,
     .help = "Sequences in a step, all micro-batches together."},
    {OPT_INT("micro-batch", TrainConfig, micro_batch), .fallback = "0", .low = 1, .high = 1 << 20,
     .shown = "the batch",
     .help = "Sequences run at once; their gradients add up to the batch's. It must divide the batch. "
             "Fewer need less memory."},
    {OPT_FLOAT("lr", TrainConfig, lr), .fallback = "6e-4", ABOVE_ZERO,
     .help = "Learning rate after the warm-up."},
    {OPT_FLOAT("min-lr", TrainConfig, min_lr), .fallback = "0", .low = 0, .high = INFINITY,
     .help = "Learning rate that the schedule ends with."},
    {OPT_INT("warmup", TrainConfig, warmup), .fallback = "-1", .low = 0, .high = INFINITY,
     .shown = "a twentieth of the steps", .help = "Steps over which the learning rate rises to --lr."},
    {OPT_CHOICE("warmup-type", TrainConfig, warmup_type, "NAME", warmup_choices), .fallback = "linear",
     .help =
         "How the learning rate rises: evenly, or with the logarithm of the step, early and then slower."},
    {OPT_CHOICE("schedule", TrainConfig, schedule, "NAME", schedule_choices), .fallback = "cosine",
     .help = "How the learning rate falls after the warm-up."},
    {OPT_FLOAT("weight-decay", TrainConfig, weight_decay), .fallback = "0.01", .low = 0, .high = INFINITY,
     .help = "AdamW's decoupled decay; biases and layer norms have none."},
    {OPT_FLOAT("beta1", TrainConfig, beta1), .fallback = "0.9", BELOW_ONE,
     .help = "Decay of AdamW's first moment."},
    {OPT_FLOAT("beta2", TrainConfig, beta2), .fallback = "0.999", BELOW_ONE,
     .help = "Decay of AdamW's second moment."},
    {OPT_FLOAT("eps", TrainConfig, eps), .fallback = "1e-8", ABOVE_ZERO,
     .help = "Added to AdamW's denominator."},
    {OPT_FLOAT("clip", TrainConfig, clip), .fallback = "1", .low = 0, .high = INFINITY,
     .help = "Largest norm of all gradients together; larger ones are scaled down to it. 0 turns it off."},
    {OPT_CHOICE("quantize-aware", TrainConfig, quantize_aware, "TYPE", rounding_choices), .fallback = "none",
     .help =
         "Compute with the layers' weights, and for int8 what they take, rounded as 'weft quantize' would "
         "leave them, so that the model gets used to it. What is saved is not rounded."},
    {OPT_FLAG("keep-zeros", TrainConfig, keep_zeros),
     .help = "Weights of matrices that are zero stay zero, such as those that 'weft prune' removed."},
    {OPT_SEED("seed", TrainConfig, seed), .fallback = "1",
     .help = "Seed of the first weights, the dropout and the order of the data."},
};

static const Option run_table[] = {
    {OPT_TEXT("out", TrainConfig, out, "DIR"), .shown = "nothing is kept",
     .help = "Directory of the run: settings, metrics, checkpoints, summary."},
    {OPT_FLAG("resume", TrainConfig, resume),
     .help = "Go on from the newest checkpoint in --out, as if the run had never stopped; without one, "
             "start. The run's settings are those in its directory, unless --config or the line say other."},
    {OPT_INT("eval-every", TrainConfig, eval_every), .fallback = "100", .low = 0, .high = INFINITY,
     .help = "Evaluate every N steps and at the end; 0 for the end alone."},
    {OPT_INT("eval-batches", TrainConfig, eval_batches), .fallback = "20", .low = 0, .high = INFINITY,
     .help = "Batches, of --batch sequences, of an evaluation; 0 for all of the validation data."},
    {OPT_INT("eval-samples", TrainConfig, eval_samples), .fallback = "0", .low = 0, .high = INFINITY,
     .shown = "as --eval-batches says",
     .help = "Sequences of an evaluation, whatever the batch: runs with different batches are then evaluated "
             "on the same ones."},
    {OPT_INT("save-every", TrainConfig, save_every), .fallback = "500", .low = 0, .high = INFINITY,
     .help = "Save a checkpoint every N steps and at the end; 0 for the end alone."},
    {OPT_INT("keep", TrainConfig, keep), .fallback = "2", .low = 0, .high = 1 << 20,
     .help = "Checkpoints to keep, the newest ones; 0 keeps all."},
    {OPT_INT("log-every", TrainConfig, log_every), .fallback = "1", .low = 1, .high = INFINITY,
     .help = "Write a line of metrics.jsonl every N steps."},
    {OPT_FLAG("trace", TrainConfig, trace),
     .help = "Write trace.json into --out: a timeline of what each rank did when, for ui.perfetto.dev or "
             "chrome://tracing."},
    {OPT_INT("trace-steps", TrainConfig, trace_steps), .fallback = "3", .low = 1, .high = 1 << 20,
     .help = "Steps that --trace shows, from the second on."},
    {OPT_FLAG("quiet", TrainConfig, quiet), .help = "Show no progress."},
};

static const Option layout_table[] = {
    {OPT_INT("ranks", TrainArgs, layout.ranks), .fallback = "0", .low = 1, .high = 1 << 20,
     .shown = "those that mpirun or srun started, or dp x tp x pp",
     .help = "Processes that share the work: data x tensor x pipeline. They are started under mpirun."},
    {OPT_INT("dp", TrainArgs, layout.dp), .fallback = "0", .low = 1, .high = 1 << 20,
     .shown = "the ranks that tp x pp leave", .help = "Data-parallel replicas."},
    {OPT_INT("tp", TrainArgs, layout.tp), .fallback = "1", .low = 1, .high = 1 << 20,
     .help = "Tensor-parallel ranks."},
    {OPT_INT("pp", TrainArgs, layout.pp), .fallback = "1", .low = 1, .high = 1 << 20,
     .help = "Pipeline stages."},
    {OPT_INT("zero", TrainArgs, config.zero), .fallback = "0", .low = 0, .high = 3,
     .help = "What the replicas share out: nothing, optimizer state, gradients too, parameters too."},
    {OPT_FLAG("zero-keep", TrainArgs, config.keep_params),
     .help = "With --zero 3, keep parameters whole from the forward to the backward pass: less traffic, more "
             "memory."},
    {OPT_INT("shard", TrainArgs, layout.shard), .fallback = "0", .low = 1, .high = 1 << 20,
     .shown = "all replicas",
     .help =
         "Replicas that share out among them what --zero shards, such as those of one machine; the groups "
         "of so many hold the same. It must divide --dp."},
    {OPT_FLAG("sequence-parallel", TrainArgs, config.sequence),
     .help = "Cut what tensor-parallel ranks would all compute, norms and dropouts, over the positions."},
    {OPT_CHOICE("pp-schedule", TrainArgs, config.pp_schedule, "NAME", pipeline_choices), .fallback = "1f1b",
     .help = "Order of work in the pipeline."},
    {OPT_INT("pp-chunks", TrainArgs, config.pp_chunks), .fallback = "0", .low = 1, .high = 64,
     .shown = "2 where interleaved",
     .help = "Chunks of layers that a stage has, with --pp-schedule interleaved."},
    {OPT_CHOICE("recompute", TrainArgs, config.recompute, "WHAT", recompute_choices), .fallback = "none",
     .help = "What the backward pass computes again instead of keeping it in memory."},
    {OPT_CHOICE("precision", TrainArgs, config.precision, "TYPE", precision_choices),
     .shown = "fp32, and bf16 on a GPU",
     .help =
         "Number format of the computation; weights and their updates are kept in fp32 beside it. tf32 is "
         "fp32 whose matrix products round what they multiply, and fp8 is bf16 whose layers multiply in 8 "
         "bits, "
         "both on GPUs."},
    {OPT_FLOAT("loss-scale", TrainArgs, config.loss_scale), .fallback = "0", .low = 1, .high = 16777216,
     .shown = "65536",
     .help = "fp16: the first factor of the loss, which then follows the gradients' range."},
    {OPT_INT("loss-scale-steps", TrainArgs, config.loss_scale_steps), .fallback = "0", .low = 1,
     .high = 1 << 30, .shown = "2000", .help = "fp16: steps without overflow before the factor doubles."},
    {OPT_CHOICE("offload", TrainArgs, config.offload, "WHAT", offload_choices), .fallback = "none",
     .help =
         "What is kept in the host's memory instead of the device's: the optimizer's state, or parameters "
         "too, which then come to the device layer by layer, as with --zero 3."},
    {OPT_CHOICE("device", TrainArgs, config.device, "NAME", device_choices), .fallback = "cpu",
     .help =
         "Where to compute: the CPU, or NVIDIA's GPUs, of which ranks take those of their machine in turn."},
    {OPT_CHOICE("kernels", TrainArgs, config.kernels, "NAME", kernel_choices), .shown = "the device's own",
     .help = "Kernels to compute with: the device's own, or on the CPU the plain reference (ref)."},
    {OPT_INT("threads", TrainArgs, config.threads), .fallback = "0", .low = 1, .high = 4096,
     .shown = "all cores", .help = "Threads to compute with; without it, OMP_NUM_THREADS is heeded."},
};

static const Option bench_table[] = {
    {OPT_INT("steps", TrainConfig, steps), .fallback = "5", .low = 1, .high = 1 << 20,
     .help = "Steps to measure, after one that warms up."},
    {OPT_INT("batch", TrainConfig, batch), .fallback = "4", .low = 1, .high = 1 << 24,
     .help = "Sequences in a step."},
    {OPT_INT("micro-batch", TrainConfig, micro_batch), .fallback = "0", .low = 1, .high = 1 << 20,
     .shown = "the batch", .help = "Sequences run at once; it must divide the batch."},
    {OPT_SEED("seed", TrainConfig, seed), .fallback = "1",
     .help = "Seed of the weights and the made-up tokens."},
    {OPT_FLAG("steps-only", TrainConfig, steps_only),
     .help = "Measure steps as a whole, without as many more for the time by kernel."},
    {OPT_TEXT("trace", TrainConfig, trace_file, "FILE"), .shown = "none",
     .help = "Write a timeline of what each rank did when in a few more steps, for ui.perfetto.dev or "
             "chrome://tracing."},
    {OPT_INT("trace-steps", TrainConfig, trace_steps), .fallback = "3", .low = 1, .high = 1 << 20,
     .help = "Steps that --trace shows."},
    {OPT_FLAG("quiet", TrainConfig, quiet), .help = "Show no progress."},
};

static const Option leader_table[] = {
    {OPT_TEXT("leaderboard", BenchArgs, leaderboard, "FILE"), .shown = "none",
     .help =
         "Instead, measure generation of 1 and 12 sequences and training in micro-batches of 4 and 12, and "
         "write "
         "{loss, inference_latency_1, inference_latency_12, training_throughput_4, training_throughput_12}, "
         "rates in tokens a second. Training has 20 steps of sequences of 128, unless --steps and --seq say "
         "otherwise."},
    {OPT_LIST("data", BenchArgs, data, "FILE"),
     .help = "With --leaderboard: what the loss is of, where --model is a checkpoint."},
    {OPT_INT("accumulate", BenchArgs, accumulate), .fallback = "40", .low = 1, .high = 1 << 16,
     .help = "With --leaderboard: micro-batches of a step."},
    {OPT_INT("new-tokens", BenchArgs, new_tokens), .fallback = "500", .low = 1, .high = INT32_MAX,
     .help = "With --leaderboard: tokens of a sequence that is generated."},
};

static const Option plan_table[] = {
    {OPT_INT("batch", PlanArgs, train.config.batch), .fallback = "0", .low = 1, .high = 1 << 24,
     .shown = "a micro-batch for each replica, 4 for each stage",
     .help = "Sequences in a step, all replicas together."},
    {OPT_INT("micro-batch", PlanArgs, train.config.micro_batch), .fallback = "0", .low = 1, .high = 1 << 20,
     .shown = "the batch, or 1 without one",
     .help = "Sequences run at once; it must divide a replica's batch."},
    {OPT_TEXT("cluster", PlanArgs, cluster, "NAME|FILE"), .shown = "none",
     .help =
         "The machines to plan for: cpu, dgx-a100, dgx2-v100, h100, h200, rtx-2080ti or v100-pcie-8, or a "
         "file as those of clusters/. Says whether the layout fits their devices, and what would."},
    {OPT_FLAG("search", PlanArgs, search),
     .help = "Find the fastest layouts of --ranks devices of the cluster instead: all that are legal are "
             "looked at. Options of the layout that are given stay as they are."},
    {OPT_TEXT("sweep", PlanArgs, sweep, "LIST"), .shown = "none",
     .help = "How it scales, instead: searches at each of these numbers of devices, such as 16,32,...,1024, "
             "with the same batch (strong scaling) and with one that grows along (weak). --batch is that of "
             "the first. With a file named, draws curves into it."},
    {OPT_FLAG("measure", PlanArgs, measure),
     .help =
         "Measure this machine instead and describe it in --out, for --cluster: kernels, memory, and with "
         "--ranks how fast they talk. Takes about half a minute, in which nothing else should run."},
    {OPT_TEXT("out", PlanArgs, out, "FILE"), .shown = "none", .help = "The file that --measure writes."},
    {OPT_FLAG("draw", PlanArgs, draw),
     .help = "Draw the pipeline's timeline instead: in the terminal, and as an SVG file where one is named."},
    {OPT_INT("micros", PlanArgs, micros), .fallback = "0", .low = 1, .high = 1 << 16,
     .shown = "from the batch, else 8", .help = "With --draw, micro-batches in a step, instead of --batch."},
};

static const Option failure_table[] = {
    {OPT_ROW("mtbf", OPTION_FLOAT, FIELD(FailureArgs, mtbf_hours, double), "HOURS"), .fallback = "0",
     ABOVE_ZERO, .shown = "devices do not fail",
     .help = "Mean time between failures of one device, in hours. One that fails stops all: the run starts "
             "again from its newest checkpoint."},
    {OPT_TEXT("checkpoint-every", FailureArgs, checkpoint_every, "SECONDS|auto"), .fallback = "auto",
     .help = "Work between checkpoints; auto is the time that makes most progress."},
    {OPT_FLOAT("checkpoint-seconds", FailureArgs, checkpoint_seconds), .fallback = "-1", ABOVE_ZERO,
     .shown = "parameters and moments in fp32 at --storage-bandwidth",
     .help = "How long a checkpoint takes, in which nothing is computed."},
    {OPT_FLOAT("restart-seconds", FailureArgs, restart_seconds), .fallback = "-1", .low = 0, .high = INFINITY,
     .shown = "300 and what reading the checkpoint takes",
     .help = "From a failure until steps go on: noticing it, new devices, starting, reading the checkpoint."},
    {OPT_SIZE("storage-bandwidth", FailureArgs, storage_bandwidth), .fallback = "10GB", .low = 1,
     .high = 1e18,
     .help = "Bytes a second that all ranks together write to, or read from, where checkpoints lie."},
};

static const Option prune_table[] = {
    {OPT_CHOICE("kind", PruneArgs, kind, "KIND", kind_choices), .fallback = "weights",
     .help =
         "What goes: single weights of the layers' matrices, those of the smallest magnitude, which become "
         "zero; or rows of the feed-forward parts or attention heads, which are taken out, so that the model "
         "gets smaller and faster. Of a row or head counts the norm of what it reads times the norm of what "
         "it writes."},
    {OPT_FLOAT("amount", PruneArgs, amount), .required = true, .low = 0, .high = 1, .above_low = true,
     .below_high = true,
     .help =
         "The part that is gone at the end, 0.8 for 80 %. Of weights, those that are zero already count."},
    {OPT_FLAG("global", PruneArgs, global),
     .help = "Weights: the smallest of all matrices together. This is the default."},
    {OPT_FLAG("per-matrix", PruneArgs, per_matrix),
     .help = "Weights: the same part of each matrix instead, q, k and v being one each."},
    {OPT_INT("row-multiple", PruneArgs, row_multiple), .fallback = "8", .low = 1, .high = 1 << 20,
     .help = "Rows: as many stay as make a multiple of this, which kernels and tensor ranks like."},
    {OPT_INT("rounds", PruneArgs, rounds), .fallback = "1", .low = 1, .high = 10000,
     .help = "Rounds of pruning, each followed by training."},
    {OPT_INT("steps-per-round", PruneArgs, steps_per_round), .fallback = "100", .low = 1, .high = INFINITY,
     .help = "Optimizer steps after each round. Pruned weights stay zero in them."},
    {OPT_CHOICE("ramp", PruneArgs, ramp, "NAME", ramp_choices), .fallback = "remaining",
     .help = "Whether a round takes the same part of what remains, or of what there was (even)."},
    {OPT_TEXT("beside", PruneArgs, beside, "DIR"), .shown = "none",
     .help = "Another run of rounds, whose curve is drawn into the same plots."},
    {OPT_FLAG("resume", PruneArgs, resume),
     .help = "Go on with rounds that were stopped; the line must be the same otherwise."},
};

static const Option pruned_table[] = {
    {OPT_TEXT("model", TrainConfig, model, "DIR"), .required = true,
     .help = "A checkpoint directory, or a run's directory for its newest checkpoint."},
    {OPT_TEXT("out", TrainConfig, out, "DIR"), .required = true,
     .help = "A new or empty directory. Without --data it becomes the pruned checkpoint; with it, it holds "
             "the rounds, and commands that take it as --model find the last one's checkpoint."},
    {OPT_LIST("data", TrainConfig, data, "FILE"), .shown = "no training",
     .help = "What to train on between rounds, as for 'weft train'."},
    {OPT_TEXT("tokenizer", TrainConfig, text.tokenizer, "DIR"), .shown = "the model's own, else bytes",
     .help = "The tokenizer for text: a directory with its files, or the word bytes."},
    {OPT_CHOICE("task", TrainConfig, task, "TASK", task_choices), .fallback = "auto",
     .help = "What to learn, as for 'weft train'."},
    {OPT_INT("seq", TrainConfig, seq), .fallback = "0", .low = 1, .high = INFINITY,
     .shown = "the model's own", .help = "Tokens in a sequence."},
    {OPT_FLOAT("dropout", TrainConfig, dropout), .fallback = "-1", .low = 0, .high = 1, .below_high = true,
     .shown = "the model's own", .help = "Dropout rate, in all its places."},
    {OPT_INT("eval-batches", TrainConfig, eval_batches), .fallback = "20", .low = 0, .high = INFINITY,
     .help = "Batches, of --batch sequences, of an evaluation; 0 for all of the validation data."},
    {OPT_FLAG("quiet", TrainConfig, quiet), .help = "Show no progress."},
};
/* clang-format on */

const OptionGroup train_groups[TRAIN_GROUPS] = {
    OPTION_GROUP("Model", model_table, offsetof(TrainArgs, config)),
    OPTION_GROUP("Data", data_table, offsetof(TrainArgs, config)),
    OPTION_GROUP("Training", training_table, offsetof(TrainArgs, config)),
    OPTION_GROUP("Run", run_table, offsetof(TrainArgs, config)),
    OPTION_GROUP("Layout", layout_table, 0),
};

const OptionGroup bench_groups[BENCH_GROUPS] = {
    OPTION_GROUP("Model", model_table, offsetof(TrainArgs, config)),
    OPTION_GROUP("Measurement", bench_table, offsetof(TrainArgs, config)),
    OPTION_GROUP("Leaderboard", leader_table, 0),
    OPTION_GROUP("Layout", layout_table, 0),
};

const OptionGroup plan_groups[PLAN_GROUPS] = {
    OPTION_GROUP("Plan", plan_table, 0),
    OPTION_GROUP("Failures", failure_table, offsetof(PlanArgs, failure)),
    OPTION_GROUP("Model", model_table, offsetof(TrainArgs, config)),
    OPTION_GROUP("Layout", layout_table, 0),
};

enum { DATA_ROWS = 1, LENGTH_ROWS = 2 }; /* --data; --steps and --epochs: prune has its own */

#define REST_GROUP(title, table, skip, at)                                                                   \
    { .heading = (title), .options = (table) + (skip), .count = COUNT_OF(table) - (skip), .base = (at) }

const OptionGroup prune_groups[PRUNE_GROUPS] = {
    OPTION_GROUP("Pruning", prune_table, 0),
    OPTION_GROUP("Model and data", pruned_table, offsetof(PruneArgs, train.config)),
    REST_GROUP("Reading data", data_table, DATA_ROWS, offsetof(PruneArgs, train.config)),
    REST_GROUP("Training", training_table, LENGTH_ROWS, offsetof(PruneArgs, train.config)),
    OPTION_GROUP("Layout", layout_table, offsetof(PruneArgs, train)),
};

Status layout_check(const Invocation *call, const TrainArgs *args) {
    const Layout *layout = &args->layout;
    char label[LABEL_SIZE];
    if (layout->shard && layout->dp % layout->shard)
        return USAGE("%s %lld: does not divide %lld replicas", invocation_label(call, "shard", label),
                     (long long)layout->shard, (long long)layout->dp);
    TRY(kernels_suit(args->config.device, args->config.kernels));
    Precision precision;
    return kernels_precision(args->config.device, args->config.precision, &precision);
}
