/* Written by golden_gan.py. */
/* clang-format off */
enum { HEIGHT = 12, WIDTH = 17, SAMPLES = 5 };
static const double want_psnr = 24.47797169767954;
static const double want_ssim = 0.989721923863281;
static const double want_rmse = 0.06465647233813021;
static const double want_pearson = 0.990011595865269;
static const double want_snr = 18.54679844056937;
static const double want_masked_psnr = 24.56612120494432;
static const double want_psnr_legacy = 24.176940544640626;
static const double want_apsd = 0.0987100060384178;
static const double want_uncertainty[] = {
    -0.12201099938489353, 0.03725109044523029, -0.01821760000731618, -0.01174753842926315,
    0.740048613277878, 0.625};
static const double want_coverage[] = {
    0.21323529411764705, 0.8602941176470589, 0.9705882352941176};
enum { CFID_N = 40, CFID_D = 6, CFID_K = 4 };
static const double want_cfid[] = {
    0.23223040983984228, 0.06605380474392511, 0.16617660509591717};
