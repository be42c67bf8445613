/* The option tables of train, bench, plan and prune. Commands that have layout options share one table.
 * layout_check rejects what this build cannot run; train/job_layout.c rejects layouts that do not divide the
 * model. */
#include "cli/train_options.h"

#include <string.h>

#include "data/reader.h"
#include "kernels/kernels.h"
#include "model/config.h"
#include "plan/cluster.h"
#include "train/epoch.h"

const char *const task_choices[] = {"auto",
#define HEAD(NAME, name, title, class, losses) #name,
#include "model/heads.def"
                                    "squad", NULL};
const char *const problem_choices[] = {"auto", "regression", "single-label", "multi-label", NULL};
const char *const format_choices[] = {"auto",  "bytes", "u16",     "u32",     "ids",  "tokens", "text",
                                      "squad", "pairs", "cornell", "records", "chat", NULL};
/* clang-format off */
static const char *const offload_spellings[] = {
    "activations+optimizer", "optimizer+activations",
    "optimizer,activations", "optimizer+activations",
    "activations,optimizer", "optimizer+activations",
    "activations+params", "params+activations",
    "params,activations", "params+activations",
    "activations,params", "params+activations", NULL,
};
/* clang-format on */
const char *const format_old_choices[] = {"shards", "tokens", NULL};
const char *const device_choices[] = {"cpu", "cuda", NULL};
const char *const kernel_choices[] = {"cpu", "ref", "cuda", NULL};
static const char *const schedule_choices[] = {"cosine", "linear", "constant", "wsd", NULL};
static const char *const decay_choices[] = {"linear", "1-sqrt", "cosine", NULL};
static const char *const optimizer_choices[] = {"adamw", "lion", "sgd", "muon", NULL};
static const char *const warmup_choices[] = {"linear", "log", NULL};
const char *const precision_choices[] = {"fp32", "tf32", "bf16", "fp16", "fp8", NULL};
static const char *const kind_choices[] = {"weights", "rows", "heads", "all-rows", NULL};
static const char *const score_choices[] = {"l2", "product", "gradient", NULL};
static const char *const ramp_choices[] = {"remaining", "even", NULL};
static const char *const divergence_choices[] = {"stop", "warn", "skip", "rollback", NULL};

/* A row of an interval in steps, or one epoch. */
#define EVERY(name_, field)                                                                                  \
    OPT_ROW(name_, OPTION_INT, FIELD(Settings, field, int64_t), "N|epoch"), AT_LEAST(0),                     \
        .word = "epoch", .word_value = EVERY_EPOCH

/* clang-format off */
static const Option model_table[] = {
    {OPT_TEXT("model", Settings, model.name, "NAME|DIR"), .per_rank = PER_RANK_MODEL, .fallback = "gpt2-mini",
     .help = "A preset with random weights, the directory of a weft or Hugging Face checkpoint, or a GGUF file. "
             "Presets: %s.", .names = config_presets},
    {OPT_TEXT("tokenizer", Settings, data.text.tokenizer, "DIR"), .per_rank = PER_RANK_MODEL, .shown = "the model's own, else bytes",
     .help = "Tokenizer for text: a directory with its files, or bytes. It sets the vocabulary size of a "
             "preset, and checkpoints include its files."},
    {OPT_CHOICE("task", Settings, model.task, "TASK", task_choices), .fallback = "auto",
     .help = "Training objective: language modeling (lm), masked tokens and next sentence (mlm), answer "
             "span (span; squad means span on SQuAD files), classification (classify), or the model's "
             "usual one (auto)."},
    {OPT_INT("labels", Settings, model.labels), .fallback = "0", RANGE(1, MAX_LABELS),
     .shown = "the model's own, else from the data",
     .help = "Number of labels for --task classify, or of outputs for regression."},
    {OPT_CHOICE("problem-type", Settings, model.problem_type, "TYPE", problem_choices), .fallback = "auto",
     .help = "With --task classify: predict one label (single-label, cross-entropy), any number of labels "
             "(multi-label, binary cross-entropy) or numbers (regression, mean squared error). auto: the "
             "checkpoint's problem_type; regression with one output; else from the labels in --data."},
    {OPT_FLAG("next-sentence", Settings, model.no_next_sentence), .fallback = "on", .inverted = true,
     .help = "With --task mlm, train on masked tokens only, without next-sentence prediction."},
    {OPT_FLAG("masked-tokens", Settings, model.no_masks), .fallback = "on", .inverted = true,
     .help = "With --task mlm, train on next-sentence prediction only, without masking tokens."},
    {OPT_ENUM("balance", Settings, run.balance, "HOW", balance_names), .fallback = "aux",
     .help = "Mixtures of experts: keep experts busy alike by a loss (aux), which weights the router's probabilities "
             "by the tokens that each expert had in the step before, or not at all (none)."},
    {OPT_FLOAT("balance-coef", Settings, run.balance_coef), .fallback = "0", RANGE(0, 1000), .shown = "the model's own, else 0.01",
     .help = "Factor of this loss."},
    {OPT_FLOAT("z-loss", Settings, run.z_coef), .fallback = "0", RANGE(0, 1000),
     .help = "Mixtures of experts: factor of the z-loss, which keeps the router's logits small."},
    {OPT_LIST("freeze", Settings, training.freeze, "PATTERN"), .one_each = true, .shown = "none",
     .help = "Do not train the parameters whose names, or their beginnings up to a dot, match a pattern, such as "
             "'layer.[0-3]' or '*.bias'. '!PATTERN' trains them; the last pattern that matches a parameter decides: "
             "--freeze '*' --freeze '!head' trains the head only."},
    {OPT_INT("lora", Settings, training.lora.rank), .fallback = "0", RANGE(1, 4096), .shown = "none",
     .help = "Train adapters (LoRA) of this rank instead of the model. Checkpoints are PEFT directories; other commands "
             "take them like the whole model, and 'weft convert' merges them into it. --freeze '!PATTERN' trains more."},
    {OPT_FLOAT("lora-alpha", Settings, training.lora.alpha), .fallback = "0", ABOVE_ZERO, .shown = "twice the rank",
     .help = "Adapters' outputs are multiplied by alpha / rank."},
    {OPT_FLAG("rslora", Settings, training.lora.rslora), .help = "Multiply them by alpha / sqrt(rank) instead."},
    {OPT_FLOAT("lora-dropout", Settings, training.lora.dropout), .fallback = "0", BELOW_ONE,
     .help = "Dropout rate of the adapters' inputs."},
    {OPT_LIST("lora-targets", Settings, training.lora.targets, "PATTERN"), .shown = "all of attention and MLPs",
     .help = "Linear layers that get adapters, such as q_proj v_proj, '*.mlp.*' or 'layer.[0-3]'."},
    {OPT_LIST("adapter", Settings, model.adapters, "DIR"), .one_each = true, .per_rank = PER_RANK_MODEL, .shown = "none",
     .help = "Start from this PEFT adapter, or the newest of a run; without --lora, merge it, or several, into the model."},
    {OPT_ENUM("lora-base", Settings, run.base, "TYPE", block_code_names), .fallback = "same",
     .help = "Keep the layers' matrices beside the adapters in blocks of 64 values of int8, int4 or nf4 (QLoRA) and decode "
             "those of a layer while it runs."},
    {OPT_INT("layers", Settings, model.layers), .fallback = "0", RANGE(1, MOST_LAYERS), .shown = "the model's own",
     .help = "Number of layers; overrides the preset."},
    {OPT_INT("hidden", Settings, model.hidden), .fallback = "0", RANGE(1, MOST_HIDDEN), .shown = "the model's own",
     .help = "Hidden size."},
    {OPT_INT("heads", Settings, model.heads), .fallback = "0", RANGE(1, MOST_HEADS), .shown = "the model's own",
     .help = "Number of attention heads; must divide the hidden size."},
    {OPT_INT("inner", Settings, model.inner), .fallback = "0", RANGE(1, MOST_INNER), .shown = "the preset's, in proportion to --hidden",
     .help = "Size of the feed-forward layer."},
    {OPT_INT("experts", Settings, model.experts), .fallback = "0", RANGE(1, MOST_EXPERTS), .shown = "the model's own",
     .help = "Make the MLPs of a preset of Llama, Mistral or Qwen mixtures of this many experts, or change their "
             "number."},
    {OPT_INT("top-k", Settings, model.top_k), .fallback = "0", RANGE(1, MOST_EXPERTS), .shown = "the model's own, else 2",
     .help = "Experts that each token uses."},
    {OPT_INT("expert-inner", Settings, model.expert_inner), .fallback = "0", RANGE(1, MOST_INNER),
     .shown = "the model's own, else --inner", .help = "Size of an expert's feed-forward layer."},
    {OPT_INT("seq", Settings, model.seq), .fallback = "0", RANGE(1, MAX_POSITIONS), .shown = "the model's own, for conversations up to 2048",
     .help = "Sequence length in tokens."},
    {OPT_TEXT("rope-scaling", Settings, model.rope_scaling, "KIND:FACTOR"), .shown = "the model's own",
     .help = "Extend the context of a model with rotary positions: linear, dynamic, llama3 or yarn scaling, and "
             "the factor, such as yarn:4."},
    {OPT_INT("vocab", Settings, model.vocab), .fallback = "0", RANGE(1, MOST_VOCAB), .shown = "from the data",
     .help = "Vocabulary size."},
    {OPT_FLAG("untie", Settings, model.untie),
     .help = "Give a preset an output matrix of its own, where the token embedding would serve as one."},
    {OPT_FLOAT("dropout", Settings, model.dropout), .fallback = "-1", BELOW_ONE, .shown = "the model's own",
     .help = "Dropout rate of embeddings, attention and layer outputs."},
};

static const Option data_table[] = {
    {OPT_LIST("data", Settings, data.files, "FILE"), .per_rank = PER_RANK_PATH, .required = true,
     .help = "Training data: files, directories of them, a directory written by 'weft prepare', @SET/FILE (a file that 'weft fetch "
             "SET' downloaded), or self (weft's own source and documentation)."},
    {OPT_LIST("val", Settings, data.val, "FILE"), .per_rank = PER_RANK_PATH, .help = "Validation data, instead of a fraction of --data."},
    {OPT_FLOAT("data-fraction", Settings, data.fraction), .fallback = "1", RANGE(0, 1), .above_low = true,
     .help = "Use only this fraction of --data, from its start, before any of it is held out."},
    {OPT_INT("stride", Settings, data.stride), .fallback = "0", AT_LEAST(1), .shown = "the sequence length",
     .help = "Language models: tokens between the starts of consecutive training windows. Smaller values "
             "make windows overlap; 1: a sample starts at every token."},
    {OPT_FLOAT("val-fraction", Settings, data.val_fraction), .fallback = "0.1", BELOW_ONE,
     .help = "Fraction held out from the end of the data for validation, if neither --val nor a prepared "
             "validation set provides it."},
    {OPT_CHOICE("format", Settings, data.format, "FORMAT", format_choices), .fallback = "auto",
     .old_choices = format_old_choices,
     .help = "Data format: raw bytes as tokens (bytes), little-endian token ids (u16, u32), JSON lines of "
             "token ids and labels (ids), token files from 'weft prepare' (tokens), text to tokenize "
             "(text), SQuAD JSON (squad), rows with q and a (pairs), Cornell movie dialogs (cornell), rows "
             "with text and label (records), conversations (chat): messages, ShareGPT's conversations, prompt and "
             "completion, or Alpaca's instruction and output. auto goes by file name: .tokens is tokens; .bin and .u16 "
             "are u16; .u32 is u32; .jsonl is ids, chat, text or pairs, by its first line; .csv and .tsv are records "
             "with --task classify; movie_lines and movie_conversations are cornell; .json may be chat or squad; "
             "anything else is text, or bytes without a tokenizer."},
    {OPT_TEXT("field", Settings, data.text.field, "NAME"), .fallback = "text",
     .help = "Field of rows (JSON, .csv, .tsv, Parquet) that contains the text."},
    {OPT_TEXT("text-field", Settings, data.text.text_field, "NAME"), .shown = "--field, or q in pairs",
     .help = "Column or field of rows with the text; for --task classify and pairs in .csv or .tsv files without a "
             "header, its number."},
    {OPT_TEXT("pair-field", Settings, data.text.pair_field, "NAME"), .shown = "none, or a in pairs",
     .help = "Column or field with the second text of a pair."},
    {OPT_TEXT("label-field", Settings, data.text.label_field, "NAME"), .fallback = "label",
     .help = "With --task classify, column or field with the label: a name, a number or a list. Several "
             "columns, as in a,b,c, are outputs of a regression or labels that are 0 or 1."},
    {OPT_CHOICE("documents", Settings, data.text.documents, "UNIT", documents_names), .fallback = "file",
     .help = "What counts as one document in text files: the file, a line, text between blank lines, or a "
             "WikiText article."},
    {OPT_FLAG("cross-document", Settings, data.text.no_cross_document), .fallback = "on", .inverted = true,
     .help = "Language models: keep attention within documents, and restart positions in each. A document "
             "ends with the end token, which predicts nothing."},
    {OPT_ENUM("loss-on", Settings, data.text.loss_on, "WORDS", loss_on_names), .fallback = "assistant",
     .help = "Conversations: train on all that the assistant says, on its last turn or what follows the prompt "
             "(completion), or on everything (all). Turns include the mark of their end."},
    {OPT_TEXT("chat-template", Settings, data.text.chat_template, "FILE"), .per_rank = PER_RANK_PATH,
     .shown = "that of --tokenizer or --model",
     .help = "Conversations: Jinja template that makes text of them, which checkpoints then have. Dates in it are "
             "2024-07-26."},
    {OPT_FLAG("packing", Settings, data.text.no_packing), .fallback = "on", .inverted = true,
     .help = "Do not put several conversations, which do not see each other, into one sequence."},
    {OPT_FLAG("cache", Settings, data.text.no_cache), .fallback = "on", .inverted = true,
     .help = "Do not share tokenized text between runs through the cache ($WEFT_CACHE, else "
             "$XDG_CACHE_HOME/weft or ~/.cache/weft); keep it in --out, or in a temporary directory "
             "without --out."},
    {OPT_FLAG("shuffle", Settings, data.no_shuffle), .fallback = "on", .inverted = true,
     .help = "Read the data in file order, instead of a new random order in every epoch."},
    {OPT_INT("doc-stride", Settings, data.text.doc_stride), .fallback = "128", RANGE(1, INT32_MAX),
     .help = "SQuAD: tokens between the starts of consecutive windows over a long context."},
    {OPT_INT("max-query", Settings, data.text.max_query), .fallback = "64", RANGE(1, INT32_MAX),
     .help = "SQuAD: maximum tokens per question; longer questions are truncated."},
    {OPT_FLOAT("mask-rate", Settings, data.mask_rate), .fallback = "0.15", INSIDE_ZERO_ONE,
     .help = "Fraction of tokens that --task mlm masks."},
    {OPT_FLAG("whole-word-masking", Settings, model.whole_words),
     .help = "With --task mlm, mask whole words instead of single tokens (WordPiece vocabularies)."},
};

static const Option training_table[] = {
    {OPT_INT("steps", Settings, training.steps), .fallback = "1000", AT_LEAST(1),
     .help = "Optimizer steps, counted from the start of the run."},
    {OPT_FLOAT("epochs", Settings, training.epochs), ABOVE_ZERO,
     .help = "Passes over the data, instead of --steps."},
    {OPT_INT("batch", Settings, training.batch), .fallback = "8", RANGE(1, 1 << 24),
     .help = "Global batch size: sequences per step, over all micro-batches and replicas."},
    {OPT_INT("micro-batch", Settings, run.micro_batch), .fallback = "0", RANGE(1, 1 << 20),
     .shown = "the batch",
     .help = "Sequences per forward and backward pass; must divide --batch. Gradients are accumulated over "
             "micro-batches. Smaller values need less memory."},
    {OPT_CHOICE("optimizer", Settings, training.optimizer, "NAME", optimizer_choices), .fallback = "adamw",
     .help = "Optimizer: AdamW, Lion, SGD with momentum, or Muon, which updates the matrices of layers and leaves "
             "embeddings, output heads, norms and biases to AdamW."},
    {OPT_FLOAT("lr", Settings, training.lr), .fallback = "6e-4", ABOVE_ZERO,
     .shown = "6e-4; lion 1e-4, sgd 0.1, muon 0.02", .help = "Peak learning rate, after warm-up."},
    {OPT_FLOAT("adamw-lr", Settings, training.adamw_lr), .fallback = "6e-4", ABOVE_ZERO,
     .help = "muon: peak learning rate of the parameters that AdamW updates. It follows the same schedule."},
    {OPT_FLOAT("min-lr", Settings, training.min_lr), .fallback = "0", AT_LEAST(0),
     .help = "Learning rate at the end of the schedule."},
    {OPT_INT("warmup", Settings, training.warmup), .fallback = "-1", AT_LEAST(0), .shown = "--warmup-ratio",
     .help = "Warm-up steps, over which the learning rate rises to --lr."},
    {OPT_FLOAT("warmup-ratio", Settings, training.warmup_ratio), RANGE(0, 1), .above_low = true, .shown = "0.05",
     .help = "Warm-up as a fraction of the steps, without --warmup."},
    {OPT_CHOICE("warmup-type", Settings, training.warmup_type, "NAME", warmup_choices), .fallback = "linear",
     .help = "Shape of the warm-up: linear, or logarithmic in the step, which rises fast at first."},
    {OPT_INT("seq-warmup", Settings, training.seq_warmup), .fallback = "0", AT_LEAST(0),
     .help = "Language models: steps over which the sequence length doubles time and again, up to --seq. Until then, "
             "each sequence is divided into parts that attend to themselves only, so every step has the same tokens."},
    {OPT_INT("seq-warmup-from", Settings, training.seq_warmup_from), .fallback = "0", AT_LEAST(1),
     .shown = "an eighth of --seq",
     .help = "With --seq-warmup, the length at the start."},
    {OPT_CHOICE("schedule", Settings, training.schedule, "NAME", schedule_choices), .fallback = "cosine",
     .help = "Learning rate after warm-up: decay by a cosine or linearly, a constant rate, or a constant rate "
             "until the last --decay-steps (wsd: warm-up, stable, decay)."},
    {OPT_FLAG("schedule-from-zero", Settings, training.from_zero), .shown = "with TrainingArguments",
     .help = "Count the schedule's steps from 0, as transformers does: each step has the rate of the step before, and "
             "with --warmup the first has 0."},
    {OPT_INT("decay-steps", Settings, training.decay_steps), .fallback = "-1", AT_LEAST(0),
     .shown = "a tenth of the steps", .help = "With --schedule wsd, steps of the decay at the end of the run."},
    {OPT_CHOICE("decay-type", Settings, training.decay_type, "NAME", decay_choices), .fallback = "linear",
     .help = "With --schedule wsd, shape of the decay."},
    {OPT_FLOAT("weight-decay", Settings, run.optim.weight_decay), .fallback = "0.01", AT_LEAST(0),
     .shown = "0.01; lion 0.1, sgd 0",
     .help = "Weight decay; not applied to biases and layer norms. It is decoupled from the gradient, except for "
             "sgd, which adds it to the gradient."},
    {OPT_FLOAT("beta1", Settings, run.optim.beta1), .fallback = "0.9", BELOW_ONE,
     .help = "AdamW: decay rate of the first moment. lion: weight of the momentum in the update."},
    {OPT_FLOAT("beta2", Settings, run.optim.beta2), .fallback = "0.999", BELOW_ONE,
     .shown = "0.999; lion 0.99, muon 0.95",
     .help = "AdamW: decay rate of the second moment. lion: decay rate of the momentum."},
    {OPT_FLOAT("eps", Settings, run.optim.eps), .fallback = "1e-8", ABOVE_ZERO,
     .help = "AdamW: epsilon in the denominator."},
    {OPT_FLOAT("momentum", Settings, run.optim.momentum), .fallback = "0.9", BELOW_ONE, .shown = "sgd 0.9, muon 0.95",
     .help = "sgd, muon: decay rate of the momentum."},
    {OPT_FLAG("nesterov", Settings, run.optim.nesterov),
     .help = "sgd, muon: Nesterov momentum. On by default for muon."},
    {OPT_ENUM("muon-scale", Settings, run.optim.muon_scale, "NAME", muon_scale_names), .fallback = "original",
     .help = "muon: scale of a matrix's update. original: sqrt(max(1, rows / columns)); match-adamw: 0.2 "
             "sqrt(max(rows, columns)), for learning rates and weight decay as with AdamW."},
    {OPT_LIST("group", Settings, training.group, "GROUP"), .one_each = true, .shown = "none",
     .help = "Settings for the parameters whose names match a pattern, as in '*.bias:lr=0.1,weight-decay=0'. lr is "
             "a factor on the learning rate. Of several groups, the last that matches a parameter applies."},
    {OPT_FLOAT("clip", Settings, run.optim.clip), .fallback = "1", AT_LEAST(0),
     .help = "Clip the global gradient norm to this value; 0 disables clipping."},
    {OPT_ENUM("quantize-aware", Settings, run.fake_quant, "TYPE", fake_quant_names), .fallback = "none",
     .help = "Quantization-aware training: compute with the layers' weights (and, for int8, their inputs) "
             "quantized as in 'weft quantize'. Checkpoints store full-precision weights."},
    {OPT_FLAG("keep-zeros", Settings, run.optim.keep_zeros),
     .help = "Keep the zeros of weight matrices at zero, such as weights pruned by 'weft prune'."},
    {OPT_SEED("seed", Settings, run.seed), .fallback = "1",
     .help = "Random seed for initialization, dropout and data order."},
};

static const Option run_table[] = {
    {OPT_TEXT("out", Settings, ckpt.out, "DIR"), .shown = "nothing is saved",
     .help = "Run directory for settings, metrics, checkpoints and summary."},
    {OPT_FLAG("resume", Settings, ckpt.resume), .word = "auto",
     .help = "Continue from the newest checkpoint in --out as if the run had never stopped, or start if "
             "there is none; --resume auto means the same. Settings are read from the run directory; --config "
             "and the command line override them. Damaged checkpoints are skipped."},
    {OPT_INT("resume-from", Settings, ckpt.resume_from), .fallback = "0", AT_LEAST(0),
     .shown = "the newest intact checkpoint",
     .help = "Continue from the checkpoint of this step. Implies --resume. Checkpoints of later steps are "
             "removed as new ones are saved."},
    {OPT_ROW("timeout", OPTION_FLOAT, FIELD(Settings, fault.timeout, double), "SECONDS"), .fallback = "-1",
     AT_LEAST(0), .shown = "10 x the slowest step, at least 60",
     .help = "With several ranks, stop and say which ranks wait for which if none of them makes progress for "
             "this long, or if one does not answer; 0: wait forever."},
    {OPT_INT("max-restarts", Settings, fault.max_restarts), .fallback = "0", RANGE(0, 1 << 20),
     .help = "With --ranks and --out, start the ranks again this many times when one fails, hangs or is killed, "
             "from the newest checkpoint. If they fail again before the next checkpoint, or a host of --hosts does not "
             "answer, fewer replicas start: the next smaller divisor of --dp, with the same batch. When the host "
             "answers again, all ranks continue."},
    {OPT_ROW("save-on-signal-seconds", OPTION_FLOAT, FIELD(Settings, fault.signal_seconds, double), "SECONDS"),
     .fallback = "0", AT_LEAST(0),
     .help = "How long before its end the batch system signals the job, as in Slurm's --signal=USR1@120. The "
             "step under way has half of this time to finish before it is abandoned; the rest is for saving."},
    {EVERY("eval-every", validation.every), .fallback = "100",
     .help = "Evaluate every N steps, or at the end of each epoch, and at the end; 0: only at the end. F1 "
             "and exact match are measured at the end of each epoch and at the end."},
    {OPT_INT("eval-batches", Settings, validation.batches), .fallback = "20", AT_LEAST(0),
     .help = "Batches of --batch sequences per evaluation; 0: all validation data. "
             "By default, the validation before the first step is limited to seconds on a CPU."},
    {OPT_INT("eval-samples", Settings, validation.samples), .fallback = "0", AT_LEAST(0),
     .shown = "set by --eval-batches",
     .help = "Sequences per evaluation, independent of the batch size, so that runs with different batch "
             "sizes are evaluated on the same data."},
    {EVERY("save-every", ckpt.save_every), .fallback = "500",
     .help = "Save a checkpoint every N steps, or at the end of each epoch, and at the end; 0: only at the "
             "end."},
    {OPT_INT("keep", Settings, ckpt.keep), .fallback = "2", RANGE(0, 1 << 20),
     .help = "Number of newest checkpoints to keep, besides the one with the lowest validation loss; 0: "
             "all."},
    {OPT_FLAG("async-save", Settings, ckpt.no_async_save), .fallback = "on", .inverted = true,
     .help = "Wait until a checkpoint is saved. By default its values are copied to host memory, which takes "
             "as much as the checkpoint, divided among the ranks, and written while training continues."},
    {OPT_FLAG("gather-checkpoints", Settings, ckpt.gather),
     .help = "For hosts without a shared directory: keep --out, --model, --tokenizer and --config on rank 0's "
             "disk only. The other ranks send their parts of checkpoints there and receive what they need. With "
             "your own mpirun or srun, repeat it with --resume."},
    {OPT_INT("save-failures", Settings, ckpt.save_failures), .fallback = "3", RANGE(0, 1 << 20),
     .help = "Failed saves in a row to tolerate, for example while the disk is full: each is reported and "
             "training continues to the next. The last save of a run must succeed."},
    {OPT_CHOICE("on-divergence", Settings, fault.on_divergence, "ACTION", divergence_choices),
     .fallback = "stop",
     .help = "What to do about NaN, Inf, a loss that stays above three times the first one plus 1, and spikes "
             "of the loss or gradient norm: stop, and only warn about spikes (stop); stop for NaN and Inf "
             "only (warn); leave out the step's update (skip); continue from the newest checkpoint without "
             "the batches since then (rollback). NaN and Inf are never saved."},
    {OPT_INT("rollbacks", Settings, fault.rollbacks), .fallback = "3", RANGE(1, 1 << 20),
     .help = "With --on-divergence rollback, the number of times to roll back before giving up."},
    {OPT_INT("patience", Settings, validation.patience), .fallback = "0", RANGE(0, 1 << 30), .shown = "never",
     .help = "Stop after N validations in a row without a lower validation loss. A checkpoint is saved at "
             "each lower one."},
    {EVERY("sample-every", validation.sample_every), .fallback = "0", .shown = "never",
     .help = "Print a short sample of the model's text every N steps, or at the end of each epoch: how the "
             "start of the validation data continues. For language models, with --tp 1."},
    {OPT_INT("log-every", Settings, report.log_every), .fallback = "1", AT_LEAST(1),
     .help = "Append to metrics.jsonl every N steps."},
    {OPT_FLAG("trace", Settings, report.trace),
     .help = "Write a timeline of all ranks to trace.json in --out, for Perfetto (ui.perfetto.dev) or "
             "chrome://tracing."},
    {OPT_INT("trace-steps", Settings, report.trace_steps), .fallback = "3", RANGE(1, 1 << 20),
     .help = "Number of steps to trace, starting with the second."},
    {OPT_FLAG("quiet", Settings, report.quiet), .per_rank = PER_RANK_ANY, .help = "Do not show progress."},
};

#define TRAIN_AXIS(...) AXIS_OPTION(TrainArgs, __VA_ARGS__)
static const Option layout_table[] = {
    {OPT_INT("ranks", TrainArgs, layout.ranks), .fallback = "0", RANGE(1, 1 << 20),
     .shown = "what mpirun or srun started, else dp x tp x pp x cp",
     .help = "Number of ranks (processes), started with mpirun: data x tensor x pipeline x context parallelism."},
    HOST_OPTIONS(TrainArgs, layout.)
    MESH_AXES(TRAIN_AXIS)
    EXPERT_OPTION(TrainArgs, layout.)
    {OPT_INT("zero", TrainArgs, config.run.zero), .fallback = "0", RANGE(0, 3),
     .help = "ZeRO stage. Shard across replicas, and the ranks of --cp: nothing (0), optimizer state (1), also "
             "gradients (2), also parameters (3)."},
    {OPT_FLAG("zero-keep", TrainArgs, config.run.keep_params),
     .help = "With --zero 3, keep gathered parameters from forward to backward: less communication, more "
             "memory."},
    {OPT_INT("shard", TrainArgs, layout.shard), .fallback = "0", RANGE(1, 1 << 20), .shown = "all replicas",
     .help = "Hybrid sharding: shard within groups of N replicas, for example those of one node, each "
             "group with a full copy. Must divide dp x cp. With --sync-every, such a group is a worker."},
    {OPT_ENUM("grad-dtype", TrainArgs, config.run.grad_type, "TYPE", grad_type_names), .fallback = "fp32",
     .help = "Type in which gradients travel between replicas; they are computed and summed in fp32. What int8 "
             "rounds off is sent in the next step. --sync-dtype is the type of what workers exchange."},
    {OPT_INT("sync-every", TrainArgs, config.run.outer.every), .fallback = "0", RANGE(0, 1 << 30),
     .help = "Low-communication data parallelism (DiLoCo): workers train on their own and average their weights "
             "every N steps, instead of reducing gradients in every step (0). A worker is one replica, or --shard N."},
    {OPT_INT("sync-fragments", TrainArgs, config.run.outer.fragments), .fallback = "1", RANGE(1, 1 << 20),
     .help = "With --sync-every, parts of the model that are exchanged at different steps, which spreads the "
             "traffic over the interval."},
    {OPT_INT("sync-overlap", TrainArgs, config.run.outer.overlap), .fallback = "0", RANGE(0, 1 << 30),
     .help = "With --sync-every, steps that continue while a fragment is exchanged; 0: workers wait. At most "
             "--sync-every / --sync-fragments."},
    {OPT_ENUM("sync-dtype", TrainArgs, config.run.outer.type, "TYPE", grad_type_names), .fallback = "int8",
     .help = "With --sync-every, type in which changes of the weights travel between workers. What int8 rounds "
             "off stays in a worker's own weights until the next exchange."},
    {OPT_INT("sync-warmup", TrainArgs, config.run.outer.warmup), .fallback = "-1", RANGE(0, 1 << 30),
     .shown = "the learning rate's warm-up",
     .help = "With --sync-every, number of first steps that all synchronize, since workers drift apart most while the "
             "learning rate rises. 0: none, for very slow links."},
    {OPT_FLOAT("outer-lr", TrainArgs, config.run.outer.lr), .fallback = "1", ABOVE_ZERO,
     .help = "With --sync-every, learning rate of the outer optimizer, SGD with Nesterov momentum."},
    {OPT_FLOAT("outer-momentum", TrainArgs, config.run.outer.momentum), .fallback = "0", BELOW_ONE,
     .help = "With --sync-every, momentum of the outer optimizer."},
    CONTEXT_OPTIONS(TrainArgs, layout., config.run.)
    {OPT_FLAG("sequence-parallel", TrainArgs, config.run.sequence),
     .help = "Split layer norms and dropout along the sequence across tensor-parallel ranks."},
    {OPT_ENUM("pp-schedule", TrainArgs, config.run.schedule, "NAME", schedule_names), .fallback = "1f1b",
     .help = "Pipeline schedule."},
    {OPT_INT("pp-chunks", TrainArgs, config.run.chunks), .fallback = "0", RANGE(1, 64),
     .shown = "2 if interleaved", .help = "With --pp-schedule interleaved, model chunks per stage."},
    {OPT_ENUM("recompute", TrainArgs, config.run.recompute, "WHAT", recompute_names), .fallback = "none",
     .help = "Activation checkpointing: recompute nothing, cheap operations such as norms (selective), or "
             "whole blocks."},
    {OPT_CHOICE("precision", TrainArgs, config.device.precision, "TYPE", precision_choices),
     .shown = "fp32; bf16 on GPUs",
     .help = "Compute precision; master weights and optimizer state stay in fp32. On GPUs only: tf32 is "
             "fp32 with TF32 matrix multiplications, fp8 is bf16 with FP8 matrix multiplications in the "
             "layers."},
    {OPT_ENUM("fp8-scaling", TrainArgs, config.run.fp8_scaling, "HOW", fp8_scaling_names), .fallback = "exact",
     .help = "With --precision fp8, what the scales of matrices follow from: their current values (exact), or "
             "those of the previous step (delayed), which is faster."},
    {OPT_FLAG("fp8-head", TrainArgs, config.run.fp8_head),
     .help = "With --precision fp8, also compute the logits of language models and their gradients in FP8, in "
             "training only."},
    {OPT_FLOAT("loss-scale", TrainArgs, config.run.loss_scale), .fallback = "0", RANGE(1, 16777216),
     .shown = "65536", .help = "fp16: initial loss scale; it is adjusted dynamically."},
    {OPT_INT("loss-scale-steps", TrainArgs, config.run.scale_steps), .fallback = "0", RANGE(1, 1 << 30),
     .shown = "2000", .help = "fp16: steps without overflow before the loss scale doubles."},
    {OPT_ENUM("offload", TrainArgs, config.run.offload, "WHAT", offload_names), .fallback = "none",
     .old_choices = offload_spellings,
     .help = "What to keep in host memory: the optimizer state, or also the parameters (params), which are "
             "copied to the device layer by layer as with --zero 3; activations: the inputs of layers, which are "
             "all that --recompute block keeps for backward. On a CPU, none of this saves memory."},
    {OPT_CHOICE("device", TrainArgs, config.device.name, "NAME", device_choices), .fallback = "cpu",
     .help = "Device: cpu, or cuda for NVIDIA GPUs, assigned round-robin to the ranks of a node."},
    {OPT_CHOICE("kernels", TrainArgs, config.device.kernels, "NAME", kernel_choices), .shown = "the device's own",
     .help = "Kernels: the device's own, or the plain CPU reference implementation (ref)."},
    {OPT_INT("threads", TrainArgs, config.device.threads), .per_rank = PER_RANK_ANY, .fallback = "0", RANGE(1, 4096),
     .shown = "OMP_NUM_THREADS, else all cores", .help = "CPU threads per rank."},
};

/* For commands that only run or plan a few steps. */
#define OPTIMIZER_ROW(type, field)                                                                           \
    {                                                                                                        \
        OPT_CHOICE("optimizer", type, field, "NAME", optimizer_choices), .fallback = "adamw",                \
            .help = "Optimizer, with its default settings."                                                  \
    }

static const Option bench_table[] = {
    {OPT_INT("steps", Settings, training.steps), .fallback = "5", RANGE(1, 1 << 20),
     .help = "Steps to measure, after one warm-up step."},
    {OPT_INT("batch", Settings, training.batch), .fallback = "4", RANGE(1, 1 << 24), .help = "Sequences per step."},
    {OPT_INT("micro-batch", Settings, run.micro_batch), .fallback = "0", RANGE(1, 1 << 20),
     .shown = "the batch", .help = "Sequences per forward and backward pass; must divide --batch."},
    OPTIMIZER_ROW(Settings, training.optimizer),
    {OPT_SEED("seed", Settings, run.seed), .fallback = "1", .help = "Random seed for weights and tokens."},
    {OPT_FLAG("steps-only", Settings, report.steps_only),
     .help = "Measure whole steps only; skip the second pass that times each kernel."},
    {OPT_TEXT("trace", Settings, report.trace_file, "FILE"), .shown = "none",
     .help = "Run a few more steps and write a timeline of all ranks, for Perfetto (ui.perfetto.dev) or "
             "chrome://tracing."},
    {OPT_INT("trace-steps", Settings, report.trace_steps), .fallback = "3", RANGE(1, 1 << 20),
     .help = "Number of steps to trace."},
    {OPT_FLAG("quiet", Settings, report.quiet), .per_rank = PER_RANK_ANY, .help = "Do not show progress."},
};

static const Option leader_table[] = {
    {OPT_TEXT("leaderboard", BenchArgs, leaderboard, "FILE"), .shown = "none",
     .help = "Measure generation with 1 and 12 sequences and training with micro-batches of 4 and 12 "
             "instead, and write {loss, inference_latency_1, inference_latency_12, training_throughput_4, "
             "training_throughput_12}, in tokens/s. What cannot be measured, such as training a quantized model, is "
             "null. Training runs 20 steps with sequences of 128 tokens "
             "unless --steps and --seq are given."},
    {OPT_LIST("data", BenchArgs, data, "FILE"), .per_rank = PER_RANK_PATH,
     .help = "With --leaderboard and a checkpoint as --model: data for the loss."},
    {OPT_INT("accumulate", BenchArgs, accumulate), .fallback = "40", RANGE(1, 1 << 16),
     .help = "With --leaderboard: micro-batches per training step."},
    {OPT_INT("new-tokens", BenchArgs, new_tokens), .fallback = "500", RANGE(1, INT32_MAX),
     .help = "With --leaderboard: tokens to generate per sequence."},
    {OPT_TEXT("published", BenchArgs, published, "KEY=X,..."), .shown = "none",
     .help = "With --leaderboard: figures to show beside those measured, such as "
             "loss=2.837,training_throughput_4=37779.8."},
};

static const Option plan_table[] = {
    {OPT_INT("batch", PlanArgs, train.config.training.batch), .fallback = "0", RANGE(1, 1 << 24),
     .shown = "one micro-batch per replica; with a pipeline, 4 per stage",
     .help = "Global batch size: sequences per step, over all replicas."},
    {OPT_INT("micro-batch", PlanArgs, train.config.run.micro_batch), .fallback = "0", RANGE(1, 1 << 20),
     .shown = "the batch, or 1 without --batch",
     .help = "Sequences per forward and backward pass; must divide a replica's batch."},
    OPTIMIZER_ROW(PlanArgs, train.config.training.optimizer),
    {OPT_TEXT("cluster", PlanArgs, cluster, "NAME|FILE"), .shown = "none",
     .help = "Hardware to plan for: %s, or a file like those in clusters/. Reports whether the layout fits and, "
             "if not, what does. NAME+PROGRAM plans for another program than weft: deepspeed, pytorch, transformers, "
             "or a file.", .names = cluster_names},
    {OPT_FLOAT("imbalance", PlanArgs, train.config.run.imbalance), .fallback = "1", RANGE(1, 1 << 20),
     .help = "With --ep: tokens that the planned rank's experts receive, relative to the mean of all ranks."},
    {OPT_FLOAT("price", PlanArgs, price), .fallback = "0", AT_LEAST(0), .shown = "the cluster file's, if any",
     .help = "With --cluster: price per hour of a GPU, or of a node without GPUs, in any currency. Reports the "
             "cost of a million tokens."},
    {OPT_FLOAT("power", PlanArgs, power), .fallback = "0", AT_LEAST(0), .shown = "the cluster file's, if any",
     .help = "With --cluster: power in watts of a GPU, or of a node without GPUs. Reports the energy of a million "
             "tokens."},
    {OPT_FLAG("search", PlanArgs, search),
     .help = "Search for the fastest layouts on --ranks devices of the cluster. Layout options that are "
             "given stay fixed."},
    {OPT_TEXT("sweep", PlanArgs, sweep, "LIST"), .shown = "none",
     .help = "Scaling study: search at each of these device counts, for example 16,32,...,1024, with a "
             "constant batch (strong scaling) and a growing one (weak scaling); --batch is the batch at "
             "the first count. With a FILE, also plot curves."},
    {OPT_TEXT("html", PlanArgs, html, "FILE"), .shown = "none",
     .help = "Write the plan, --search or --sweep as a page: speed, memory and cost of the layouts, the "
             "timeline of the fastest, and why the others lose. Requires --cluster. Example: plan.html."},
    {OPT_FLAG("measure", PlanArgs, measure),
     .help = "Benchmark this machine and write a cluster file to --out: kernels, memory and, with --ranks, "
             "communication. Takes about 30 s; nothing else should be running."},
    {OPT_TEXT("out", PlanArgs, out, "FILE"), .shown = "none", .help = "Cluster file that --measure writes."},
    {OPT_FLAG("draw", PlanArgs, draw),
     .help = "Draw the timeline of the pipeline schedule in the terminal and, with a FILE, as SVG."},
    {OPT_INT("micros", PlanArgs, micros), .fallback = "0", RANGE(1, 1 << 16),
     .shown = "from the batch, else 8", .help = "With --draw, micro-batches per step, instead of --batch."},
};

static const Option failure_table[] = {
    {OPT_ROW("mtbf", OPTION_FLOAT, FIELD(FailureArgs, mtbf_hours, double), "HOURS"),
     .fallback = "0", ABOVE_ZERO, .shown = "no failures",
     .help = "Mean time between failures of one device, in hours. A failure stops the job, which restarts "
             "from its newest checkpoint."},
    {OPT_TEXT("checkpoint-every", FailureArgs, checkpoint_every, "SECONDS|auto"), .fallback = "auto",
     .help = "Time between checkpoints, in seconds; auto: the interval with the best goodput."},
    {OPT_FLOAT("checkpoint-seconds", FailureArgs, checkpoint_seconds), .fallback = "-1", ABOVE_ZERO,
     .shown = "fp32 parameters and optimizer state at --storage-bandwidth",
     .help = "Time to write a checkpoint, in seconds."},
    {OPT_FLAG("async-save", FailureArgs, no_async_save), .fallback = "on", .inverted = true,
     .help = "Pause training while a checkpoint is written, instead of writing it in the background."},
    {OPT_FLOAT("save-stall", FailureArgs, save_stall), .fallback = "0.1", ABOVE_ZERO,
     .help = "Time that training loses to a save in the background, in seconds."},
    {OPT_FLOAT("restart-seconds", FailureArgs, restart_seconds), .fallback = "-1", AT_LEAST(0),
     .shown = "300 plus reading the checkpoint",
     .help = "Time from a failure to the next step, in seconds: detection, new devices, startup, loading."},
    {OPT_SIZE("storage-bandwidth", FailureArgs, storage_bandwidth), .fallback = "10GB", RANGE(1, 1e18),
     .help = "Aggregate bandwidth of checkpoint storage, in bytes per second."},
};

static const Option prune_table[] = {
    {OPT_CHOICE("kind", PruneSpec, kind, "KIND", kind_choices), .fallback = "weights",
     .help = "What to prune: single weights of the layers' matrices, which become zero; feed-forward rows "
             "or attention heads, which are removed, so that the model gets smaller and faster; or rows of "
             "all matrices (all-rows): feed-forward rows and heads are removed, and rows that write to the "
             "residual stream become zero."},
    {OPT_CHOICE("score", PruneSpec, score, "NAME", score_choices),
     .shown = "l2; for rows and heads: product",
     .help = "Importance: the norm of a row's weights, or a weight's magnitude (l2); the norm of input "
             "weights times the norm of output weights (product, not for weights); or the sum of |weight x "
             "gradient| over 4 batches of --data (gradient)."},
    {OPT_FLOAT("amount", PruneSpec, amount), .required = true, INSIDE_ZERO_ONE,
     .help = "Fraction to prune in total, for example 0.8 for 80%. Existing zeros count toward it."},
    {OPT_FLAG("global", PruneSpec, global),
     .help = "Weights: rank all matrices together. This is the default."},
    {OPT_FLAG("per-matrix", PruneSpec, per_matrix),
     .help = "Weights: prune the same fraction of each matrix (q, k and v count separately)."},
    {OPT_INT("row-multiple", PruneSpec, row_multiple), .fallback = "8", RANGE(1, 1 << 20),
     .help = "Feed-forward rows: keep a multiple of this number, rounding up, for efficient kernels and "
             "tensor parallelism."},
    {OPT_INT("rounds", PruneSpec, rounds), .fallback = "1", RANGE(1, 10000),
     .help = "Number of rounds, each of pruning followed by training."},
    {OPT_INT("steps-per-round", PruneSpec, steps_per_round), .fallback = "100", AT_LEAST(1),
     .help = "Optimizer steps per round. Pruned weights stay zero."},
    {OPT_CHOICE("ramp", PruneSpec, ramp, "NAME", ramp_choices), .fallback = "remaining",
     .help = "Each round prunes the same fraction of what remains (remaining) or the same number (even)."},
    {OPT_CHOICE("also", PruneSpec, also, "KIND", kind_choices), .shown = "none",
     .help = "Prune by this kind too, with the same options, and plot and compare both. Results are in "
             "OUT/KIND."},
    {OPT_TEXT("beside", PruneSpec, beside, "DIR"), .shown = "none",
     .help = "Another pruning run to include in the plots."},
    {OPT_FLAG("resume", PruneSpec, resume), .word = "auto",
     .help = "Continue an interrupted run; all other options must be the same as before."},
};

static const Option pruned_table[] = {
    {OPT_TEXT("model", Settings, model.name, "DIR"), .per_rank = PER_RANK_PATH, .required = true,
     .help = "Checkpoint directory, or run directory (its newest checkpoint)."},
    {OPT_TEXT("out", Settings, ckpt.out, "DIR"), .required = true,
     .help = "New or empty directory for the pruned checkpoint. With --data it contains all rounds; passed "
             "as --model, it means the last one."},
    {OPT_LIST("data", Settings, data.files, "FILE"), .per_rank = PER_RANK_PATH, .shown = "no training",
     .help = "Data to train on between rounds, as in 'weft train'."},
    {OPT_TEXT("tokenizer", Settings, data.text.tokenizer, "DIR"), .per_rank = PER_RANK_PATH, .shown = "the model's own, else bytes",
     .help = "Tokenizer for text: a directory with its files, or bytes."},
    {OPT_CHOICE("task", Settings, model.task, "TASK", task_choices), .fallback = "auto",
     .help = "Training objective, as in 'weft train'."},
    {OPT_INT("seq", Settings, model.seq), .fallback = "0", RANGE(1, MAX_POSITIONS), .shown = "the model's own",
     .help = "Sequence length in tokens."},
    {OPT_FLOAT("dropout", Settings, model.dropout), .fallback = "-1", BELOW_ONE, .shown = "the model's own",
     .help = "Dropout rate of embeddings, attention and layer outputs."},
    {OPT_INT("eval-batches", Settings, validation.batches), .fallback = "20", AT_LEAST(0),
     .help = "Batches of --batch sequences per evaluation; 0: all validation data."},
    {OPT_FLAG("quiet", Settings, report.quiet), .per_rank = PER_RANK_ANY, .help = "Do not show progress."},
};
/* clang-format on */

const OptionGroup train_groups[] = {
    OPTION_GROUP("Model", model_table, offsetof(TrainArgs, config)),
    OPTION_GROUP("Data", data_table, offsetof(TrainArgs, config)),
    OPTION_GROUP("Training", training_table, offsetof(TrainArgs, config)),
    OPTION_GROUP("Run", run_table, offsetof(TrainArgs, config)),
    OPTION_GROUP("Layout", layout_table, 0),
    {0},
};

const OptionGroup bench_groups[] = {
    OPTION_GROUP("Model", model_table, offsetof(TrainArgs, config)),
    OPTION_GROUP("Measurement", bench_table, offsetof(TrainArgs, config)),
    OPTION_GROUP("Leaderboard", leader_table, 0),
    OPTION_GROUP("Layout", layout_table, 0),
    {0},
};

const OptionGroup plan_groups[] = {
    OPTION_GROUP("Plan", plan_table, 0),
    OPTION_GROUP("Failures", failure_table, offsetof(PlanArgs, failure)),
    OPTION_GROUP("Model", model_table, offsetof(TrainArgs, config)),
    OPTION_GROUP("Layout", layout_table, 0),
    {0},
};

/* Leading rows that prune replaces: --data; --steps and --epochs. */
enum { DATA_ROWS = 1, LENGTH_ROWS = 2 };

#define REST_GROUP(title, table, skip, at)                                                                   \
    { .heading = (title), .options = (table) + (skip), .count = COUNT_OF(table) - (skip), .base = (at) }

const OptionGroup prune_groups[] = {
    OPTION_GROUP("Pruning", prune_table, offsetof(PruneArgs, prune)),
    OPTION_GROUP("Model and data", pruned_table, offsetof(PruneArgs, train.config)),
    REST_GROUP("Reading data", data_table, DATA_ROWS, offsetof(PruneArgs, train.config)),
    REST_GROUP("Training", training_table, LENGTH_ROWS, offsetof(PruneArgs, train.config)),
    OPTION_GROUP("Layout", layout_table, offsetof(PruneArgs, train)),
    {0},
};

const char *warmup_file(const Invocation *call) {
    return invocation_slot(call, "warmup")->source == SOURCE_FILE ? call->config_path : NULL;
}

Status layout_check_shard(const Invocation *call, const Layout *layout) {
    char label[LABEL_SIZE];
    int copies = mesh_copies(layout_mesh(layout));
    if (layout->shard && copies % layout->shard)
        return USAGE("%s %lld: must divide the number of ranks with the same parameters, %d",
                     invocation_label(call, "shard", label), (long long)layout->shard, copies);
    int64_t sync_every = layout_number(call, "sync-every");
    if (layout->shard && sync_every && layout->shard % (layout->cp ? layout->cp : 1))
        return USAGE("%s %lld: a worker has whole sequences; use a multiple of --cp %lld",
                     invocation_label(call, "shard", label), (long long)layout->shard, (long long)layout->cp);
    return OK;
}

Status layout_check(const Invocation *call, const TrainArgs *args) {
    Precision precision;
    const Layout *layout = &args->layout;
    TRY(layout_check_shard(call, layout));
    if (args->config.run.outer.every && !layout->shard && layout->dp > 1)
        return USAGE(
            "--sync-every with --zero %lld shards one copy of the model across all %lld replicas, which "
            "makes them a single worker; pass --shard N, the number of replicas in a worker",
            (long long)args->config.run.zero, (long long)layout->dp);
    TRY(kernels_check_device(args->config.device.name, args->config.device.kernels));
    return kernels_precision(args->config.device.name, args->config.device.precision, &precision);
}
