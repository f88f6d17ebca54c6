/* The simulator's own interface (include/wattsim.h). */
#include "wattsim.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "entry.h"
#include "handles.h"
#include "instances.h"
#include "power.h"
#include "state.h"
#include "text.h"
#include "workers.h"

unsigned int wattsim_abi_version(void) { return WATTSIM_ABI_VERSION; }

const char *wattsim_model(unsigned int index) {
    const struct ws_model *m = ws_model_at(index);
    return m ? m->model : NULL;
}

unsigned int wattsim_create(const char *path, const char *models, int mig_on) {
    unsigned int index[WS_MAX_BOARDS], n = 0;
    if (!path || !models) return NVML_ERROR_INVALID_ARGUMENT;
    char *copy = strdup(models), *rest = NULL;
    if (!copy) return NVML_ERROR_MEMORY;
    int ok = 1;
    for (char *m = strtok_r(copy, ",", &rest); m && ok; m = strtok_r(NULL, ",", &rest)) {
        int i = ws_model_index(m);
        ok = i >= 0 && n < WS_MAX_BOARDS;
        if (ok) index[n++] = (unsigned int)i;
    }
    free(copy);
    return ok ? ws_state_create(path, index, n, mig_on) : NVML_ERROR_INVALID_ARGUMENT;
}

unsigned int wattsim_open(const char *path) { return ws_state_open(path); }

unsigned int wattsim_close(void) {
    if (ws_initialised()) return NVML_ERROR_IN_USE;
    ws_state_close();
    return NVML_SUCCESS;
}

/* The state for a control call, locked, or NULL. */
static struct ws_state *enter(void) {
    if (!ws_state() && ws_state_open(NULL) != NVML_SUCCESS) return NULL;
    ws_lock();
    return ws_state();
}

static unsigned int leave(nvmlReturn_t code) {
    ws_unlock();
    return code;
}

#define ENTER_BOARD(board) \
    struct ws_state *s = enter(); \
    if (!s) return NVML_ERROR_DRIVER_NOT_LOADED; \
    if ((board) >= s->board_count) return leave(NVML_ERROR_INVALID_ARGUMENT); \
    struct ws_board *b = &s->board[board]; \
    int64_t now = ws_now_ns(); \
    ws_workers_reap(board, now)

unsigned int wattsim_board_uuid(unsigned int board, char *uuid, unsigned int size) {
    ENTER_BOARD(board);
    (void)b;
    char text[64];
    ws_board_uuid(board, text);
    return leave(ws_copy_text(text, uuid, size));
}

unsigned int wattsim_board_model(unsigned int board, char *model, unsigned int size) {
    ENTER_BOARD(board);
    return leave(ws_copy_text(b->model_name, model, size));
}

/* ---- processes ----------------------------------------------------------------------------- */

static unsigned int set_process(const char *uuid, double value, int pid, int64_t memory_bytes,
                                int fake, int graphics) {
    if (!uuid || pid < 0 || !(value >= 0 && value <= 1)) return NVML_ERROR_INVALID_ARGUMENT;
    struct ws_state *s = enter();
    if (!s) return NVML_ERROR_DRIVER_NOT_LOADED;
    struct ws_handle *h = NULL;
    nvmlReturn_t code = ws_handle_by_uuid(uuid, &h);
    if (code != NVML_SUCCESS) return leave(code);
    struct ws_worker w = { .flags = WS_WORKER_USED | (fake ? WS_WORKER_FAKE : 0) |
                                    (graphics ? WS_WORKER_GRAPHICS : 0),
                           .pid = pid ? (unsigned int)pid : (unsigned int)getpid(),
                           .gi_serial = h->gi_serial, .ci_serial = h->ci_serial,
                           .activity = value };
    if (!fake && !(w.start_ticks = ws_process_start(w.pid))) return leave(NVML_ERROR_NOT_FOUND);
    int64_t now = ws_now_ns();
    struct ws_board *b = &s->board[h->board];
    if (memory_bytes >= 0) w.memory_bytes = (uint64_t)memory_bytes;
    else /* keeps what was said before */
        for (unsigned int i = 0; i < WS_MAX_WORKERS; i++)
            if ((b->worker[i].flags & WS_WORKER_USED) && b->worker[i].pid == w.pid &&
                b->worker[i].ci_serial == w.ci_serial)
                w.memory_bytes = b->worker[i].memory_bytes;
    ws_workers_reap(h->board, now);
    ws_change_begin(h->board);
    ws_activity_integrate(b, now);
    code = ws_worker_set(b, w);
    ws_power_update(h->board, now);
    ws_change_end(h->board);
    return leave(code);
}

unsigned int wattsim_set_activity(const char *uuid, double value, int pid) {
    return set_process(uuid, value, pid, -1, 0, 0);
}

unsigned int wattsim_set_process(const char *uuid, double value, int pid, uint64_t memory_bytes,
                                 int fake, int graphics) {
    return set_process(uuid, value, pid, (int64_t)memory_bytes, fake, graphics);
}

unsigned int wattsim_remove_process(int pid) {
    struct ws_state *s = enter();
    if (!s) return NVML_ERROR_DRIVER_NOT_LOADED;
    int removed = 0;
    int64_t now = ws_now_ns();
    unsigned int of = pid ? (unsigned int)pid : (unsigned int)getpid();
    for (unsigned int i = 0; i < s->board_count; i++) {
        ws_change_begin(i);
        ws_activity_integrate(&s->board[i], now);
        removed += ws_workers_remove(&s->board[i], of);
        ws_power_update(i, now);
        ws_change_end(i);
    }
    return leave(removed ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND);
}

/* ---- options, versions, faults ------------------------------------------------------------- */

unsigned int wattsim_set_option(int board, const char *name, double value) {
    if (!name || !isfinite(value)) return NVML_ERROR_INVALID_ARGUMENT;
    int option = ws_option_index(name);
    if (option < 0) return NVML_ERROR_NOT_FOUND;
    struct ws_state *s = enter();
    if (!s) return NVML_ERROR_DRIVER_NOT_LOADED;
    if (board >= (int)s->board_count) return leave(NVML_ERROR_INVALID_ARGUMENT);
    int64_t now = ws_now_ns();
    for (unsigned int i = 0; i < s->board_count; i++) {
        if (board >= 0 && (unsigned int)board != i) continue;
        ws_change_begin(i);
        /* A new entry, so that other constants of heating hold from now on only. */
        if (option >= WS_AMBIENT_C && option <= WS_HEAT_TAU_S) ws_power_relimit(i, now);
        s->board[i].option[option] = value;
        ws_power_update(i, now);
        ws_change_end(i);
    }
    return leave(NVML_SUCCESS);
}

unsigned int wattsim_get_option(unsigned int board, const char *name, double *value) {
    if (!name || !value) return NVML_ERROR_INVALID_ARGUMENT;
    int option = ws_option_index(name);
    if (option < 0) return NVML_ERROR_NOT_FOUND;
    ENTER_BOARD(board);
    *value = b->option[option];
    return leave(NVML_SUCCESS);
}

unsigned int wattsim_set_versions(const char *driver, const char *nvml, int cuda) {
    struct ws_state *s = enter();
    if (!s) return NVML_ERROR_DRIVER_NOT_LOADED;
    if (driver) snprintf(s->driver_version, sizeof s->driver_version, "%s", driver);
    if (nvml) snprintf(s->nvml_version, sizeof s->nvml_version, "%s", nvml);
    if (cuda > 0) s->cuda_version = (unsigned int)cuda;
    return leave(NVML_SUCCESS);
}

unsigned int wattsim_add_fault(int board, const char *function, int target, unsigned int code,
                               uint64_t from_call, uint64_t to_call, double after_s,
                               double until_s, double delay_ms, unsigned int *id) {
    struct ws_fault f = { .board = board, .target = (unsigned int)target, .code = code,
                          .from_call = from_call ? from_call : 1, .to_call = to_call,
                          .after_ns = (int64_t)(after_s * 1e9),
                          .until_ns = (int64_t)(until_s * 1e9), .delay_ms = delay_ms };
    if (!function || strlen(function) >= sizeof f.function || target < 0 || target > 2 ||
        !(delay_ms >= 0))
        return NVML_ERROR_INVALID_ARGUMENT;
    strcpy(f.function, function);
    struct ws_state *s = enter();
    if (!s) return NVML_ERROR_DRIVER_NOT_LOADED;
    if (board >= (int)s->board_count) return leave(NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned int i = 0; i < WS_MAX_FAULTS; i++) {
        if (s->fault[i].used) continue;
        f.id = s->next_fault++;
        s->fault[i] = f;
        s->fault[i].used = 1;
        if (id) *id = f.id;
        return leave(NVML_SUCCESS);
    }
    return leave(NVML_ERROR_INSUFFICIENT_RESOURCES);
}

unsigned int wattsim_clear_faults(int board) {
    struct ws_state *s = enter();
    if (!s) return NVML_ERROR_DRIVER_NOT_LOADED;
    for (unsigned int i = 0; i < WS_MAX_FAULTS; i++)
        if (board < 0 || s->fault[i].board == board) s->fault[i].used = 0;
    return leave(NVML_SUCCESS);
}

unsigned int wattsim_fault_calls(unsigned int id, uint64_t *seen) {
    if (!seen) return NVML_ERROR_INVALID_ARGUMENT;
    struct ws_state *s = enter();
    if (!s) return NVML_ERROR_DRIVER_NOT_LOADED;
    for (unsigned int i = 0; i < WS_MAX_FAULTS; i++)
        if (s->fault[i].used && s->fault[i].id == id) {
            *seen = s->fault[i].calls;
            return leave(NVML_SUCCESS);
        }
    return leave(NVML_ERROR_NOT_FOUND);
}

/* ---- scripted power ------------------------------------------------------------------------ */

enum { WAVE_NONE, WAVE_CONSTANT, WAVE_SQUARE, WAVE_SAWTOOTH };

unsigned int wattsim_set_waveform(unsigned int board, int kind, double low_w, double high_w,
                                  double period_s, double duty) {
    if (kind < WAVE_NONE || kind > WAVE_SAWTOOTH) return NVML_ERROR_INVALID_ARGUMENT;
    if (kind != WAVE_NONE && !(low_w >= 0)) return NVML_ERROR_INVALID_ARGUMENT;
    if (kind >= WAVE_SQUARE && !(high_w >= low_w && period_s >= 1e-6 && duty >= 0 && duty <= 1))
        return NVML_ERROR_INVALID_ARGUMENT;
    ENTER_BOARD(board);
    (void)b;
    ws_change_begin(board);
    if (kind == WAVE_NONE) ws_power_unscript(board, now);
    else
        ws_power_script(board, now,
                        kind == WAVE_SQUARE     ? WS_SQUARE
                        : kind == WAVE_SAWTOOTH ? WS_SAWTOOTH
                                                : WS_CONSTANT,
                        low_w, kind == WAVE_CONSTANT ? low_w : high_w, period_s, duty);
    ws_change_end(board);
    return leave(NVML_SUCCESS);
}

unsigned int wattsim_set_trace(unsigned int board, unsigned int count, const double *offset_s,
                               const double *power_w) {
    if (!count || count > WS_LOG_LENGTH / 4 || !offset_s || !power_w)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; i < count; i++)
        if (!(power_w[i] >= 0) || !(offset_s[i] >= (i ? offset_s[i - 1] : 0)))
            return NVML_ERROR_INVALID_ARGUMENT;
    ENTER_BOARD(board);
    (void)b;
    ws_change_begin(board);
    ws_power_trace(board, now, count, offset_s, power_w);
    ws_change_end(board);
    return leave(NVML_SUCCESS);
}

/* ---- truth --------------------------------------------------------------------------------- */

double wattsim_true_energy_mj(unsigned int board, double t0_s, double t1_s) {
    struct ws_state *s = enter();
    if (!s) return NAN;
    double mj = NAN;
    if (board < s->board_count) {
        ws_workers_reap(board, ws_now_ns());
        mj = 1e3 * ws_energy_between(board, (int64_t)llround(t0_s * 1e9),
                                     (int64_t)llround(t1_s * 1e9));
    }
    leave(NVML_SUCCESS);
    return mj;
}

double wattsim_true_power_w(unsigned int board, double t_s) {
    struct ws_state *s = enter();
    if (!s) return NAN;
    double w = board < s->board_count ? ws_power_at(board, (int64_t)llround(t_s * 1e9)) : NAN;
    leave(NVML_SUCCESS);
    return w;
}

unsigned int wattsim_created(double *monotonic_s, double *realtime_s) {
    struct ws_state *s = enter();
    if (!s) return NVML_ERROR_DRIVER_NOT_LOADED;
    if (monotonic_s) *monotonic_s = (double)s->created_ns * 1e-9;
    if (realtime_s) *realtime_s = (double)s->created_realtime_ns * 1e-9;
    return leave(NVML_SUCCESS);
}

/* ---- reset, reboot, Xid -------------------------------------------------------------------- */

static unsigned int restart(unsigned int board, int reboot) {
    ENTER_BOARD(board);
    if (!reboot && ws_workers_on(b, 0, 0)) return leave(NVML_ERROR_IN_USE);
    ws_change_begin(board);
    ws_activity_integrate(b, now);
    ws_gi_destroy_all(b);
    if (reboot) memset(b->worker, 0, sizeof b->worker);
    if (reboot && ws_model_of(b)->resetless) b->mig_pending = 0;
    b->mig_current = b->mig_pending;
    b->option[WS_LOST_S] = 0;
    ws_power_update(board, now);
    ws_change_end(board);
    return leave(NVML_SUCCESS);
}

unsigned int wattsim_reset_board(unsigned int board) { return restart(board, 0); }
unsigned int wattsim_reboot_board(unsigned int board) { return restart(board, 1); }

unsigned int wattsim_post_xid(unsigned int board, unsigned int xid) {
    ENTER_BOARD(board);
    (void)now;
    ws_post_event(b, 0x8, xid);
    return leave(NVML_SUCCESS);
}

void wattsim_hold_lock(int begin_write) {
    struct ws_state *s = enter();
    if (!s) return;
    if (begin_write) {
        ws_change_begin(0);
        memset(&s->board[0].gi, 0xff, sizeof s->board[0].gi); /* half-made nonsense */
    }
    for (;;) pause();
}
