#include "workers.h"

#include <stdio.h>
#include <string.h>

#include "power.h"

/* /proc is not asked more often than this per board: it is the costly part of a call. */
#define REAP_INTERVAL_NS 2000000ll

uint64_t ws_process_start(unsigned int pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    /* The command name may contain anything; the fields follow its closing parenthesis. */
    const char *p = strrchr(text, ')');
    char process_state;
    unsigned long long start;
    if (!p || sscanf(p + 1,
                     " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                     "%*s %llu",
                     &process_state, &start) != 2)
        return 0;
    return process_state == 'Z' || process_state == 'X' ? 0 : start;
}

void ws_workers_reap(unsigned int board, int64_t now_ns) {
    struct ws_board *b = &ws_state()->board[board];
    if (now_ns - b->reaped_ns < REAP_INTERVAL_NS) return;
    b->reaped_ns = now_ns;
    int changed = 0;
    for (unsigned int i = 0; i < WS_MAX_WORKERS; i++) {
        struct ws_worker *w = &b->worker[i];
        if (!(w->flags & WS_WORKER_USED) || (w->flags & WS_WORKER_FAKE)) continue;
        if (ws_process_start(w->pid) == w->start_ticks) continue;
        if (!changed) ws_change_begin(board);
        changed = 1;
        /* Its activity counts up to this moment, when the simulator notices. */
        ws_activity_integrate(b, now_ns);
        *w = (struct ws_worker){ 0 };
    }
    if (changed) {
        ws_power_update(board, now_ns);
        ws_change_end(board);
    }
}

nvmlReturn_t ws_worker_set(struct ws_board *b, struct ws_worker worker) {
    struct ws_worker *free_slot = NULL;
    for (unsigned int i = 0; i < WS_MAX_WORKERS; i++) {
        struct ws_worker *w = &b->worker[i];
        if (!(w->flags & WS_WORKER_USED)) {
            if (!free_slot) free_slot = w;
        } else if (w->pid == worker.pid && w->gi_serial == worker.gi_serial &&
                   w->ci_serial == worker.ci_serial) {
            *w = worker;
            return NVML_SUCCESS;
        }
    }
    if (!free_slot) return NVML_ERROR_INSUFFICIENT_RESOURCES;
    *free_slot = worker;
    return NVML_SUCCESS;
}

int ws_workers_remove(struct ws_board *b, unsigned int pid) {
    int removed = 0;
    for (unsigned int i = 0; i < WS_MAX_WORKERS; i++)
        if ((b->worker[i].flags & WS_WORKER_USED) && b->worker[i].pid == pid) {
            b->worker[i] = (struct ws_worker){ 0 };
            removed++;
        }
    return removed;
}

unsigned int ws_workers_on(const struct ws_board *b, uint64_t gi_serial, uint64_t ci_serial) {
    unsigned int n = 0;
    for (unsigned int i = 0; i < WS_MAX_WORKERS; i++) {
        const struct ws_worker *w = &b->worker[i];
        if ((w->flags & WS_WORKER_USED) && (!gi_serial || w->gi_serial == gi_serial) &&
            (!ci_serial || w->ci_serial == ci_serial))
            n++;
    }
    return n;
}

uint64_t ws_workers_memory(const struct ws_board *b, uint64_t gi_serial) {
    uint64_t bytes = 0;
    for (unsigned int i = 0; i < WS_MAX_WORKERS; i++) {
        const struct ws_worker *w = &b->worker[i];
        if ((w->flags & WS_WORKER_USED) && (!gi_serial || w->gi_serial == gi_serial))
            bytes += w->memory_bytes;
    }
    return bytes;
}
