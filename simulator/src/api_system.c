/* Library and system calls, and finding devices. */
#include <stdio.h>
#include <strings.h>

#include "entry.h"
#include "text.h"

NVML_EXPORT nvmlReturn_t nvmlInit(void) { return ws_init(__func__); }
NVML_EXPORT nvmlReturn_t nvmlInit_v2(void) { return ws_init(__func__); }
NVML_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    (void)flags; /* NO_GPUS and NO_ATTACH change nothing here: boards are always attached */
    return ws_init(__func__);
}
NVML_EXPORT nvmlReturn_t nvmlShutdown(void) { return ws_shutdown(); }

NVML_EXPORT const char *nvmlErrorString(nvmlReturn_t code) {
    static const char *const text[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported",
        "Insufficient Permissions", "Already Initialized", "Not Found", "Insufficient Size",
        "Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue",
        "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost",
        "GPU requires restart", "The operating system has blocked the request.",
        "RM has detected an NVML/RM version mismatch.", "In use by another client",
        "Insufficient Memory", "No data", "vGPU ECC is not supported", "Insufficient Resources",
        "Requested frequency is not supported", "Argument version mismatch", "Deprecated",
        "Not Ready", "GPU Not Found", "Invalid State", "Reset Type Not Supported",
    };
    return code < sizeof text / sizeof text[0] ? text[code] : "Unknown Error";
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    ENTER_SYSTEM();
    LEAVE(ws_copy_text(c.state->driver_version, version, length));
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    ENTER_SYSTEM();
    LEAVE(ws_copy_text(c.state->nvml_version, version, length));
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    ENTER_SYSTEM();
    NOT_NULL(version);
    *version = (int)c.state->cuda_version;
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return nvmlSystemGetCudaDriverVersion(version);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name,
                                                  unsigned int length) {
    ENTER_SYSTEM();
    NOT_NULL(name);
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *f = fopen(path, "re");
    REQUIRE(f, NVML_ERROR_NOT_FOUND);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0; /* the first argument ends at its own zero byte */
    snprintf(name, length, "%s", text);
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    ENTER_SYSTEM();
    NOT_NULL(count);
    *count = c.state->board_count;
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) {
    return nvmlDeviceGetCount_v2(count);
}

static nvmlReturn_t give(struct ws_handle *handle, nvmlDevice_t *device) {
    *device = handle;
    return handle ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    ENTER_SYSTEM();
    NOT_NULL(device);
    REQUIRE(index < c.state->board_count, NVML_ERROR_INVALID_ARGUMENT);
    LEAVE(give(ws_handle_for(WS_HANDLE_GPU, index, 0, 0), device));
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    ENTER_SYSTEM();
    NOT_NULL(uuid);
    NOT_NULL(device);
    LEAVE(ws_handle_by_uuid(uuid, device));
}

typedef struct {
    unsigned int version, type;
    union { char text[41]; unsigned char bytes[16]; } value;
} nvmlUUID_v1_t;

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_v1_t *uuid,
                                                    nvmlDevice_t *device) {
    ENTER_SYSTEM();
    NOT_NULL(uuid);
    NOT_NULL(device);
    REQUIRE(uuid->version == NVML_VERSION_WORD(nvmlUUID_v1_t, 1),
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(uuid->type == 1, NVML_ERROR_INVALID_ARGUMENT); /* text only */
    LEAVE(ws_handle_by_uuid(uuid->value.text, device));
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    ENTER_SYSTEM();
    NOT_NULL(serial);
    NOT_NULL(device);
    unsigned int index;
    int end = 0;
    REQUIRE(sscanf(serial, "SIM%10u%n", &index, &end) == 1 && serial[end] == 0 && index > 0 &&
                index <= c.state->board_count,
            NVML_ERROR_NOT_FOUND);
    LEAVE(give(ws_handle_for(WS_HANDLE_GPU, index - 1, 0, 0), device));
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id,
                                                          nvmlDevice_t *device) {
    ENTER_SYSTEM();
    NOT_NULL(bus_id);
    NOT_NULL(device);
    unsigned int domain = 0, bus, slot, function = 0;
    int n = sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function);
    if (n < 3) {
        domain = 0;
        n = sscanf(bus_id, "%x:%x.%x", &bus, &slot, &function);
        REQUIRE(n >= 2, NVML_ERROR_INVALID_ARGUMENT);
    }
    for (unsigned int i = 0; i < c.state->board_count; i++)
        if (domain == 0 && bus == 16 + i && slot == 0 && function == 0)
            LEAVE(give(ws_handle_for(WS_HANDLE_GPU, i, 0, 0), device));
    LEAVE(NVML_ERROR_NOT_FOUND);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

NVML_EXPORT nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *count) {
    ENTER_SYSTEM();
    NOT_NULL(count);
    *count = 0;
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlUnitGetCount(unsigned int *count) {
    ENTER_SYSTEM();
    NOT_NULL(count);
    *count = 0;
    LEAVE(NVML_SUCCESS);
}
