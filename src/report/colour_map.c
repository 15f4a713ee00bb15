/* Colour maps (colour_map.h).
 *
 * inferno, viridis, plasma and magma are by Nathaniel Smith and Stefan van der Walt (2015,
 * dedicated to the public domain under CC0), turbo is by Anton Mikhailov (2019): the anchors are
 * their colours at k / 15, between which this file interpolates; no channel is more than 7 of 255
 * off. jet is Matlab's formula: three trapezia; hsv goes around the circle of hues, and ends a
 * little before its beginning; rainbow is gnuplot's 33, 13, 10. */
#include "report/colour_map.h"

#include <math.h>
#include <string.h>

enum { ANCHORS = 16, TENTHS = 10 };

static const uint32_t inferno[ANCHORS] = {
    0x000004, 0x0c0826, 0x240c4f, 0x420a68, 0x5d126e, 0x781c6d, 0x932667, 0xae305c,
    0xc73e4c, 0xdd513a, 0xed6925, 0xf8850f, 0xfca50a, 0xfac62d, 0xf2e661, 0xfcffa4};
static const uint32_t viridis[ANCHORS] = {
    0x440154, 0x481a6c, 0x472f7d, 0x414487, 0x39568c, 0x31688e, 0x2a788e, 0x23888e,
    0x1f988b, 0x22a884, 0x35b779, 0x54c568, 0x7ad151, 0xa5db36, 0xd2e21b, 0xfde725};
static const uint32_t plasma[ANCHORS] = {0x0d0887, 0x330597, 0x5002a2, 0x6a00a8, 0x8405a7, 0x9c179e,
                                         0xb12a90, 0xc33d80, 0xd35171, 0xe16462, 0xed7953, 0xf68f44,
                                         0xfca636, 0xfec029, 0xf9dc24, 0xf0f921};
static const uint32_t magma[ANCHORS] = {0x000004, 0x0b0924, 0x20114b, 0x3b0f70, 0x57157e, 0x721f81,
                                        0x8c2981, 0xa8327d, 0xc43c75, 0xde4968, 0xf1605d, 0xfa7f5e,
                                        0xfe9f6d, 0xfebf84, 0xfddea0, 0xfcfdbf};
static const uint32_t turbo[ANCHORS] = {0x30123b, 0x4143a7, 0x4771e9, 0x3e9bfe, 0x22c5e2, 0x1ae4b6,
                                        0x46f884, 0x88ff4e, 0xb9f635, 0xe1dd37, 0xfaba39, 0xfd8d27,
                                        0xf05b12, 0xd63506, 0xaf1801, 0x7a0403};
/* white to dark blue, by way of a middle blue: shades of counts, which black and white text suits
 */
static const uint32_t blue[ANCHORS] = {0xffffff, 0xedf4fa, 0xdce9f5, 0xcadeef, 0xb7d2e9, 0xa2c6e3,
                                       0x8cb9dc, 0x76abd4, 0x619ccb, 0x4e8dc1, 0x3d7db6, 0x2f6da9,
                                       0x235d9a, 0x194e8a, 0x113f79, 0x0b3167};
static const uint32_t tab10[TENTHS] = {0x1f77b4, 0xff7f0e, 0x2ca02c, 0xd62728, 0x9467bd,
                                       0x8c564b, 0xe377c2, 0x7f7f7f, 0xbcbd22, 0x17becf};
static const uint32_t grey[] = {0x000000, 0xffffff}, cool[] = {0x00ffff, 0xff00ff},
                      spring[] = {0xff00ff, 0xffff00}, summer[] = {0x008066, 0xffff66},
                      autumn[] = {0xff0000, 0xffff00}, winter[] = {0x0000ff, 0x00ff80};

/* ---- the maps ---- */

static double unit(double x)
{
    return fmin(fmax(x, 0.0), 1.0);
}

static double jet(double v, int channel)
{
    return unit(1.5 - fabs(4.0 * v - (3 - channel)));
}

static double hsv(double v, int channel)
{
    const double hue = 5.90625 * v; /* in sextants */
    return channel == 0 ? unit(fabs(hue - 3.0) - 1.0) : unit(2.0 - fabs(hue - 2.0 * channel));
}

static double rainbow(double v, int channel)
{
    static const double pi = 3.14159265358979323846;
    return channel == 0   ? unit(fabs(2.0 * v - 0.5))
           : channel == 1 ? unit(sin(pi * v))
                          : unit(cos(pi * v / 2.0));
}

static double tenths(double v, int channel)
{
    const int i = v < 1.0 ? (int)(v * TENTHS) : TENTHS - 1;
    return (double)(tab10[i] >> (16 - 8 * channel) & 255) / 255.0;
}

typedef struct known_map {
    const char *name;        /* NULL: matplotlib has none */
    const uint32_t *anchors; /* n of them at equal distances */
    int n;
    double (*formula)(double v, int channel); /* in place of them */
} known_map;

#define LVNI_ANCHORED(name, table)                                                                 \
    {                                                                                              \
        name, table, (int)(sizeof(table) / sizeof *(table)), NULL                                  \
    }

static const known_map maps[] = {[LVNI_COLOUR_GREY] = LVNI_ANCHORED("gray", grey),
                                 [LVNI_COLOUR_INFERNO] = LVNI_ANCHORED("inferno", inferno),
                                 [LVNI_COLOUR_VIRIDIS] = LVNI_ANCHORED("viridis", viridis),
                                 [LVNI_COLOUR_JET] = {.name = "jet", .formula = jet},
                                 [LVNI_COLOUR_BLUE] = LVNI_ANCHORED(NULL, blue),
                                 [LVNI_COLOUR_COOL] = LVNI_ANCHORED("cool", cool),
                                 [LVNI_COLOUR_PLASMA] = LVNI_ANCHORED("plasma", plasma),
                                 [LVNI_COLOUR_MAGMA] = LVNI_ANCHORED("magma", magma),
                                 [LVNI_COLOUR_TURBO] = LVNI_ANCHORED("turbo", turbo),
                                 [LVNI_COLOUR_HSV] = {.name = "hsv", .formula = hsv},
                                 [LVNI_COLOUR_RAINBOW] = {.name = "rainbow", .formula = rainbow},
                                 [LVNI_COLOUR_SPRING] = LVNI_ANCHORED("spring", spring),
                                 [LVNI_COLOUR_SUMMER] = LVNI_ANCHORED("summer", summer),
                                 [LVNI_COLOUR_AUTUMN] = LVNI_ANCHORED("autumn", autumn),
                                 [LVNI_COLOUR_WINTER] = LVNI_ANCHORED("winter", winter),
                                 [LVNI_COLOUR_TAB10] = {.name = "tab10", .formula = tenths}};

static double between(const known_map *m, double value, int shift)
{
    const double at = value * (m->n - 1);
    const int i = at < m->n - 1 ? (int)at : m->n - 2;
    const double a = (double)(m->anchors[i] >> shift & 255),
                 b = (double)(m->anchors[i + 1] >> shift & 255);
    return a + (at - i) * (b - a);
}

void lvni_report_colour(lvni_report_colour_map map, double value, uint8_t rgb[3])
{
    if (isnan(value)) {
        memset(rgb, 224, 3);
        return;
    }
    const double v = unit(value);
    const known_map *m = &maps[map];
    for (int c = 0; c < 3; c++) {
        const double x = m->formula != NULL ? 255.0 * m->formula(v, c) : between(m, v, 16 - 8 * c);
        rgb[c] = (uint8_t)lround(x);
    }
}

/* ---- names ---- */

const char lvni_report_colour_map_names[] =
    "cool, viridis, plasma, inferno, magma, turbo, jet, hsv, rainbow, gray, spring, summer, "
    "autumn, winter, tab10";

bool lvni_report_colour_map_find(const char *name, lvni_report_colour_map *out)
{
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        if (maps[i].name != NULL && strcmp(name, maps[i].name) == 0) {
            *out = (lvni_report_colour_map)i;
            return true;
        }
    }
    return false;
}
