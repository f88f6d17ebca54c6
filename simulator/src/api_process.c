/* Lists of processes on a board or MIG device. */
#include "entry.h"
#include "workers.h"

#define NO_INSTANCE 0xFFFFFFFFu

struct listed { unsigned int pid, gi_id, ci_id; uint64_t memory_bytes; };

static unsigned int list(const struct ws_call *c, int graphics, struct listed *out) {
    unsigned int n = 0;
    for (unsigned int i = 0; i < WS_MAX_WORKERS; i++) {
        const struct ws_worker *w = &c->board->worker[i];
        if (!(w->flags & WS_WORKER_USED)) continue;
        if (graphics >= 0 && !(w->flags & WS_WORKER_GRAPHICS) != !graphics) continue;
        if (c->is_mig && (w->gi_serial != c->gi->serial || w->ci_serial != c->ci->serial))
            continue;
        struct listed p = { w->pid, NO_INSTANCE, NO_INSTANCE, w->memory_bytes };
        for (unsigned int g = 0; w->gi_serial && g < WS_MAX_GI; g++) {
            const struct ws_gi *gi = &c->board->gi[g];
            if (gi->serial != w->gi_serial) continue;
            p.gi_id = gi->id;
            for (unsigned int k = 0; k < WS_MAX_CI; k++)
                if (gi->ci[k].serial == w->ci_serial) p.ci_id = gi->ci[k].id;
        }
        out[n++] = p;
    }
    return n;
}

static nvmlReturn_t processes(const char *function, nvmlDevice_t device, int graphics, int version,
                              unsigned int *count, void *infos) {
    ENTER_AS(function, device, WS_WANT_BOARD);
    NOT_NULL(count);
    REQUIRE(infos || *count == 0, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(c.is_mig || !c.board->mig_current || c.board->option[WS_PERMISSION] >= 1,
            NVML_ERROR_NO_PERMISSION);
    struct listed p[WS_MAX_WORKERS];
    unsigned int n = list(&c, graphics, p), room = *count;
    *count = n;
    REQUIRE(n <= room, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned int i = 0; i < n; i++)
        if (version == 1)
            ((nvmlProcessInfo_v1_t *)infos)[i] =
                (nvmlProcessInfo_v1_t){ p[i].pid, p[i].memory_bytes };
        else
            ((nvmlProcessInfo_t *)infos)[i] =
                (nvmlProcessInfo_t){ p[i].pid, p[i].memory_bytes, p[i].gi_id, p[i].ci_id };
    LEAVE(NVML_SUCCESS);
}

#define PROCESSES(function, graphics, version) \
    NVML_EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, void *infos) { \
        return processes(__func__, device, graphics, version, count, infos); \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses, 0, 1)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, 0, 2)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, 0, 3)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, 1, 1)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, 1, 2)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, 1, 3)

/* No process is an MPS client here. */
static nvmlReturn_t no_processes(const char *function, nvmlDevice_t device, unsigned int *count) {
    ENTER_AS(function, device, WS_WANT_BOARD);
    NOT_NULL(count);
    *count = 0;
    LEAVE(NVML_SUCCESS);
}
#define NO_PROCESSES(function) \
    NVML_EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, void *infos) { \
        (void)infos; \
        return no_processes(__func__, device, count); \
    }
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

enum { MODE_COMPUTE, MODE_GRAPHICS, MODE_MPS, MODE_ALL };

NVML_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                               nvmlProcessDetailList_v1_t *info) {
    ENTER(device, WS_WANT_BOARD);
    NOT_NULL(info);
    REQUIRE(info->version == NVML_VERSION_WORD(nvmlProcessDetailList_v1_t, 1),
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(info->mode <= MODE_ALL, NVML_ERROR_INVALID_ARGUMENT);
    struct listed p[WS_MAX_WORKERS];
    unsigned int n = info->mode == MODE_MPS
                         ? 0
                         : list(&c, info->mode == MODE_ALL ? -1 : (int)info->mode, p);
    unsigned int room = info->numProcArrayEntries;
    info->numProcArrayEntries = n;
    REQUIRE(n <= room, NVML_ERROR_INSUFFICIENT_SIZE);
    REQUIRE(n == 0 || info->procArray, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned int i = 0; i < n; i++)
        info->procArray[i] = (nvmlProcessDetail_v1_t){ p[i].pid, p[i].memory_bytes, p[i].gi_id,
                                                       p[i].ci_id, 0 };
    LEAVE(NVML_SUCCESS);
}

/* Per-process utilisation: with MIG on not supported, else the activity as SM utilisation. */
typedef struct {
    unsigned int pid;
    unsigned long long timeStamp;
    unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

NVML_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                         nvmlProcessUtilizationSample_t *samples,
                                                         unsigned int *count,
                                                         unsigned long long last_seen) {
    ENTER(device, WS_WANT_BOARD);
    NOT_NULL(count);
    (void)last_seen;
    REQUIRE(!c.is_mig && !c.board->mig_current, NVML_ERROR_NOT_SUPPORTED);
    struct listed p[WS_MAX_WORKERS];
    unsigned int n = list(&c, -1, p), room = *count;
    REQUIRE(n > 0, NVML_ERROR_NOT_FOUND);
    *count = n;
    REQUIRE(samples && n <= room, NVML_ERROR_INSUFFICIENT_SIZE);
    unsigned long long stamp =
        (unsigned long long)((c.now_ns + c.state->created_realtime_ns - c.state->created_ns) /
                             1000);
    unsigned int k = 0;
    for (unsigned int i = 0; i < WS_MAX_WORKERS && k < n; i++)
        if (c.board->worker[i].flags & WS_WORKER_USED)
            samples[k++] = (nvmlProcessUtilizationSample_t){
                c.board->worker[i].pid, stamp,
                (unsigned int)(c.board->worker[i].activity * 100 + 0.5), 0, 0, 0 };
    LEAVE(NVML_SUCCESS);
}
