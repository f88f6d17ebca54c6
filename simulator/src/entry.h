/*
 * What every API function does first: is the library initialised, is the handle one of ours and
 * alive, is a fault scripted for this call. A successful enter leaves the state locked.
 */
#ifndef WATTSIM_ENTRY_H
#define WATTSIM_ENTRY_H

#include <stddef.h>

#include "handles.h"
#include "state.h"

enum ws_want {
    WS_WANT_GPU,    /* a MIG handle is an invalid argument */
    WS_WANT_BOARD,  /* a MIG handle stands for its parent board */
    WS_WANT_METER,  /* a MIG handle is NOT_SUPPORTED: the quantity exists for the board only */
    WS_WANT_MIG,    /* a GPU handle is an invalid argument */
    WS_WANT_GI,
    WS_WANT_CI,
};

struct ws_call {
    struct ws_state *state;
    struct ws_board *board;
    const struct ws_model *model;
    const struct ws_handle *handle;
    struct ws_gi *gi; /* of a MIG, GI or CI handle */
    struct ws_ci *ci; /* of a MIG or CI handle */
    unsigned int index;
    int is_mig;
    int64_t now_ns;
};

int ws_initialised(void);
nvmlReturn_t ws_init(const char *function);
nvmlReturn_t ws_shutdown(void);

nvmlReturn_t ws_enter_system(const char *function, struct ws_call *call);
nvmlReturn_t ws_enter(const char *function, struct ws_call *call, const struct ws_handle *handle,
                      enum ws_want want);
nvmlReturn_t ws_leave(nvmlReturn_t code); /* unlocks; returns its argument */
/* The scripted code for one value of a multi-value call, or NVML_SUCCESS; lock held. */
nvmlReturn_t ws_value_fault(const struct ws_call *call, const char *name);

#define ENTER_SYSTEM() \
    struct ws_call c; \
    do { \
        nvmlReturn_t enter_code = ws_enter_system(__func__, &c); \
        if (enter_code != NVML_SUCCESS) return enter_code; \
    } while (0)

/* For a helper that serves several API functions: `function` is the one that was called. */
#define ENTER_AS(function, handle, want) \
    struct ws_call c; \
    do { \
        nvmlReturn_t enter_code = ws_enter(function, &c, handle, want); \
        if (enter_code != NVML_SUCCESS) return enter_code; \
    } while (0)
#define ENTER(handle, want) ENTER_AS(__func__, handle, want)

#define LEAVE(code) return ws_leave(code)
#define REQUIRE(condition, code) \
    do { \
        if (!(condition)) LEAVE(code); \
    } while (0)
#define NOT_NULL(pointer) REQUIRE((pointer) != NULL, NVML_ERROR_INVALID_ARGUMENT)

/* An API function that gives one value of a device; `c` in the expression is the call. */
#define GETTER(function, want, type, expression) \
    NVML_EXPORT nvmlReturn_t function(nvmlDevice_t device, type *value) { \
        ENTER(device, want); \
        NOT_NULL(value); \
        *value = (type)(expression); \
        LEAVE(NVML_SUCCESS); \
    }

#endif
