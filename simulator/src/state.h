/*
 * The state that all processes of one simulation share: one file, mapped by each of them.
 *
 * Locking: a POSIX record lock between processes (the kernel drops it when a holder dies, and a
 * forked child does not inherit it) and a mutex between the threads of a process. A change to a
 * board is made between ws_change_begin() and ws_change_end(); the first keeps a copy of the
 * board, so that the next holder can undo a change that was cut off by kill -9.
 */
#ifndef WATTSIM_STATE_H
#define WATTSIM_STATE_H

#include <stdint.h>

#include "nvml_abi.h"
#include "tables.h"

#define WS_MAGIC 0x6d697374746177ull /* "wattsim" */
#define WS_STATE_VERSION 1u
#define WS_MAX_BOARDS 16
#define WS_MAX_GI 16
#define WS_MAX_CI 8
#define WS_MAX_WORKERS 64
#define WS_MAX_FAULTS 64
#define WS_MAX_EVENTS 16
#define WS_LOG_LENGTH 65536u
/* The driver is taken to have been loaded this long before, so that averages have a past. */
#define WS_UPTIME_S 3600ll

/* Numbers of a board that can be set by name: wattsim_set_option(). */
enum ws_option {
    WS_IDLE_W,              /* board power without work, MIG off */
    WS_IDLE_MIG_W,          /* the same with MIG on */
    WS_PEAK_W,              /* demand at full activity of the whole board, before any limit */
    WS_SENSOR_GAIN,         /* reported = gain * true + offset, for power and for the counter */
    WS_SENSOR_OFFSET_W,
    WS_SENSOR_PERIOD_MS,    /* refresh period of the power fields */
    WS_SENSOR_WINDOW_MS,    /* part of each period that the instant sensor sees */
    WS_AVERAGE_WINDOW_MS,   /* length of the average field's mean */
    WS_COUNTER_PERIOD_MS,   /* refresh period of the energy counter */
    WS_COUNTER_GAIN,        /* further factor on the counter alone */
    WS_COUNTER_RESET_S,     /* counter restarts at zero at this time; 0 never */
    WS_COUNTER_FREEZE_S,    /* counter stands still from this time on; 0 never */
    WS_LOST_S,              /* board is lost from this time on; 0 never */
    WS_PERMISSION,          /* 2 root, 1 may list instances, 0 ordinary user in a container */
    WS_MIG_SWITCH,          /* activation status of a mode switch: 0 done, 16 or 19 pending */
    WS_SPARSE_INDICES,      /* 1: a MIG device's index is its placement, so there are holes */
    WS_GI_ID_MODE,          /* 0 by tree position, 1 halves swapped, 2 first free number */
    WS_MIG_POWER,           /* power calls on a MIG handle: 0 NOT_SUPPORTED, 1 parent's value */
    WS_GPU_SCOPE,           /* 1: power fields answer for scope GPU, 0: for scope module only */
    WS_INDEPENDENT_QUERY,   /* value of field 199 */
    WS_NAME_DRIFT_GB,       /* added to the size in names of 3 and 4 slice profiles */
    WS_AMBIENT_C,
    WS_HEAT_C_PER_W,        /* rise over ambient in the steady state */
    WS_HEAT_TAU_S,
    WS_EVENT_REASONS,       /* further bits set in the clocks event reasons */
    WS_OPTION_COUNT
};

struct ws_ci {
    uint64_t serial; /* 0: slot free; never used twice, so that old handles are noticed */
    unsigned int id, profile_constant, start, size, sms, slices, mig_index;
};

struct ws_gi {
    uint64_t serial;
    unsigned int id, profile, start, size; /* profile: index into the model's profiles */
    struct ws_ci ci[WS_MAX_CI];
    double activity;          /* 0..1 of the instance's own SMs */
    double activity_integral; /* seconds of full activity up to the board's activity_ns */
};

#define WS_WORKER_USED 1u
#define WS_WORKER_FAKE 2u
#define WS_WORKER_GRAPHICS 4u

struct ws_worker {
    unsigned int flags, pid;
    uint64_t start_ticks; /* of the process, so that a reused pid is noticed */
    uint64_t gi_serial, ci_serial; /* 0: on the whole board */
    uint64_t memory_bytes;
    double activity;
};

enum ws_segment_kind { WS_CONSTANT, WS_SQUARE, WS_SAWTOOTH };

/* True board power from t_ns up to the next entry's, and the totals at t_ns. */
struct ws_segment {
    int64_t t_ns, period_ns, origin_ns;
    double energy_j, temperature_c;
    double capped_s; /* seconds spent at the power limit so far */
    double low_w, high_w, duty, limit_w;
    unsigned int kind, scripted;
};

struct ws_board_event { uint64_t number; unsigned int type, data; };

struct ws_board {
    unsigned int model;
    char model_name[40];
    unsigned int mig_current, mig_pending;
    unsigned int persistence, compute_mode;
    double limit_w;
    double option[WS_OPTION_COUNT];
    struct ws_gi gi[WS_MAX_GI];
    struct ws_worker worker[WS_MAX_WORKERS];
    double activity, activity_integral; /* whole board */
    int64_t activity_ns, reaped_ns;
    uint64_t log_count; /* entries ever appended; the last WS_LOG_LENGTH are kept */
    uint64_t event_count;
    struct ws_board_event event[WS_MAX_EVENTS];
};

struct ws_fault {
    unsigned int used, code, target, id;
    int board;
    char function[80];
    uint64_t from_call, to_call, calls;
    int64_t after_ns, until_ns;
    double delay_ms;
};

struct ws_state {
    uint64_t magic, size;
    unsigned int version, board_count;
    int64_t created_ns, created_realtime_ns;
    uint64_t next_serial;
    unsigned int next_fault, cuda_version;
    char driver_version[80], nvml_version[80];
    struct ws_fault fault[WS_MAX_FAULTS];
    unsigned int changing[WS_MAX_BOARDS]; /* 1: before[] holds the board as it was */
    struct ws_board before[WS_MAX_BOARDS];
    struct ws_board board[WS_MAX_BOARDS];
    struct ws_segment log[][WS_LOG_LENGTH]; /* board_count of them */
};

int64_t ws_now_ns(void); /* CLOCK_MONOTONIC */

nvmlReturn_t ws_state_create(const char *path, const unsigned int *models, unsigned int count,
                             int mig_on);
nvmlReturn_t ws_state_open(const char *path); /* NULL: the path in WATTSIM_STATE */
void ws_state_close(void);
struct ws_state *ws_state(void);              /* NULL when not open */

void ws_lock(void);   /* also undoes unfinished changes of dead holders */
void ws_unlock(void);
void ws_change_begin(unsigned int board);
void ws_change_end(unsigned int board);

const struct ws_model *ws_model_of(const struct ws_board *board);
void ws_post_event(struct ws_board *board, unsigned int type, unsigned int data);

const char *ws_option_name(unsigned int option);
int ws_option_index(const char *name);
void ws_default_options(const struct ws_model *model, double *option);

#endif
