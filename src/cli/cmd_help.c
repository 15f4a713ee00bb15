/* levin help [TOPIC]: the commands, or the option table of one of them. */
#include "cli/cli.h"
#include "core/exit_code.h"
#include "core/option.h"
#include "recipes/classify.h"
#include "recipes/export.h"

#include <levin/version.h>
#include <stdio.h>
#include <string.h>

static const char overview[] =
    "levin " LEVIN_VERSION ": training of neural networks, the same bits on every layout\n"
    "\n"
    "  levin train classify data=DIR [key=value ...]   train a classifier of pictures (one sub-folder per class)\n"
    "  levin predict model=out/x data=DIR output=F.csv label pictures with a trained model\n"
    "  levin eval model=out/x data=DIR                 measure a trained model\n"
    "  levin predict model=resnet18 weights=W.safetensors data=X.npy output=logits.npy   plain logits of an array of pictures\n"
    "  levin export model=out/x output=W.safetensors   weights with the names and layouts of PyTorch\n"
    "  levin plan train classify data=DIR ...          what would run, without running it\n"
    "  levin ckpt hash FILE or RUN                     hashes of weights and state in a checkpoint, or in a run's last one\n"
    "  levin ops [NAME]                                the kernel ops: types, backends, attributes\n"
    "  levin help train.classify | predict | eval | export   all keys, with defaults\n"
    "\n"
    "Keys come from the command line or from config=FILE (YAML). First try:\n"
    "  levin train classify data=builtin:shapes model=cnn out=out/first\n";

static int print_tables(const lvni_option_table *(*tables)(size_t *n))
{
    size_t n;
    const lvni_option_table *t = tables(&n);
    lvni_option_print_help(t, n, stdout);
    return LVNI_EXIT_OK;
}

int lvni_cmd_help(int n, const char *const *words)
{
    const char *topic = n > 0 ? words[0] : "";
    if (strcmp(topic, "train") == 0 || strcmp(topic, "train.classify") == 0 || strcmp(topic, "classify") == 0) {
        return print_tables(lvni_classify_train_tables);
    }
    if (strcmp(topic, "predict") == 0) {
        return print_tables(lvni_classify_predict_tables);
    }
    if (strcmp(topic, "eval") == 0) {
        return print_tables(lvni_classify_eval_tables);
    }
    if (strcmp(topic, "export") == 0) {
        return print_tables(lvni_export_tables);
    }
    if (topic[0] != '\0' && strcmp(topic, "plan") != 0 && strcmp(topic, "ckpt") != 0 && strcmp(topic, "ops") != 0) {
        fprintf(stderr, "error: there is no help on %s\n", topic);
        fputs(overview, stderr);
        return LVNI_EXIT_USAGE;
    }
    fputs(overview, stdout);
    return LVNI_EXIT_OK;
}
