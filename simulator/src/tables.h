/* Board models and their MIG profiles: compiled from data/boards.csv and data/profiles.csv. */
#ifndef WATTSIM_TABLES_H
#define WATTSIM_TABLES_H

#define WS_MAX_STARTS 8

struct ws_model {
    const char *model, *name, *family;
    unsigned int arch, cc_major, cc_minor, brand, pci_device_id, pci_subsystem_id;
    unsigned int memory_mib, sms, cores_per_sm, mem_axis, max_mig;
    double min_limit_w, default_limit_w, max_limit_w, idle_w, idle_mig_w, peak_w;
    unsigned int sm_mhz, mem_mhz, idle_mhz, pcie_gen, pcie_width, mem_bus_bits;
    unsigned int module_scope;            /* 1: the meter covers CPU and GPU (Grace Hopper) */
    double update_ms, window_ms;          /* instant power sensor: refresh period and seen part */
    unsigned int has_average, gpm, resetless, fan, slowdown_c;
};

enum ws_media_class { WS_MEDIA_PLAIN, WS_MEDIA_ME, WS_MEDIA_ME_ALL, WS_MEDIA_NO_ME };

struct ws_profile {
    const char *family, *name;
    unsigned int constant, id, max_count, slices, memory_slices, start_count;
    unsigned int starts[WS_MAX_STARTS];
    unsigned int memory_mib, sms, copy_engines, decoders, encoders, jpeg, ofa;
    enum ws_media_class media;
};

/* A compute-instance profile as it exists inside one kind of GPU instance. */
struct ws_ci_profile {
    unsigned int constant, slices, max_count, sms, size, stride;
};

unsigned int ws_model_count(void);
const struct ws_model *ws_model_at(unsigned int index);
int ws_model_index(const char *model);
/* Profiles of one model; stops at NULL. `index` counts within the model. */
const struct ws_profile *ws_profile_at(const struct ws_model *model, unsigned int index);
int ws_profile_by_constant(const struct ws_model *model, unsigned int constant);
int ws_profile_by_id(const struct ws_model *model, unsigned int id);
/* The CI profile with this constant inside `profile`; 0 when there is none. */
int ws_ci_profile(const struct ws_model *model, const struct ws_profile *profile,
                  unsigned int constant, struct ws_ci_profile *out);

#define WS_GI_PROFILE_CONSTANTS 18
#define WS_CI_PROFILE_CONSTANTS 9

#endif
