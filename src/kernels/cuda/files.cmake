# The files of the backend, for the GPU (CMakeLists.txt) and for the host (tests/cuda). Kernel files end with rows_<file>.
set(levin_cuda_base device stream copies host_call table flat flat_adafactor flat_optim flat_step gemm product_odd candidates cublas
    cudnn cudnn_conv cudnn_attention cudnn_attention_graph cufft attention_products attention_products_grad)
set(levin_cuda_kernels map prelu broadcast mix reduce move index order matmul conv windows batch_norm batch_norm_grad layer_norm
    group_norm softmax loss accuracy point_loss pool resample sample sample_grad heatmap attention attention_grad fft lookup)

# levin_cuda_sources(folder out): their paths; table.cu gets the list of those with rows.
function(levin_cuda_sources folder out)
    set(rows "")
    foreach(file ${levin_cuda_kernels})
        string(APPEND rows "X(${file}) ")
    endforeach()
    list(TRANSFORM levin_cuda_base PREPEND ${folder}/ OUTPUT_VARIABLE base)
    list(TRANSFORM levin_cuda_kernels PREPEND ${folder}/ OUTPUT_VARIABLE kernels)
    list(APPEND base ${kernels})
    list(TRANSFORM base APPEND .cu)
    set_source_files_properties(${folder}/table.cu PROPERTIES COMPILE_DEFINITIONS "LEVIN_CUDA_ROWS=${rows}")
    set(${out} ${base} PARENT_SCOPE)
endfunction()
