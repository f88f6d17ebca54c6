/* Event sets: Xid errors and changes of the MIG configuration. */
#include <stdlib.h>
#include <time.h>

#include "entry.h"

#define SUPPORTED_EVENTS (0x8ull | 0x100ull) /* Xid, MIG configuration */

struct ws_event_set {
    unsigned long long types[WS_MAX_BOARDS];
    uint64_t seen[WS_MAX_BOARDS];
};

NVML_EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    ENTER_SYSTEM();
    NOT_NULL(set);
    *set = calloc(1, sizeof **set);
    LEAVE(*set ? NVML_SUCCESS : NVML_ERROR_MEMORY);
}

NVML_EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    ENTER_SYSTEM();
    NOT_NULL(set);
    free(set);
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device,
                                                          unsigned long long *types) {
    ENTER(device, WS_WANT_GPU);
    NOT_NULL(types);
    *types = SUPPORTED_EVENTS;
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                                  nvmlEventSet_t set) {
    ENTER(device, WS_WANT_GPU);
    NOT_NULL(set);
    REQUIRE((types & ~SUPPORTED_EVENTS) == 0, NVML_ERROR_NOT_SUPPORTED);
    set->types[c.index] |= types;
    set->seen[c.index] = c.board->event_count;
    LEAVE(NVML_SUCCESS);
}

/* The next event that the set has registered for; lock held. */
static int next_event(struct ws_state *s, struct ws_event_set *set, nvmlEventData_t *data) {
    int64_t now = ws_now_ns();
    for (unsigned int i = 0; i < s->board_count; i++) {
        struct ws_board *b = &s->board[i];
        double lost_s = b->option[WS_LOST_S];
        if (lost_s > 0 && (double)now * 1e-9 >= lost_s &&
            (b->event_count == 0 || b->event[b->event_count % WS_MAX_EVENTS].data != 79))
            ws_post_event(b, 0x8, 79); /* Xid 79: fallen off the bus */
        while (set->seen[i] < b->event_count) {
            uint64_t n = ++set->seen[i];
            if (b->event_count - n >= WS_MAX_EVENTS) continue; /* overwritten */
            const struct ws_board_event *e = &b->event[n % WS_MAX_EVENTS];
            if (!(set->types[i] & e->type)) continue;
            *data = (nvmlEventData_t){ ws_handle_for(WS_HANDLE_GPU, i, 0, 0), e->type, e->data,
                                       0xFFFFFFFFu, 0xFFFFFFFFu };
            return 1;
        }
    }
    return 0;
}

NVML_EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
                                             unsigned int timeout_ms) {
    int64_t end_ns = ws_now_ns() + (int64_t)timeout_ms * 1000000;
    for (;;) {
        ENTER_SYSTEM();
        NOT_NULL(set);
        NOT_NULL(data);
        int found = next_event(c.state, set, data);
        ws_leave(NVML_SUCCESS);
        if (found) return NVML_SUCCESS;
        if (ws_now_ns() >= end_ns) return NVML_ERROR_TIMEOUT;
        nanosleep(&(struct timespec){ 0, 5000000 }, NULL);
    }
}

NVML_EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data,
                                          unsigned int timeout_ms) {
    return nvmlEventSetWait_v2(set, data, timeout_ms);
}
