/* An empty library in the place of libnvrtc.so, as on a machine that has none
 * (test_cudnn_plans.cu).
 */
int no_nvrtc(void);

int no_nvrtc(void)
{
    return 0;
}
