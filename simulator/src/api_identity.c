/* Who a device is: names, numbers, addresses, memory and other fixed or administrative facts. */
#include <stdio.h>

#include "entry.h"
#include "instances.h"
#include "text.h"
#include "workers.h"

#define MIB 1048576ull
/* Memory that the driver keeps for itself on a whole board. */
#define RESERVED_MIB 512u

NVML_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    ENTER(device, WS_WANT_BOARD);
    if (!c.is_mig) LEAVE(ws_copy_text(c.model->name, name, length));
    const struct ws_profile *p = ws_gi_profile(c.board, c.gi);
    struct ws_ci_profile ci;
    char part[96], text[256];
    REQUIRE(ws_ci_profile(c.model, p, c.ci->profile_constant, &ci), NVML_ERROR_UNKNOWN);
    ws_ci_profile_name(c.board, p, &ci, part);
    snprintf(text, sizeof text, "%s %s", c.model->name, part);
    LEAVE(ws_copy_text(text, name, length));
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    ENTER(device, WS_WANT_BOARD);
    char text[64];
    if (c.is_mig) ws_mig_uuid(c.index, c.gi, c.ci, text);
    else ws_board_uuid(c.index, text);
    LEAVE(ws_copy_text(text, uuid, length));
}

GETTER(nvmlDeviceGetIndex, WS_WANT_BOARD, unsigned int, c.is_mig ? c.ci->mig_index : c.index)
GETTER(nvmlDeviceGetMinorNumber, WS_WANT_GPU, unsigned int, c.index)

NVML_EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial,
                                             unsigned int length) {
    ENTER(device, WS_WANT_BOARD);
    char text[32];
    snprintf(text, sizeof text, "SIM%010u", c.index + 1);
    LEAVE(ws_copy_text(text, serial, length));
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char *part,
                                                      unsigned int length) {
    ENTER(device, WS_WANT_BOARD);
    LEAVE(ws_copy_text("SIM-00000-0000-000", part, length));
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version,
                                                   unsigned int length) {
    ENTER(device, WS_WANT_BOARD);
    LEAVE(ws_copy_text("00.00.00.00.00", version, length));
}

GETTER(nvmlDeviceGetBoardId, WS_WANT_GPU, unsigned int, (16 + c.index) << 8)
GETTER(nvmlDeviceGetMultiGpuBoard, WS_WANT_GPU, unsigned int, 0)

static void bus_ids(const struct ws_call *c, char *long_id, char *short_id) {
    if (long_id) snprintf(long_id, 32, "%08X:%02X:00.0", 0u, 16 + c->index);
    if (short_id) snprintf(short_id, 16, "%04X:%02X:00.0", 0u, 16 + c->index);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    ENTER(device, WS_WANT_BOARD);
    NOT_NULL(pci);
    *pci = (nvmlPciInfo_t){ .bus = 16 + c.index, .pciDeviceId = c.model->pci_device_id,
                            .pciSubSystemId = c.model->pci_subsystem_id };
    bus_ids(&c, pci->busId, pci->busIdLegacy);
    LEAVE(NVML_SUCCESS);
}

static nvmlReturn_t pci_v2(const char *function, nvmlDevice_t device, nvmlPciInfo_v2_t *pci) {
    ENTER_AS(function, device, WS_WANT_BOARD);
    NOT_NULL(pci);
    *pci = (nvmlPciInfo_v2_t){ .bus = 16 + c.index, .pciDeviceId = c.model->pci_device_id,
                               .pciSubSystemId = c.model->pci_subsystem_id };
    bus_ids(&c, NULL, pci->busId);
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *pci) {
    return pci_v2(__func__, device, pci);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v2_t *pci) {
    return pci_v2(__func__, device, pci);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_v1_t *pci) {
    ENTER(device, WS_WANT_BOARD);
    NOT_NULL(pci);
    REQUIRE(pci->version == NVML_VERSION_WORD(nvmlPciInfoExt_v1_t, 1),
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    *pci = (nvmlPciInfoExt_v1_t){ .version = pci->version, .bus = 16 + c.index,
                                  .pciDeviceId = c.model->pci_device_id,
                                  .pciSubSystemId = c.model->pci_subsystem_id,
                                  .baseClass = 3, .subClass = 2 };
    bus_ids(&c, pci->busId, NULL);
    LEAVE(NVML_SUCCESS);
}

GETTER(nvmlDeviceGetArchitecture, WS_WANT_BOARD, unsigned int, c.model->arch)
GETTER(nvmlDeviceGetBrand, WS_WANT_BOARD, unsigned int, c.model->brand)

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major,
                                                            int *minor) {
    ENTER(device, WS_WANT_BOARD);
    NOT_NULL(major);
    NOT_NULL(minor);
    *major = (int)c.model->cc_major;
    *minor = (int)c.model->cc_minor;
    LEAVE(NVML_SUCCESS);
}

GETTER(nvmlDeviceGetNumGpuCores, WS_WANT_GPU, unsigned int, c.model->sms * c.model->cores_per_sm)
GETTER(nvmlDeviceGetMemoryBusWidth, WS_WANT_GPU, unsigned int, c.model->mem_bus_bits)
GETTER(nvmlDeviceGetMaxPcieLinkGeneration, WS_WANT_GPU, unsigned int, c.model->pcie_gen)
GETTER(nvmlDeviceGetGpuMaxPcieLinkGeneration, WS_WANT_GPU, unsigned int, c.model->pcie_gen)
GETTER(nvmlDeviceGetCurrPcieLinkGeneration, WS_WANT_GPU, unsigned int, c.model->pcie_gen)
GETTER(nvmlDeviceGetMaxPcieLinkWidth, WS_WANT_GPU, unsigned int, c.model->pcie_width)
GETTER(nvmlDeviceGetCurrPcieLinkWidth, WS_WANT_GPU, unsigned int, c.model->pcie_width)
GETTER(nvmlDeviceGetPcieReplayCounter, WS_WANT_GPU, unsigned int, 0u)

NVML_EXPORT nvmlReturn_t nvmlDeviceGetC2cModeInfoV(nvmlDevice_t device,
                                                   nvmlC2cModeInfo_v1_t *info) {
    ENTER(device, WS_WANT_GPU);
    NOT_NULL(info);
    REQUIRE(c.model->arch >= NVML_DEVICE_ARCH_HOPPER, NVML_ERROR_NOT_SUPPORTED);
    info->isC2cEnabled = c.model->module_scope;
    LEAVE(NVML_SUCCESS);
}

/* ---- memory -------------------------------------------------------------------------------- */

struct memory { uint64_t total, reserved, used; };

static nvmlReturn_t memory_of(const struct ws_call *c, struct memory *m) {
    if (c->is_mig) {
        m->total = ws_gi_profile(c->board, c->gi)->memory_mib * MIB;
        m->reserved = 0;
        m->used = ws_workers_memory(c->board, c->gi->serial);
    } else {
        /* With MIG on, the board's own numbers are for the privileged. */
        if (c->board->mig_current && c->board->option[WS_PERMISSION] < 1)
            return NVML_ERROR_NO_PERMISSION;
        m->total = c->model->memory_mib * MIB;
        m->reserved = RESERVED_MIB * MIB;
        m->used = ws_workers_memory(c->board, 0);
    }
    if (m->used > m->total - m->reserved) m->used = m->total - m->reserved;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    ENTER(device, WS_WANT_BOARD);
    NOT_NULL(memory);
    struct memory m;
    nvmlReturn_t code = memory_of(&c, &m);
    if (code == NVML_SUCCESS) /* this older form counts the reserved part as used */
        *memory = (nvmlMemory_t){ m.total, m.total - m.used - m.reserved, m.used + m.reserved };
    LEAVE(code);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    ENTER(device, WS_WANT_BOARD);
    NOT_NULL(memory);
    REQUIRE(memory->version == NVML_VERSION_WORD(nvmlMemory_v2_t, 2),
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    struct memory m;
    nvmlReturn_t code = memory_of(&c, &m);
    if (code == NVML_SUCCESS)
        *memory = (nvmlMemory_v2_t){ memory->version, m.total, m.reserved,
                                     m.total - m.used - m.reserved, m.used };
    LEAVE(code);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device,
                                                     nvmlBAR1Memory_t *memory) {
    ENTER(device, WS_WANT_BOARD);
    NOT_NULL(memory);
    /* The aperture covers the memory, rounded up to a power of two. */
    uint64_t total = MIB;
    while (total < c.model->memory_mib * MIB) total *= 2;
    if (c.is_mig) total = ws_gi_profile(c.board, c.gi)->memory_mib * MIB;
    *memory = (nvmlBAR1Memory_t){ total, total - MIB, MIB };
    LEAVE(NVML_SUCCESS);
}

/* ---- administrative modes ------------------------------------------------------------------ */

GETTER(nvmlDeviceGetPersistenceMode, WS_WANT_GPU, unsigned int, c.board->persistence)
GETTER(nvmlDeviceGetDisplayMode, WS_WANT_GPU, unsigned int, 0)
GETTER(nvmlDeviceGetDisplayActive, WS_WANT_GPU, unsigned int, 0)
GETTER(nvmlDeviceGetAccountingMode, WS_WANT_GPU, unsigned int, 0)
GETTER(nvmlDeviceGetRetiredPagesPendingStatus, WS_WANT_GPU, unsigned int, 0)

NVML_EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned int mode) {
    ENTER(device, WS_WANT_GPU);
    REQUIRE(mode <= 1, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(c.board->option[WS_PERMISSION] >= 2, NVML_ERROR_NO_PERMISSION);
    c.board->persistence = mode;
    LEAVE(NVML_SUCCESS);
}

GETTER(nvmlDeviceGetComputeMode, WS_WANT_BOARD, unsigned int, c.board->compute_mode)

NVML_EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current,
                                              unsigned int *pending) {
    ENTER(device, WS_WANT_GPU);
    NOT_NULL(current);
    NOT_NULL(pending);
    *current = *pending = 1;
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int type,
                                                     unsigned int counter,
                                                     unsigned long long *count) {
    ENTER(device, WS_WANT_BOARD);
    NOT_NULL(count);
    REQUIRE(type <= 1 && counter <= 1, NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable,
                                                   unsigned int *uncorrectable,
                                                   unsigned int *pending, unsigned int *failure) {
    ENTER(device, WS_WANT_GPU);
    NOT_NULL(correctable);
    NOT_NULL(uncorrectable);
    NOT_NULL(pending);
    NOT_NULL(failure);
    *correctable = *uncorrectable = *pending = *failure = 0;
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t one, nvmlDevice_t other, int *same) {
    ENTER(one, WS_WANT_GPU);
    NOT_NULL(same);
    REQUIRE(other && ws_handle_valid(other), NVML_ERROR_INVALID_ARGUMENT);
    *same = one->board == other->board;
    LEAVE(NVML_SUCCESS);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words,
                                                  unsigned long *set) {
    ENTER(device, WS_WANT_BOARD);
    NOT_NULL(set);
    REQUIRE(words > 0, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned int i = 0; i < words; i++) set[i] = i == 0 ? ~0ul : 0;
    LEAVE(NVML_SUCCESS);
}
