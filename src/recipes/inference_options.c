/* Keys of `predict` and `eval` (inference_options.h). */
#include "recipes/inference_options.h"

static const lvni_core_option use_rows[] = {
    {.name = "config",
     .type = LVNI_OPT_PATH,
     .help = "YAML file with any of these keys.",
     .flags = LVNI_OPT_NOT_SAVED},
    {.name = "model",
     .type = LVNI_OPT_PATH,
     .help = "Run directory or exported .safetensors file."},
    {.name = "checkpoint",
     .type = LVNI_OPT_CHOICE,
     .choices = "best|last",
     .help = "Which model of a run directory; unset: best."},
    {.name = "eval_batch_size",
     .type = LVNI_OPT_INT,
     .unit = "samples",
     .fallback = "64",
     .range = LVNI_AT_LEAST(1),
     .help = "Chunk of prediction."},
    {.name = "lanes",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(1, 64),
     .flags = LVNI_OPT_AUTO,
     .help = "Chunks that run at once; auto: one per core."},
    {.name = "num_workers",
     .type = LVNI_OPT_INT,
     .unit = "threads",
     .range = {.used = true, .min = 0, .max = 256},
     .flags = LVNI_OPT_AUTO,
     .help = "Threads that decode."},
    {.name = "accelerator",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|cpu|gpu|sim",
     .fallback = "auto",
     .spellings = "cuda=gpu",
     .help = "Kind of device, as in training."},
    {.name = "devices",
     .type = LVNI_OPT_STRING,
     .fallback = "auto",
     .help = "How many devices share the work, or which (2, [0,2], -1: all); auto: one, or as many "
             "as ranks were started. The results are the same."},
    {.name = "allow_shared_device",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Ranks may share a device, as in training."},
    {.name = "strategy",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|single|dp|ddp|ddp2|sharded|balance",
     .fallback = "auto",
     .spellings = "none=single",
     .later = "sharded|balance",
     .later_note = "strategy=sharded and strategy=balance come with a later version; use ddp or dp",
     .help = "As in training: ddp (a process for each device, the default), dp (threads of one "
             "process)."},
    {.name = "peer_timeout_s",
     .type = LVNI_OPT_FLOAT,
     .unit = "s",
     .fallback = "10",
     .range = LVNI_AT_LEAST(0.5),
     .help = "A rank that is not heard of for so long counts as lost."},
    {.name = "strict",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Warnings with a number (W202) are errors, as in training."},
    {.name = "on_error",
     .type = LVNI_OPT_CHOICE,
     .choices = "stop|skip",
     .fallback = "stop",
     .help = "What an unreadable image does."},
    {.name = "use_ema",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .help = "false: of a run with ema.decay, the weights themselves and not their average; needs "
             "the run directory or a checkpoint."},
    {.name = "json",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "Results as JSON on stdout: eval one object, predict a line for each image (or in "
             "output=FILE.jsonl)."},
    {.name = "sheet",
     .type = LVNI_OPT_PATH,
     .help = "Draw images with their predictions into this PNG file (.png)."},
    LVNI_OPTION_ALIAS("gpus", "devices"),
    LVNI_OPTION_ALIAS("num_gpus", "devices"),
    LVNI_OPTION_ALIAS("distributed_backend", "strategy"),
};
const lvni_core_option_table lvni_recipes_inference_options =
    LVNI_OPTION_TABLE("model in use", use_rows);
static const lvni_core_option predict_rows[] = {
    {.name = "weights",
     .type = LVNI_OPT_PATH,
     .help = "Of an array: weights with the names of torchvision or timm for the network that "
             "model= names (resnet18, ...)."},
    {.name = "output",
     .type = LVNI_OPT_PATH,
     .fallback = "predictions.csv",
     .help = "File to write: a table (.csv: file, class, probability) or JSON lines (.jsonl); -: "
             "stdout. For data=FILE.npy, "
             "images (N, height, width, 3) used as they are: plain logits, as .npy (with weights= "
             "also to -)."},
    {.name = "top_k",
     .type = LVNI_OPT_INT,
     .unit = "classes",
     .fallback = "1",
     .range = LVNI_AT_LEAST(1),
     .help = "Most probable classes of each image, with their probabilities."},
    {.name = "probabilities",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "The probability of every class, too."},
};
const lvni_core_option_table lvni_recipes_predict_options =
    LVNI_OPTION_TABLE("predict", predict_rows);
static const lvni_core_option eval_rows[] = {
    {.name = "split",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|all|train|val|test",
     .fallback = "auto",
     .help = "Part of the data to measure on: the folder's train/, val/ or test/, else the part of "
             "the training run, given the same data; auto: "
             "test/ where the folder has one, else its val/, else all."},
    {.name = "confusion",
     .type = LVNI_OPT_PATH,
     .help = "Write the confusion matrix of all classes into this CSV file (rows: true class, "
             "columns: predicted)."},
};
const lvni_core_option_table lvni_recipes_eval_options = LVNI_OPTION_TABLE("eval", eval_rows);
