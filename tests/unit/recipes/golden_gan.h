/* Written by golden_gan.py. */
/* clang-format off */
enum { HEIGHT = 12, WIDTH = 17, SAMPLES = 5 };
static const double want_psnr = 24.47797169767954;
static const double want_psnr_range = 27.5760108973944;
static const double want_ssim = 0.989721923863281;
static const double want_rmse = 0.06465647233813021;
static const double want_pearson = 0.990011595865269;
static const double want_snr = 18.54679844056937;
static const double want_masked_psnr = 24.56612120494432;
static const double want_psnr_legacy = 24.176940544640626;
static const double want_apsd = 0.0987100060384178;
static const double want_psnr_of_means[] = {
    19.324345339643923, 20.94671491880042, 22.267257834749522, 23.47855054825436,
    23.658182889718532};
static const double want_uncertainty[] = {
    -0.12201099938489353, 0.03725109044523029, -0.01821760000731618, -0.01174753842926315,
    0.740048613277878, 0.625};
static const double want_smooth[] = {
    0.29139177599182553, 0.30957474935272267, 0.29989678742189413, 0.3306514636719263,
    0.3087201400461879, 0.3170407244695783, 0.3018177628959329, 0.3130378239814519,
    0.33633412943482577, 0.3275300855540768, 0.29831950159205833, 0.2805617520697076};
static const double want_coverage[] = {
    0.21323529411764705, 0.8602941176470589, 0.9705882352941176};
enum { CFID_N = 40, CFID_D = 6, CFID_K = 4 };
static const double want_cfid[] = {
    0.23223040983984228, 0.06605380474392511, 0.16617660509591717};
