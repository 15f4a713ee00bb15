/* Written by golden_values.py. */
/* clang-format off */
#include <math.h>

static const double order[] = {
    2.0, 1.0, 2.0, -0.0,
    0.0, (double)NAN, 1.0, -INFINITY,
    INFINITY, 3.0, 3.0, (double)NAN,
    (double)NAN, -1.0, 3.0, 0.5,
    7.0, 6.0, 5.0, 4.0,
    3.0, 2.0, 1.0, 0.0};
static const double sorted_up[] = {
    -INFINITY, -0.0, 0.0, 1.0,
    1.0, 2.0, 2.0, (double)NAN,
    -1.0, 0.5, 3.0, 3.0,
    3.0, INFINITY, (double)NAN, (double)NAN,
    0.0, 1.0, 2.0, 3.0,
    4.0, 5.0, 6.0, 7.0};
static const double sorted_up_places[] = {
    7.0, 3.0, 4.0, 1.0,
    6.0, 0.0, 2.0, 5.0,
    5.0, 7.0, 1.0, 2.0,
    6.0, 0.0, 3.0, 4.0,
    7.0, 6.0, 5.0, 4.0,
    3.0, 2.0, 1.0, 0.0};
static const double sorted_down[] = {
    (double)NAN, 2.0, 2.0, 1.0,
    1.0, -0.0, 0.0, -INFINITY,
    (double)NAN, (double)NAN, INFINITY, 3.0,
    3.0, 3.0, 0.5, -1.0,
    7.0, 6.0, 5.0, 4.0,
    3.0, 2.0, 1.0, 0.0};
static const double sorted_down_places[] = {
    5.0, 0.0, 2.0, 1.0,
    6.0, 3.0, 4.0, 7.0,
    3.0, 4.0, 0.0, 1.0,
    2.0, 6.0, 7.0, 5.0,
    0.0, 1.0, 2.0, 3.0,
    4.0, 5.0, 6.0, 7.0};
static const double columns_up_places[] = {
    0.0, 0.0, 0.0, 0.0,
    0.0, 1.0, 0.0, 0.0,
    2.0, 1.0, 1.0, 2.0,
    2.0, 2.0, 2.0, 2.0,
    1.0, 2.0, 2.0, 1.0,
    1.0, 0.0, 1.0, 1.0};
static const double top[] = {
    (double)NAN, 2.0, 2.0, (double)NAN,
    (double)NAN, INFINITY, 7.0, 6.0,
    5.0};
static const double top_places[] = {
    5.0, 0.0, 2.0, 3.0,
    4.0, 0.0, 0.0, 1.0,
    2.0};
static const double least[] = {
    -INFINITY, 0.0, -0.0, -1.0,
    0.5, 3.0, 0.0, 1.0,
    2.0};
static const double steps[] = {
    -2.5, -1.5, -0.5, -0.25,
    0.5, 1.5, 2.5, 3.75,
    8388609.0, -INFINITY, INFINITY, (double)NAN};
static const double rounded[] = {
    -2.0, -2.0, -0.0, -0.0,
    0.0, 2.0, 2.0, 4.0,
    8388609.0, -INFINITY, INFINITY, (double)NAN};
static const double floors[] = {
    -3.0, -2.0, -1.0, -1.0,
    0.0, 1.0, 2.0, 3.0,
    8388609.0, -INFINITY, INFINITY, (double)NAN};
static const double ceilings[] = {
    -2.0, -1.0, -0.0, -0.0,
    1.0, 2.0, 3.0, 4.0,
    8388609.0, -INFINITY, INFINITY, (double)NAN};
static const double angles[] = {
    0.0, 9.5367431640625e-07, -0.75, 3.140625,
    100.0, -12345.5, 1099511627776.0, 3.458764513820541e+18,
    -1.2676506002282294e+30};
static const double sines[] = {
    0.0, 9.536743164061055e-07, -0.6816387600233341, 0.0009676534387822795,
    -0.5063656411097588, 0.8186914965560015, -0.40570501153282873, -0.1994285014775054,
    0.8721836054182673};
static const double cosines[] = {
    1.0, 0.9999999999995453, 0.7316888688738209, -0.9999995318233016,
    0.8623188722876839, 0.5742336053096289, -0.914004071991557, 0.979912380163878,
    0.48917865697472146};
static const double spread[] = {
    1.0, 4.0, -2.0, 0.5,
    3.0, 2.0, 2.0, 2.0,
    2.0, 2.0};
static const double std_0[] = {
    2.08806130178211, 0.0};
static const double std_1[] = {
    2.3345235059857505, 0.0};
static const double std_2[] = {
    2.695675549220764, 0.0};
static const double std_all[] = {
    1.59947908186801};
static const double std_slopes[] = {
    -0.03212647026585895, 0.28913823239273057, -0.35339117292444844, -0.08567058737562387,
    0.1820499981732007, 0.0, 0.0, 0.0,
    0.0, 0.0};
static const double logits[] = {
    1.5, -0.5, 2.0, 0.25,
    -1.0, 3.0, 0.75, -2.5,
    0.0, 0.0, 0.0, 40.0};
static const double shares[] = {
    0.25, 0.5, 0.0, 0.25,
    0.0, 0.0, 1.0, 0.0,
    0.125, 0.125, 0.25, 0.5};
static const double weights[] = {
    0.5, 2.0, 1.0, 0.25};
static const double soft[] = {
    8.268210225774371};
static const double soft_weighted[] = {
    9.426868167147692};
static const double soft_sum[] = {
    28.280604501443076};
static const double soft_slopes[] = {
    0.08724570084899916, -0.31588694156289837, 0.2125405623793905, 0.01610067833450867,
    0.00541337481170786, 0.29556025015526954, -0.30218151215565725, 0.001207887188679851,
    -0.020833333333333332, -0.08333333333333333, -0.08333333333333333, 0.1875};
static const double logs[] = {
    -1.121860395306458, -3.121860395306458, -0.621860395306458, -2.371860395306458,
    -4.120270282016656, -0.12027028201665625, -2.3702702820166563, -5.620270282016656,
    -40.0, -40.0, -40.0, 0.0};
static const double kl_sum[] = {
    22.551902340503297};
static const double kl_batch[] = {
    7.517300780167766};
static const double kl_logs[] = {
    12.527136434821339};
static const double kl_slopes[] = {
    -0.08333333333333333, -0.16666666666666666, -0.0, -0.08333333333333333,
    -0.0, -0.0, -0.3333333333333333, -0.0,
    -0.041666666666666664, -0.041666666666666664, -0.08333333333333333, -0.16666666666666666};
static const double edges[] = {
    1.0, -INFINITY, 2.0, -INFINITY,
    -INFINITY, -INFINITY, INFINITY, 1.0,
    0.0, 500.0, 1000.0, 1000.5};
static const double lse_rows[] = {
    2.313261687518223, -INFINITY, INFINITY, 1000.9740769841801};
static const double lse_columns[] = {
    1.7663678998071337, 3.076946644541926, 2.351951863802802, 40.0};
static const double sums_rows[] = {
    1.5, 1.0, 3.0, 3.25,
    -1.0, 2.0, 2.75, 0.25,
    0.0, 0.0, 0.0, 40.0};
static const double sums_columns[] = {
    1.5, -0.5, 2.0, 0.25,
    0.5, 2.5, 2.75, -2.25,
    0.5, 2.5, 2.75, 37.75};
static const double places[] = {
    1.0, 1.0, 0.0, 3.0,
    0.0, 3.0};
static const double added[] = {
    10.0, 20.0, 30.0, 40.0,
    50.0, 60.0};
static const double scattered_rows[] = {
    31.5, 29.5, 2.0, 0.25,
    49.0, 3.0, 0.75, 97.5};
static const double one_hot[] = {
    0.0, 1.0, 0.0, 0.0,
    0.0, 0.0, 1.0, 0.0,
    0.0, 0.0, 1.0, 0.0,
    0.0, 0.0, 0.0, 0.0,
    0.0, 0.0, 1.0, 0.0,
    1.0, 0.0, 0.0, 0.0,
    0.0, 0.0, 0.0, 0.0,
    1.0, 0.0};
static const double filled[] = {
    1.5, -INFINITY, -INFINITY, 0.25,
    -1.0, -INFINITY, -INFINITY, -2.5,
    0.0, -INFINITY, -INFINITY, 40.0};
