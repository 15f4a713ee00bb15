/* The table of commands (cli.h), and those that are a few lines. */
#include "cli/cli.h"
#include "cli/sweep.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/str.h"
#include "launch/launch.h"
#include "recipes/registry.h"
#include "recipes/user/user_recipe.h"
#include "run/error_record.h"
#include "run/run_dir.h"
#include "slurm/slurm_options.h"
#include "tune/tune.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* levin launch [options] -- PROGRAM [ARGS...] */
static int run_launch(int n, const char *const *args)
{
    return lvni_launch(n, args, environ, lvni_run_dir_after_kill);
}

#define OWN_RECIPE(command) "Of a recipe of your own: levin " command " ./mine.so model=out/x ..."

const lvni_cli_command lvni_cli_commands[] = {
    {.name = "train",
     .run = lvni_cli_cmd_train,
     .computes = true,
     .trains = true,
     .by_recipe = true, /* a line of use each */
     .use = {{"levin train ./mine.so [key=value ...]", "a recipe of your own (levin cc)"}},
     .more = "The run goes into out=DIR; resume=true continues it."},
    {.name = "predict",
     .run = lvni_cli_cmd_predict,
     .computes = true,
     .use = {{"levin predict model=out/x data=DIR output=F.csv",
              "label images with a trained model"},
             {"levin predict embed model=out/x data=DIR output=F.npy",
              "features of images by a pretrained backbone"},
             {"levin predict model=resnet18 weights=W.safetensors data=X.npy output=logits.npy",
              "plain logits of an array of images"}},
     .more = OWN_RECIPE("predict"),
     .uses = true},
    {.name = "eval",
     .run = lvni_cli_cmd_eval,
     .computes = true,
     .use = {{"levin eval model=out/x data=DIR", "measure a trained model"},
             {"levin eval knn model=out/x data=DIR",
              "how often nearest neighbours of a pretrained backbone find the class"},
             {"levin eval linear model=out/x data=DIR", "the same of a linear classifier"}},
     .more = OWN_RECIPE("eval"),
     .uses = true},
    {.name = "export",
     .run = lvni_cli_cmd_export,
     .alone = true,
     .use = {{"levin export model=out/x output=W.safetensors",
              "weights with the names and layouts of PyTorch"}},
     .more = OWN_RECIPE("export"),
     .uses = true},
    {.name = "plan",
     .run = lvni_cli_cmd_plan,
     .computes = true,
     .alone = true,
     .use = {{"levin plan train classify data=DIR ...", "what would run, without running it"}},
     .more = "Prints how the batches are cut, the length of the run, the parameters, the memory it "
             "would take, and the keys that pin its bits;\n"
             "writes nothing. What the training would refuse is refused here.",
     .by_recipe = true},
    {.name = "tune",
     .run = lvni_cli_cmd_tune,
     .computes = true,
     .use = {{"levin tune batch-size [RECIPE] [key=value ...]",
              "the largest batch_size_per_device that fits on every rank"},
             {"levin tune lr [RECIPE] [key=value ...]", "a learning rate at which the loss falls"}},
     .words = "batch-size lr",
     .more = "Takes all keys of the recipe's training (levin help train). batch-size starts it for "
             "two steps and a part of the validation at each size\n"
             "that should fit; the answer was run; nothing is written; exit code 69 when no size "
             "fits. lr makes steps with larger and larger rates,\n"
             "and writes the losses (tune.csv) and their curve (tune.plot); exit code 69 without a "
             "clear "
             "descent. See docs/tune.md.",
     .keys = lvni_tune_own_keys},
    {.name = "data",
     .run = lvni_cli_cmd_data,
     .computes = true,
     .alone = true,
     .use = {{"levin data dlc IN OUT [videos=false] [link=true]",
              "make a project for levin train pose of one of DeepLabCut"},
             {"levin data check config=FILE [json=true] [key=value ...]",
              "labels, frames and videos of a project, and the memory of its training"}},
     .words = "check dlc",
     .more = "dlc: labels of all recordings in one file, images and videos (videos=false: without "
             "them; link=true: links in place of copies), and OUT/config.yaml.\n"
             "check takes all keys of levin train pose; exit code 1 when something is damaged, "
             "missing or does not fit. See docs/pose.md."},
    {.name = "slurm",
     .run = lvni_cli_cmd_slurm,
     .use = {{"levin slurm env [--json | --export] [--strict]",
              "which rank this process is, and from which variables"},
             {"levin slurm expand [--first] LIST...",
              "the hosts of a list such as n[08-11], one a line"},
             {"levin slurm compress HOST...", "the shortest list of these hosts"},
             {"levin slurm script [options] -- PROGRAM [ARGS...]",
              "a job script for sbatch, checked, on standard output or in out=FILE"},
             {"levin slurm script [options] train RECIPE key=value ...",
              "the same of a training: its devices and num_nodes are the job's"},
             {"levin slurm submit [--dry-run] [--test-only] [--wait] [options] ...",
              "the script to sbatch; its number, script and time go into jobs.tsv"},
             {"levin slurm check FILE...", "what is wrong with job scripts that others wrote"},
             {"levin slurm finish CODE [RUN]",
              "in a job's script: 0 where the training has queued the job again"},
             {"levin slurm profiles", "defaults of clusters that profile=NAME takes"},
             {"levin slurm status [JOB...] [--all] [--json]",
              "jobs that run, wait or ended lately; yours, or these"},
             {"levin slurm logs JOB [-f] [-n LINES] [--rank R]",
              "what a job wrote; -f follows it until it has ended"},
             {"levin slurm why JOB [--json]",
              "what became of a job, for which cause, and what to do next"},
             {"levin slurm cancel|requeue JOB... [--all] [--user NAME]",
              "end jobs, or start them again"},
             {"levin slurm signal JOB... SIGNAL [--batch | --full]",
              "a signal to the tasks of jobs (--batch: to the script, --full: to both)"},
             {"levin slurm nodes [-p PARTITION] [-N] [--json]",
              "what of each partition is free; -N: of each node"},
             {"levin slurm shell JOB [--node HOST] [-- PROGRAM...]", "a shell in a job that runs"},
             {"levin slurm shell [options] [-- PROGRAM...]", "a shell in a job of its own"}},
     .words = "env expand compress script submit check profiles status logs why cancel requeue "
              "signal nodes shell finish",
     .more = "script: options are --key value or key=value, and -t, -p, ... as of sbatch; a value "
             "that begins with ? is written as a "
             "comment. A key that the\n"
             "training has, too, is slurm.KEY behind the recipe. See docs/slurm.md. env: "
             "--env-source NAME reads the variables of one launcher alone (levin torchrun "
             "ompi mvapich2 pals jsm flux pmi slurm single);\n"
             "--export prints lines for a shell's eval. expand: --first prints the first host "
             "(exit code 1 when there is none), --count how many\n"
             "there are, -0 ends each with a zero byte. Works without Slurm; see docs/launch.md.\n"
             "JOB is a number, a name, a run directory, or last (of jobs.tsv in levin-jobs, or in "
             "--log-dir DIR).",
     .keys = lvni_slurm_keys},
    {.name = "sweep",
     .run = lvni_cli_cmd_sweep,
     .use = {{"levin sweep train RECIPE \"optim.lr=[0.1,0.01]\" out=DIR [key=value ...]",
              "plan a training for each choice, and run them"},
             {"levin sweep plan [options] -- COMMAND {NAME} {trial_dir}",
              "plan trials of any program; DIR/sweep.json and DIR/trials"},
             {"levin sweep run DIR [options]", "run what is left of a sweep on this machine"},
             {"levin sweep worker DIR [options]",
              "the same as one of several, on one or more nodes"},
             {"levin sweep trial DIR N [-- srun -N 2 {command}]",
              "run one trial, as an element of a job array does"},
             {"levin sweep submit DIR [--as array|jobs|tasks] [options of levin slurm script]",
              "what is left of a sweep as jobs of Slurm"},
             {"levin sweep report epoch=3 val/loss=0.2",
              "within a trial: print continue or stop (strategy=asha)"},
             {"levin sweep status DIR", "how many trials are pending, running, done, ..."},
             {"levin sweep show DIR [N]", "the trials, the best first; or one of them"},
             {"levin sweep best DIR", "the best trial; its parameters, checkpoint or command"},
             {"levin sweep export DIR", "all that is known of the trials, as CSV"},
             {"levin sweep stop DIR [N...]",
              "end the sweep, or some of its trials; they can go on"},
             {"levin sweep resume DIR [options of run]",
              "go on; with --retry-failed what failed runs again"}},
     .words = "plan train run worker trial submit report status show best export stop resume",
     .more = "A list for a key that is not a list itself is a choice. Options are --key value or "
             "key=value; a key that the training has, too, is sweep.KEY\n"
             "behind the recipe. See docs/sweep.md.",
     .keys = lvni_cli_sweep_keys},
    {.name = "launch",
     .run = run_launch,
     .own_arguments = lvni_launch_own_arguments,
     .use = {{"levin launch -n 4 -- PROGRAM [ARGS...]",
              "any program as several ranks, with torchrun's environment"}},
     .more = "Options are --key value or key=value; -n is --nproc, -q --quiet, -v --verbose. The "
             "first failure is named with its last lines, all\n"
             "others are stopped, and nothing is left behind. See docs/launch.md.",
     .keys = lvni_launch_keys},
    {.name = "report",
     .run = lvni_cli_cmd_report,
     .computes = true, /* with data= */
     .alone = true,
     .use = {{"levin report RUN [data=DIR] [output=FILE.html]",
              "a page of a run: curves, values, starts, warnings, configuration"},
             {"levin report RUN format=png [output=FILE.png]",
              "its curves as one figure, for a paper or a chat; format=svg"},
             {"levin report SWEEP [output=FILE.html]",
              "a page of a sweep: parameters and results, curves, a table of its trials"}},
     .more =
         "RUN is the directory of any run, also of one that goes on or was killed; the page is "
         "RUN/report.html, one file without scripts\n"
         "and without requests to anywhere. output=- prints it. data=DIR, of classify: its model "
         "measured, with keys of\n"
         "levin eval such as split=val: confusion matrix, classes, mistakes. Of pretrain: a map of "
         "the features of its images, or of data=DIR,\n"
         "and those that are nearest to some of them.",
     .keys = lvni_cli_report_keys},
    {.name = "ckpt",
     .run = lvni_cli_cmd_ckpt,
     .alone = true,
     .use = {{"levin ckpt verify FILE or RUN ... [json=true]",
              "is every file complete: its form, its checksums; of a run all its checkpoints"},
             {"levin ckpt show FILE or RUN [json=true]", "metadata and tensors"},
             {"levin ckpt diff A B [json=true]",
              "in which tensors two files or runs differ, and by how much"},
             {"levin ckpt average A B ... out=FILE",
              "the mean of the weights of files or runs, for weights= and model="},
             {"levin ckpt convert IN OUT [weights.key=KEY]",
              "weights of torch.save (.pt, .pth, .ckpt) or of several files with an index as "
              ".safetensors, and others as .pt"},
             {"levin ckpt hash FILE or RUN",
              "hashes of weights and state in a checkpoint, or in a run's last one"}},
     .words = "average convert diff hash show verify",
     .more = "Of a run, show, diff, average and hash take the last checkpoint. `weights` is over "
             "parameters and "
             "buffers, `state` over all tensors and the position\n"
             "of the run: equal for equal runs on any layout. Exit code 1 when a file is missing, "
             "cut off or damaged, and of diff when the files differ. See docs/checkpoints.md."},
    {.name = "cc",
     .run = lvni_cli_cmd_cc,
     .use = {{"levin cc mine.c [-o mine.so] [FLAG...]",
              "compile a recipe of your own, for levin train ./mine.so"}},
     .more = "The shared object is written beside the source (dir/mine.c makes dir/mine.so), or "
             "under the name of -o. Calls $CC, else cc, with levin's headers; other arguments\n"
             "go to it as they are. See levin/recipe.h and examples/07_recipe. A program with a "
             "main() of its own: cc prog.c -o prog $(pkg-config --cflags --libs levin)."},
    {.name = "ops",
     .run = lvni_cli_cmd_ops,
     .computes = true,
     .use = {{"levin ops [NAME]", "the kernel ops: types, backends, attributes"},
             {"levin ops check accelerator=NAME [OP...]",
              "compare the kernels of a backend with the reference"},
             {"levin ops check accelerator=NAME seconds=S [seed=N] [type=T] [OP...]",
              "the same over shapes drawn at random"}},
     .more = "Without a name the table of all; with one, what that op takes. check runs every case "
             "of the ops (and flat.NAME of flat buffers) on a\n"
             "device of the backend (NAME:1: on its second one); exit code 1 when one fails. With "
             "seconds=S it draws shapes for what libraries compute,\n"
             "other ones each day or with seed=N, in f32, bf16 and f16 or one type=T. See "
             "docs/backends.md."},
    {.name = "doctor",
     .run = lvni_cli_cmd_doctor,
     .use = {{"levin doctor [--json]",
              "what is wrong with this machine for training, above all its GPUs"}},
     .words = "--json",
     .more = "A line for each check, ok, warn or FAIL, with what to do about it; exit code 1 when "
             "one is FAIL. The last line is what accelerator=auto\n"
             "uses, and why. --json prints the same as one object. See docs/doctor.md."},
    {.name = "completion",
     .run = lvni_cli_cmd_completion,
     .use = {{"levin completion bash", "the script with which bash completes keys and values"},
             {"levin completion zsh", "the same for zsh"}},
     .words = "bash zsh",
     .more = "make install puts both where the shells look. Without it: eval \"$(levin completion "
             "bash)\" in ~/.bashrc, or levin completion zsh >_levin in a folder of $fpath."},
    {.name = "help",
     .run = lvni_cli_cmd_help,
     .use = {{"levin help [COMMAND] [KEY]", "all keys of a command with defaults, or one key"}},
     .more = "`levin COMMAND --help` prints the same. KEY is a key, its beginning (optim), or its "
             "name in "
             "Lightning, timm, torchrun or Keras."},
};
const int lvni_cli_n_commands = sizeof lvni_cli_commands / sizeof *lvni_cli_commands;

const lvni_cli_command *lvni_cli_command_find(const char *name)
{
    for (int i = 0; i < lvni_cli_n_commands; i++) {
        if (strcmp(name, lvni_cli_commands[i].name) == 0) {
            return &lvni_cli_commands[i];
        }
    }
    return NULL;
}

/* What other programs call them, and scripts beside a training. */
static const struct {
    const char *word, *command;
} others[] = {{"checkpoint", "ckpt"}, {"checkpoints", "ckpt"},
              {"weights", "ckpt"},    {"fit", "train"},
              {"finetune", "train"},  {"evaluate", "eval"},
              {"validate", "eval"},   {"test", "eval"},
              {"plot", "report"},     {"inference", "predict"},
              {"infer", "predict"},   {"compile", "cc"},
              {"torchrun", "launch"}, {"diagnose", "doctor"},
              {"lr_find", "tune lr"}, {"find_batch_size", "tune batch-size"}};

/* How far a word is from the name; SIZE_MAX: too far. Two mistakes may be in one of 5 letters:
 * there are few commands. */
static size_t distance_to(const char *word, const char *name)
{
    const size_t d = lvni_core_edit_distance(word, name), limit = lvni_core_edit_limit(word, name),
                 most = limit < 2 && strlen(word) >= 5 && strlen(name) >= 5 ? 2 : limit;
    return d <= most ? d : SIZE_MAX;
}

const char *lvni_cli_command_near(const char *word)
{
    const char *near = NULL;
    size_t nearest = SIZE_MAX;
    for (int i = 0; i < lvni_cli_n_commands; i++) {
        const size_t d = distance_to(word, lvni_cli_commands[i].name);
        near = d < nearest ? lvni_cli_commands[i].name : near;
        nearest = d < nearest ? d : nearest;
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const size_t d = distance_to(word, others[i].word);
        near = d < nearest ? others[i].command : near;
        nearest = d < nearest ? d : nearest;
    }
    return near;
}

/* One use after the other. */
void lvni_cli_command_each_use(const lvni_cli_command *c,
                               void (*use)(void *user, const char *usage, const char *help),
                               void *user)
{
    for (int i = 0; c->trains && lvni_recipes_at(i) != NULL; i++) {
        const lvni_run_recipe *r = lvni_recipes_at(i);
        char usage[128];
        snprintf(usage, sizeof usage, "levin train %s %s", r->name, r->use);
        use(user, usage, r->help);
    }
    for (int i = 0; i < LVNI_COMMAND_USES && c->use[i].usage != NULL; i++) {
        use(user, c->use[i].usage, c->use[i].help);
    }
}

typedef struct use_lines {
    FILE *out;
    int n;
    bool with_help;
} use_lines;

static void print_use(void *user, const char *usage, const char *help)
{
    use_lines *l = user;
    fprintf(l->out, "%s %s\n", l->n++ == 0 ? "usage:" : "      ", usage);
    if (l->with_help) {
        fprintf(l->out, "           %s\n", help);
    }
}

/* The table of a topic's keys, with the defaults of its recipe. */
static void print_topic(const lvni_cli_topic *topic)
{
    lvni_core_config *defaults;
    if (lvni_run_report_status(lvni_cli_topic_defaults(topic, &defaults)) == LVNI_EXIT_OK) {
        lvni_core_option_print_help(topic->keys, defaults, stdout);
        lvni_core_config_destroy(defaults);
    }
}

/* Of a command without recipes its keys; where the first recipe may be left out, that one's keys;
 * else where they are. */
static void print_keys(const lvni_cli_command *c)
{
    lvni_cli_topic t;
    if (!lvni_cli_topic_of(c, NULL, &t)) {
        return;
    }
    const bool own = c == t.command && (t.recipe == NULL || c->uses || lvni_recipes_at(1) == NULL);
    const lvni_cli_topic first = t;
    for (int i = 0; lvni_cli_topic_at(i, &t); i++) {
        if (t.command == first.command && (!own || strcmp(t.name, first.name) != 0)) {
            const bool word = own && t.recipe->argument != NULL;
            printf("%s%s: levin help %s\n",
                   word  ? "With the word "
                   : own ? "Of the recipe "
                         : "All keys",
                   own ? lvni_run_typed(t.recipe) : "", t.name);
        }
    }
    if (own) {
        putchar('\n');
        print_topic(&first);
    }
}

void lvni_cli_command_print_help(const lvni_cli_command *c)
{
    use_lines l = {.out = stdout, .with_help = true};
    lvni_cli_command_each_use(c, print_use, &l);
    if (c->trains) {
        for (int i = 0; lvni_recipes_at(i) != NULL; i++) {
            printf("%s%s", i == 0 ? "Recipes: " : ", ", lvni_recipes_at(i)->name);
        }
        fputs(". ", stdout);
    }
    if (c->more != NULL) {
        printf("%s\n", c->more);
    }
    print_keys(c);
}

void lvni_cli_command_print_help_of(const lvni_cli_command *c, const char *first)
{
    lvni_cli_topic t;
    const bool file = lvni_user_is_file(first);
    const char *dot = file ? NULL : strchr(first, '.'), *name = dot != NULL ? dot + 1 : first;
    if (!(c->by_recipe || c->uses) || (!file && lvni_recipes_of_word(c->name, name) == NULL) ||
        !lvni_cli_topic_of(c, name, &t) || (!file && t.command != c)) {
        lvni_cli_command_print_help(c);
        return;
    }
    if (c->uses && !file) {
        lvni_core_print(stdout,
                        "usage: levin %s %s model=out/x [key=value ...]\n"
                        "           with a model of levin train %s\n\n",
                        c->name, name, t.recipe->name);
    } else {
        lvni_core_print(stdout, "usage: levin %s %s %s%s\n           %s\n\n", t.command->name, name,
                        c->uses ? "model=out/x " : "", t.recipe->use, t.recipe->help);
    }
    print_topic(&t);
}

int lvni_cli_command_misused(const char *name)
{
    use_lines l = {.out = stderr};
    const lvni_cli_command *c = lvni_cli_command_find(name);
    if (c != NULL) {
        lvni_cli_command_each_use(c, print_use, &l);
    }
    return LVNI_EXIT_USAGE;
}
