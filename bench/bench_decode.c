/* What one core decodes: JPEG, random resized crop to 224, flip, normalise, over a folder of
 * photos, against torchvision with Pillow. The two work in turns, and what counts is the time that
 * the core spent on each, so that other programs on the machine disturb little. Prints images per
 * second as median [least, largest] of the turns and writes out/bench/decode.json.
 *
 * usage: bench_decode [FOLDER], run by `make bench`; FOLDER: ../shared/data/clothing. Exit 1 when
 * the line is missed. */
#include "data/image_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { TURNS = 9, SIZE = 224 };
static const double line_to_beat = 2.0;

/* Answers each line it is sent with the seconds of one pass over the folder. */
static const char script[] =
    "import sys, time, torch, torchvision.datasets as d, torchvision.transforms as t\n"
    "torch.set_num_threads(1)\n"
    "data = d.ImageFolder(sys.argv[1], t.Compose([t.RandomResizedCrop(224), "
    "t.RandomHorizontalFlip(), t.ToTensor(),\n"
    "    t.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]))\n"
    "print(len(data), flush=True)\n"
    "for line in sys.stdin:\n"
    "    start = time.process_time()\n"
    "    for i in range(len(data)):\n"
    "        data[i]\n"
    "    print(time.process_time() - start, flush=True)\n";

/* The other side, behind two named pipes. */
typedef struct rival {
    FILE *to, *from;
    char folder[64];
} rival;

static bool rival_start(rival *r, const char *data)
{
    char path[128], command[1024];
    snprintf(r->folder, sizeof r->folder, "/tmp/levin-bench-XXXXXX");
    if (mkdtemp(r->folder) == NULL) {
        return false;
    }
    snprintf(path, sizeof path, "%s/rival.py", r->folder);
    FILE *f = fopen(path, "w");
    if (f == NULL || fputs(script, f) < 0 || fclose(f) != 0) {
        return false;
    }
    snprintf(path, sizeof path, "%s/answers", r->folder);
    if (mkfifo(path, 0600) != 0) {
        return false;
    }
    snprintf(command, sizeof command, "/usr/bin/python3 %s/rival.py '%s' 2>/dev/null > %s",
             r->folder, data, path);
    r->to = popen(command, "w");
    r->from = r->to == NULL ? NULL : fopen(path, "r");
    int n = 0;
    return r->from != NULL && fscanf(r->from, "%d", &n) == 1 && n > 0;
}

static bool rival_turn(rival *r, double *seconds)
{
    return fputs("go\n", r->to) >= 0 && fflush(r->to) == 0 && fscanf(r->from, "%lf", seconds) == 1;
}

static void rival_stop(rival *r)
{
    char path[128];
    if (r->to != NULL) {
        pclose(r->to);
    }
    if (r->from != NULL) {
        fclose(r->from);
    }
    snprintf(path, sizeof path, "%s/rival.py", r->folder);
    remove(path);
    snprintf(path, sizeof path, "%s/answers", r->folder);
    remove(path);
    remove(r->folder);
}

static double core_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static lvn_status own_turn(const lvn_dataset *data, uint32_t epoch, double *seconds)
{
    static float image[SIZE * SIZE * 3];
    int64_t label;
    const double start = core_seconds();
    for (int64_t i = 0; i < data->cls->length(data); i++) {
        LVN_TRY(data->cls->get(
            data, &(lvn_sample_key){.seed = 1, .epoch = epoch, .sample = i, .training = true},
            (void *[]){image, &label}));
    }
    *seconds = core_seconds() - start;
    return LVN_OK;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double report(FILE *json, const char *what, const char *unit, double *values)
{
    qsort(values, TURNS, sizeof *values, by_value);
    printf("decode %-12s %8.2f %s  [%.2f, %.2f]\n", what, values[TURNS / 2], unit, values[0],
           values[TURNS - 1]);
    fprintf(json, ",\n  \"%s\": {\"median\": %.4f, \"min\": %.4f, \"max\": %.4f}", what,
            values[TURNS / 2], values[0], values[TURNS - 1]);
    return values[TURNS / 2];
}

/* Whether the line was met; true where there is nothing to compare with. */
static bool measure(const lvn_dataset *data, const char *folder, FILE *json)
{
    const double n = (double)data->cls->length(data);
    double ours[TURNS], theirs[TURNS], factor[TURNS], warm_up;
    rival r = {NULL, NULL, ""};
    bool rivals = rival_start(&r, folder) && rival_turn(&r, &warm_up);
    bool good = own_turn(data, 0, &warm_up) == LVN_OK;
    for (uint32_t i = 0; good && i < TURNS; i++) {
        double seconds = 1.0, other = 1.0;
        good = own_turn(data, i + 1, &seconds) == LVN_OK;
        rivals = rivals && rival_turn(&r, &other);
        ours[i] = n / seconds;
        theirs[i] = n / other;
        factor[i] = other / seconds;
    }
    rival_stop(&r);
    if (!good) {
        fprintf(stderr, "bench_decode: %s\n", lvn_last_error()->message);
        return false;
    }
    report(json, "levin", "images/s", ours);
    if (!rivals) {
        printf(
            "/usr/bin/python3 has no torch with torchvision and Pillow: nothing to compare with\n");
        return true;
    }
    report(json, "torchvision", "images/s", theirs);
    const double median = report(json, "factor", "x", factor);
    printf("line %.1f: %s\n", line_to_beat, median >= line_to_beat ? "met" : "MISSED");
    return median >= line_to_beat;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "../shared/data/clothing";
    struct stat st;
    if (stat(folder, &st) != 0) {
        printf("bench_decode: no photos in %s: skipped\n", folder);
        return 0;
    }
    mkdir("out", 0777);
    mkdir("out/bench", 0777);
    FILE *json = fopen("out/bench/decode.json", "w");
    lvn_dataset *data = LVN_IMAGE_FOLDER(folder, .resize = SIZE);
    if (json == NULL || data == NULL) {
        fprintf(stderr, "bench_decode: cannot write out/bench/decode.json, or: %s\n",
                lvn_last_error()->message);
        return 1;
    }
    printf("%lld photos, one core, median [least, largest] of %d turns\n",
           (long long)data->cls->length(data), TURNS);
    fprintf(json, "{\n  \"photos\": %lld", (long long)data->cls->length(data));
    const bool met = measure(data, folder, json);
    fprintf(json, "\n}\n");
    lvn_dataset_destroy(data);
    lvni_data_scratch_release();
    return fclose(json) == 0 && met ? 0 : 1;
}
