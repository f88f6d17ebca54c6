#include "entry.h"

#include <fnmatch.h>
#include <time.h>

#include "instances.h"
#include "power.h"
#include "workers.h"

static int init_count; /* nvmlInit and nvmlShutdown are counted */

#define XID_FALLEN_OFF_BUS 79
#define EVENT_XID 0x8u

int ws_initialised(void) { return __atomic_load_n(&init_count, __ATOMIC_SEQ_CST) > 0; }

static void pause_ms(double ms) {
    struct timespec t = { (time_t)(ms / 1e3), 0 };
    t.tv_nsec = (long)((ms / 1e3 - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

/* Counts the call at every fault that matches it; the first one that is due decides the code, and
 * the delays of all that are due add up. Lock held. */
static nvmlReturn_t fault(const char *function, int board, int is_mig, int64_t now_ns,
                          double *delay_ms) {
    nvmlReturn_t code = NVML_SUCCESS;
    for (unsigned int i = 0; i < WS_MAX_FAULTS; i++) {
        struct ws_fault *f = &ws_state()->fault[i];
        if (!f->used || (f->board >= 0 && f->board != board)) continue;
        if ((f->target == 1 && is_mig) || (f->target == 2 && !is_mig)) continue;
        if (fnmatch(f->function, function, 0) != 0) continue;
        f->calls++;
        if (f->calls < f->from_call || (f->to_call && f->calls > f->to_call)) continue;
        if (now_ns < f->after_ns || (f->until_ns && now_ns >= f->until_ns)) continue;
        *delay_ms += f->delay_ms;
        if (code == NVML_SUCCESS) code = f->code;
    }
    return code;
}

static nvmlReturn_t apply_fault(const char *function, int board, int is_mig, int64_t *now_ns) {
    double delay_ms = 0;
    nvmlReturn_t code = fault(function, board, is_mig, *now_ns, &delay_ms);
    if (delay_ms > 0) { /* a slow call does not keep others from their boards */
        ws_unlock();
        pause_ms(delay_ms);
        ws_lock();
        *now_ns = ws_now_ns();
    }
    return code;
}

nvmlReturn_t ws_value_fault(const struct ws_call *call, const char *name) {
    double ignored = 0;
    return fault(name, (int)call->index, call->is_mig, call->now_ns, &ignored);
}

nvmlReturn_t ws_init(const char *function) {
    nvmlReturn_t code = ws_state_open(NULL);
    if (code != NVML_SUCCESS) return code;
    ws_lock();
    int64_t now = ws_now_ns();
    code = apply_fault(function, -1, 0, &now);
    ws_unlock();
    if (code != NVML_SUCCESS) return code;
    __atomic_add_fetch(&init_count, 1, __ATOMIC_SEQ_CST);
    return NVML_SUCCESS;
}

nvmlReturn_t ws_shutdown(void) {
    int count = __atomic_load_n(&init_count, __ATOMIC_SEQ_CST);
    while (count > 0)
        if (__atomic_compare_exchange_n(&init_count, &count, count - 1, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
            return NVML_SUCCESS;
    return NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t ws_enter_system(const char *function, struct ws_call *c) {
    if (!ws_initialised()) return NVML_ERROR_UNINITIALIZED;
    *c = (struct ws_call){ .state = ws_state(), .now_ns = ws_now_ns() };
    ws_lock();
    c->now_ns = ws_now_ns();
    nvmlReturn_t code = apply_fault(function, -1, 0, &c->now_ns);
    if (code != NVML_SUCCESS) ws_unlock();
    return code;
}

static int kind_allowed(enum ws_handle_kind kind, enum ws_want want) {
    switch (want) {
    case WS_WANT_GPU: return kind == WS_HANDLE_GPU;
    case WS_WANT_MIG: return kind == WS_HANDLE_MIG;
    case WS_WANT_GI: return kind == WS_HANDLE_GI;
    case WS_WANT_CI: return kind == WS_HANDLE_CI;
    default: return kind == WS_HANDLE_GPU || kind == WS_HANDLE_MIG;
    }
}

static nvmlReturn_t check_lost(struct ws_call *c) {
    double lost_s = c->board->option[WS_LOST_S];
    if (lost_s <= 0 || (double)c->now_ns * 1e-9 < lost_s) return NVML_SUCCESS;
    /* Once per loss: the event tells every listener the Xid that a lost board logs. */
    if (c->board->event_count == 0 ||
        c->board->event[c->board->event_count % WS_MAX_EVENTS].data != XID_FALLEN_OFF_BUS)
        ws_post_event(c->board, EVENT_XID, XID_FALLEN_OFF_BUS);
    return NVML_ERROR_GPU_IS_LOST;
}

nvmlReturn_t ws_enter(const char *function, struct ws_call *c, const struct ws_handle *handle,
                      enum ws_want want) {
    if (!ws_initialised()) return NVML_ERROR_UNINITIALIZED;
    if (!handle || !ws_handle_valid(handle) || handle->board >= ws_state()->board_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *c = (struct ws_call){ .state = ws_state(), .handle = handle, .index = handle->board };
    c->board = &c->state->board[handle->board];
    c->model = ws_model_of(c->board);
    c->is_mig = handle->kind == WS_HANDLE_MIG;
    ws_lock();
    c->now_ns = ws_now_ns();
    nvmlReturn_t code = apply_fault(function, (int)c->index, c->is_mig, &c->now_ns);
    if (code == NVML_SUCCESS) code = check_lost(c);
    if (code == NVML_SUCCESS && !kind_allowed(handle->kind, want))
        code = NVML_ERROR_INVALID_ARGUMENT;
    if (code == NVML_SUCCESS && handle->gi_serial) {
        c->gi = ws_gi_by_serial(c->board, handle->gi_serial);
        if (c->gi && handle->ci_serial) c->ci = ws_ci_by_serial(c->gi, handle->ci_serial);
        /* A handle to what has been destroyed, by this process or another. */
        if (!c->gi || (handle->ci_serial && !c->ci)) code = NVML_ERROR_INVALID_ARGUMENT;
    }
    if (code == NVML_SUCCESS && c->is_mig && want == WS_WANT_METER &&
        c->board->option[WS_MIG_POWER] != 1)
        code = NVML_ERROR_NOT_SUPPORTED;
    if (code == NVML_SUCCESS) ws_workers_reap(c->index, c->now_ns);
    if (code != NVML_SUCCESS) ws_unlock();
    return code;
}

nvmlReturn_t ws_leave(nvmlReturn_t code) {
    ws_unlock();
    return code;
}
