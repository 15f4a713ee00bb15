/* Open MPI's side of bench_allreduce.c, which compiles and starts it: MPI_Allreduce of floats in
 * place, sizes as there, one line "bytes microseconds" each. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_TURNS = 400, LEAST_TURNS = 7 };

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static double took[MOST_TURNS], slowest[MOST_TURNS];
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const size_t least = (size_t)atol(argv[1]), most = (size_t)atol(argv[2]);
    const double budget_s = atof(argv[3]);
    float *x = malloc(most);
    for (size_t i = 0; i < most / sizeof *x; i++) {
        x[i] = 1e-3f * (float)(i % 1000);
    }
    for (size_t bytes = least; bytes <= most; bytes *= 2) {
        int turns = 0, go_on = 1;
        double spent = 0;
        for (int warm = 0; warm < 2; warm++) {
            MPI_Allreduce(MPI_IN_PLACE, x, (int)(bytes / sizeof *x), MPI_FLOAT, MPI_SUM,
                          MPI_COMM_WORLD);
        }
        while (go_on) {
            MPI_Barrier(MPI_COMM_WORLD);
            const double start = MPI_Wtime();
            MPI_Allreduce(MPI_IN_PLACE, x, (int)(bytes / sizeof *x), MPI_FLOAT, MPI_SUM,
                          MPI_COMM_WORLD);
            took[turns] = MPI_Wtime() - start;
            spent += took[turns++];
            go_on = turns < LEAST_TURNS || (turns < MOST_TURNS && spent < budget_s);
            MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
        }
        MPI_Reduce(took, slowest, turns, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            qsort(slowest, (size_t)turns, sizeof *slowest, by_value);
            printf("%zu %.3f\n", bytes, slowest[turns / 2] * 1e6);
            fflush(stdout);
        }
    }
    MPI_Finalize();
    return 0;
}
