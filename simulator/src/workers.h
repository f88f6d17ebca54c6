/* Processes that use a board: their activity, memory, and whether they still live. */
#ifndef WATTSIM_WORKERS_H
#define WATTSIM_WORKERS_H

#include "state.h"

/* Start time of a living process in clock ticks since boot; 0 when it is gone or a zombie. */
uint64_t ws_process_start(unsigned int pid);
/* Removes the workers whose process has died. Call with the lock held. */
void ws_workers_reap(unsigned int board, int64_t now_ns);
/* Adds or changes a worker (one entry per pid and instance). Within a change. */
nvmlReturn_t ws_worker_set(struct ws_board *board, struct ws_worker worker);
int ws_workers_remove(struct ws_board *board, unsigned int pid);
/* How many processes run on the instance; gi_serial 0: on the board and all its instances. */
unsigned int ws_workers_on(const struct ws_board *board, uint64_t gi_serial, uint64_t ci_serial);
/* Device memory they hold, in bytes; the same selection. */
uint64_t ws_workers_memory(const struct ws_board *board, uint64_t gi_serial);

#endif
