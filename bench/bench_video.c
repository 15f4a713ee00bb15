/* Frames of a video per second of processor time: all frames in order as RGB, on one thread; with
 * the path of a Python that has OpenCV also OpenCV's reader, in turns.
 *
 * usage: bench_video [FILE [PYTHON [PAIRS]]]     without FILE a test pattern of ffmpeg's */
#include "data/video.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_PAIRS = 99 };

static double processor_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void stop(const char *what)
{
    fprintf(stderr, "bench_video: %s: %s\n", what, lvn_last_error()->message);
    exit(1);
}

/* Frames per second; opening, and counting the frames, included. */
static double levin_rate(const char *path)
{
    lvni_data_video *video;
    lvni_data_video_decoders *decoders;
    lvni_data_video_info info;
    const double start = processor_s();
    if (lvni_data_video_open(path, NULL, &video) != LVN_OK ||
        lvni_data_video_decoders_create(1, &decoders) != LVN_OK) {
        stop(path);
    }
    lvni_data_video_describe(video, &info);
    uint8_t *rgb = malloc((size_t)info.width * (size_t)info.height * 3);
    for (int64_t f = 0; rgb != NULL && f < info.frames; f++) {
        if (lvni_data_video_read(decoders, video, f, 1, rgb) != LVN_OK) {
            stop(path);
        }
    }
    free(rgb);
    lvni_data_video_decoders_destroy(decoders);
    lvni_data_video_close(video);
    return (double)info.frames / (processor_s() - start);
}

/* The same of OpenCV, one thread, its frames turned to RGB. */
static double opencv_rate(const char *python, const char *path)
{
    static const char script[] =
        "import cv2, sys, time\n"
        "cv2.setNumThreads(1)\n"
        "start, n = time.process_time(), 0\n"
        "video = cv2.VideoCapture(sys.argv[1], cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])\n"
        "while True:\n"
        "    there, frame = video.read()\n"
        "    if not there:\n"
        "        break\n"
        "    cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)\n"
        "    n += 1\n"
        "print(n / (time.process_time() - start))\n";
    char command[4096], line[64] = "";
    snprintf(command, sizeof command, "'%s' -c '%s' '%s'", python, script, path);
    FILE *f = popen(command, "r");
    if (f == NULL || fgets(line, sizeof line, f) == NULL || pclose(f) != 0) {
        fprintf(stderr, "bench_video: OpenCV did not read %s with %s\n", path, python);
        exit(1);
    }
    return atof(line);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_rates(const char *who, double *rate, int n)
{
    qsort(rate, (size_t)n, sizeof *rate, by_value);
    printf("%s: %.0f [%.0f, %.0f] frames per core-second\n", who, rate[n / 2], rate[0],
           rate[n - 1]);
}

int main(int argc, char **argv)
{
    char made[] = "/tmp/bench-video-XXXXXX.mp4";
    const char *path = argc > 1 ? argv[1] : made;
    const int pairs = argc > 3 ? atoi(argv[3]) : 7;
    double ours[MOST_PAIRS], theirs[MOST_PAIRS], ratio[MOST_PAIRS];
    if (pairs < 1 || pairs > MOST_PAIRS) {
        fprintf(stderr, "bench_video: PAIRS is 1 to %d\n", MOST_PAIRS);
        return 1;
    }
    setenv("LEVIN_BACKEND_PATH", LEVIN_BUILD_DIR, 0);
    if (argc < 2) {
        char command[256];
        const int fd = mkstemps(made, 4);
        snprintf(command, sizeof command,
                 "ffmpeg -v error -y -f lavfi -i testsrc2=s=396x406:r=25 -frames:v 500 -c:v "
                 "libx264 -pix_fmt yuv420p %s </dev/null",
                 made);
        if (fd < 0 || system(command) != 0) {
            printf("skipped: there is no ffmpeg that makes a video\n");
            return 0;
        }
    }
    (void)levin_rate(path); /* loads the libraries */
    for (int i = 0; i < pairs; i++) {
        ours[i] = levin_rate(path);
        theirs[i] = argc > 2 ? opencv_rate(argv[2], path) : 0.0;
        ratio[i] = argc > 2 ? ours[i] / theirs[i] : 0.0;
    }
    if (argc > 2) {
        qsort(ratio, (size_t)pairs, sizeof *ratio, by_value);
        printf("levin by OpenCV: %.2f [%.2f, %.2f]\n", ratio[pairs / 2], ratio[0],
               ratio[pairs - 1]);
        print_rates("OpenCV", theirs, pairs);
    }
    print_rates("levin", ours, pairs);
    if (argc < 2) {
        remove(made);
    }
    return 0;
}
