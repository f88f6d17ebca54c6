/*
 * Control interface of the simulated NVML library. A program that finds the symbol
 * wattsim_abi_version in its libnvidia-ml.so.1 is talking to the simulator and not to a driver.
 *
 * Functions return 0 or an NVML error code unless said otherwise. Times are CLOCK_MONOTONIC.
 */
#ifndef WATTSIM_H
#define WATTSIM_H

#include <stdint.h>

#define WATTSIM_ABI_VERSION 1
#define WATTSIM_EXPORT __attribute__((visibility("default")))

WATTSIM_EXPORT unsigned int wattsim_abi_version(void);

/* Models known to the library: the name of model `index`, or NULL. */
WATTSIM_EXPORT const char *wattsim_model(unsigned int index);

/* Makes a new state file with the models named in `models` (comma separated, one per board).
 * An existing file is refused (IN_USE). */
WATTSIM_EXPORT unsigned int wattsim_create(const char *path, const char *models, int mig_on);
/* Opens a state file for the control calls below (nvmlInit does so from WATTSIM_STATE). */
WATTSIM_EXPORT unsigned int wattsim_open(const char *path);
/* Lets go of the state file; IN_USE between nvmlInit and nvmlShutdown. Not thread safe. */
WATTSIM_EXPORT unsigned int wattsim_close(void);

/* A board's full UUID; `size` at least 48. */
WATTSIM_EXPORT unsigned int wattsim_board_uuid(unsigned int board, char *uuid, unsigned int size);
/* A board's model name. */
WATTSIM_EXPORT unsigned int wattsim_board_model(unsigned int board, char *model, unsigned int size);

/* Process `pid` keeps the board or MIG device `uuid` busy to the degree 0..1 from now on; it
 * stops counting when it dies. pid 0 means the caller. */
WATTSIM_EXPORT unsigned int wattsim_set_activity(const char *uuid, double value, int pid);
/* As above and with device memory in bytes; `fake` 1: the process need not exist, `graphics` 1:
 * it is listed as a graphics process. */
WATTSIM_EXPORT unsigned int wattsim_set_process(const char *uuid, double value, int pid,
                                                uint64_t memory_bytes, int fake, int graphics);
WATTSIM_EXPORT unsigned int wattsim_remove_process(int pid);

/* Named number of a board (state.h lists them); board -1 means all. */
WATTSIM_EXPORT unsigned int wattsim_set_option(int board, const char *name, double value);
WATTSIM_EXPORT unsigned int wattsim_get_option(unsigned int board, const char *name, double *value);
WATTSIM_EXPORT unsigned int wattsim_set_versions(const char *driver, const char *nvml, int cuda);

/* A fault: function is an fnmatch pattern of the API function's name, or "field:186" for one
 * value inside nvmlDeviceGetFieldValues. board -1: any board and calls without a board.
 * target 0 any handle, 1 only GPU handles, 2 only MIG handles. code 0 with delay_ms: only slow.
 * Calls are counted from 1 over all processes; to_call 0 and until_s 0 mean no end. */
WATTSIM_EXPORT unsigned int wattsim_add_fault(int board, const char *function, int target,
                                              unsigned int code, uint64_t from_call,
                                              uint64_t to_call, double after_s, double until_s,
                                              double delay_ms, unsigned int *id);
WATTSIM_EXPORT unsigned int wattsim_clear_faults(int board);
WATTSIM_EXPORT unsigned int wattsim_fault_calls(unsigned int id, uint64_t *seen);

/* Board power that does not depend on activity. kind 0 none (back to activity), 1 constant
 * `low_w`, 2 square between low_w and high_w (`duty` of the period high, starting high),
 * 3 sawtooth rising from low_w to high_w in each period. The wave starts now. */
WATTSIM_EXPORT unsigned int wattsim_set_waveform(unsigned int board, int kind, double low_w,
                                                 double high_w, double period_s, double duty);
/* `count` steps: power_w[i] from offset_s[i] after now on, the last one for ever. */
WATTSIM_EXPORT unsigned int wattsim_set_trace(unsigned int board, unsigned int count,
                                              const double *offset_s, const double *power_w);

/* What is true, without any sensor. Energy of [t0_s, t1_s] in mJ; NaN if not known. */
WATTSIM_EXPORT double wattsim_true_energy_mj(unsigned int board, double t0_s, double t1_s);
WATTSIM_EXPORT double wattsim_true_power_w(unsigned int board, double t_s);
WATTSIM_EXPORT unsigned int wattsim_created(double *monotonic_s, double *realtime_s);

/* GPU reset: pending MIG mode becomes current, instances go; IN_USE while processes run. */
WATTSIM_EXPORT unsigned int wattsim_reset_board(unsigned int board);
/* Reboot: instances go; MIG mode stays on Ampere and is lost on Hopper and later. */
WATTSIM_EXPORT unsigned int wattsim_reboot_board(unsigned int board);
WATTSIM_EXPORT unsigned int wattsim_post_xid(unsigned int board, unsigned int xid);

/* Test aid: takes the state lock and never returns. */
WATTSIM_EXPORT void wattsim_hold_lock(int begin_write);

#endif
