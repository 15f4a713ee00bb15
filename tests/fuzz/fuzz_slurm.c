/* What Slurm's commands print about a cluster: three answers, separated by bytes 1, and behind them
 * a job, lines NAME=VALUE, that is checked against it. */
#include "fuzz.h"

#include "core/alloc.h"
#include "slurm/slurm_cluster_check.h"

#include <string.h>

enum { PARTS = 4, DIRECTIVES = 40 };

/* Zero-terminated parts of a copy. */
static char *split(const uint8_t *data, size_t size, char *part[PARTS])
{
    char *text = malloc(size + 1), *p = text;
    CHECK(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    for (int i = 0; i < PARTS; i++) {
        part[i] = p;
        p += strcspn(p, "\1");
        if (*p == '\1' && i + 1 < PARTS) {
            *p++ = '\0';
        }
    }
    return text;
}

static void read_job(char *text, lvni_slurm_directives *d)
{
    char *rest = text;
    for (char *line = strtok_r(rest, "\n", &rest); line != NULL && d->n < DIRECTIVES;
         line = strtok_r(NULL, "\n", &rest)) {
        char *equals = strchr(line, '=');
        if (equals != NULL) {
            *equals++ = '\0';
        }
        lvni_slurm_directive_add(d, line, equals, "here", false);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    char *part[PARTS], *text = split(data, size, part);
    lvni_slurm_cluster c = {.requeue = -1};
    lvni_slurm_directives d = {.n = 0};
    lvni_slurm_findings f = {.errors = 0};
    lvni_slurm_cluster_read_config(&c, part[0]);
    CHECK(lvni_slurm_cluster_read_partitions(&c, part[1]) == LVN_OK);
    CHECK(lvni_slurm_cluster_read_nodes(&c, part[2]) == LVN_OK);
    for (size_t i = 0; i < c.n_nodes; i++) {
        CHECK(c.nodes[i].n >= 0 && lvni_slurm_nodes_gpus(&c.nodes[i], NULL, 0) >= 0);
    }
    read_job(part[3], &d);
    CHECK_REPORTED(lvni_slurm_cluster_check(&c, &d, &f));
    CHECK((f.errors + f.warnings == 0) || f.text.data[f.text.len - 1] == '\n');
    lvni_slurm_findings_free(&f);
    lvni_slurm_directives_free(&d);
    lvni_slurm_cluster_free(&c);
    free(text);
    CHECK(lvni_core_alloc_get_total().live_bytes == live);
    return 0;
}
