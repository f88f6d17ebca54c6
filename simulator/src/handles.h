/*
 * Handles given to clients: pointers into a table of this process. They name boards and instances
 * by serial number, so that a handle to something destroyed is noticed, by whichever process.
 */
#ifndef WATTSIM_HANDLES_H
#define WATTSIM_HANDLES_H

#include "state.h"

enum ws_handle_kind { WS_HANDLE_GPU = 1, WS_HANDLE_MIG, WS_HANDLE_GI, WS_HANDLE_CI };

struct ws_handle {
    enum ws_handle_kind kind;
    unsigned int board;
    uint64_t gi_serial, ci_serial;
};

/* NULL when memory is short. */
struct ws_handle *ws_handle_for(enum ws_handle_kind kind, unsigned int board, uint64_t gi_serial,
                                uint64_t ci_serial);
/* Whether the pointer is one of this process's handles at all. */
int ws_handle_valid(const struct ws_handle *handle);

/* The UUID text of a board ("GPU-...") or MIG device ("MIG-..."). */
void ws_board_uuid(unsigned int board, char text[64]);
void ws_mig_uuid(unsigned int board, const struct ws_gi *gi, const struct ws_ci *ci,
                 char text[64]);
/* The handle of a full UUID in any of its three forms; lock held. */
nvmlReturn_t ws_handle_by_uuid(const char *uuid, struct ws_handle **out);

#endif
