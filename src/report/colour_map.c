/* Colour maps (colour_map.h).
 *
 * inferno and viridis are by Nathaniel Smith and Stefan van der Walt (2015, dedicated to the public
 * domain under CC0): the anchors are their colours at k / 15, between which this file interpolates;
 * no channel is more than 7 of 255 off. jet is Matlab's formula: three trapezia. */
#include "report/colour_map.h"

#include <math.h>
#include <string.h>

enum { ANCHORS = 16 };

static const uint32_t inferno[ANCHORS] = {
    0x000004, 0x0c0826, 0x240c4f, 0x420a68, 0x5d126e, 0x781c6d, 0x932667, 0xae305c,
    0xc73e4c, 0xdd513a, 0xed6925, 0xf8850f, 0xfca50a, 0xfac62d, 0xf2e661, 0xfcffa4};
static const uint32_t viridis[ANCHORS] = {
    0x440154, 0x481a6c, 0x472f7d, 0x414487, 0x39568c, 0x31688e, 0x2a788e, 0x23888e,
    0x1f988b, 0x22a884, 0x35b779, 0x54c568, 0x7ad151, 0xa5db36, 0xd2e21b, 0xfde725};
/* white to dark blue, by way of a middle blue: shades of counts, which black and white text suits
 */
static const uint32_t blue[ANCHORS] = {0xffffff, 0xedf4fa, 0xdce9f5, 0xcadeef, 0xb7d2e9, 0xa2c6e3,
                                       0x8cb9dc, 0x76abd4, 0x619ccb, 0x4e8dc1, 0x3d7db6, 0x2f6da9,
                                       0x235d9a, 0x194e8a, 0x113f79, 0x0b3167};

static double unit(double x)
{
    return fmin(fmax(x, 0.0), 1.0);
}

static double between(const uint32_t anchors[ANCHORS], double value, int shift)
{
    const double at = value * (ANCHORS - 1);
    const int i = at < ANCHORS - 1 ? (int)at : ANCHORS - 2;
    const double a = (double)(anchors[i] >> shift & 255),
                 b = (double)(anchors[i + 1] >> shift & 255);
    return a + (at - i) * (b - a);
}

void lvni_report_colour(lvni_report_colour_map map, double value, uint8_t rgb[3])
{
    if (isnan(value)) {
        memset(rgb, 224, 3);
        return;
    }
    const double v = unit(value);
    for (int c = 0; c < 3; c++) {
        double x = 255.0 * v;
        if (map == LVNI_COLOUR_JET) {
            x = 255.0 * unit(1.5 - fabs(4.0 * v - (3 - c)));
        } else if (map != LVNI_COLOUR_GREY) {
            x = between(map == LVNI_COLOUR_INFERNO   ? inferno
                        : map == LVNI_COLOUR_VIRIDIS ? viridis
                                                     : blue,
                        v, 16 - 8 * c);
        }
        rgb[c] = (uint8_t)lround(x);
    }
}
