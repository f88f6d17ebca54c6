#include "tables.h"

#include <string.h>

#include "tables_data.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

unsigned int ws_model_count(void) { return COUNT(model_table); }

const struct ws_model *ws_model_at(unsigned int index) {
    return index < COUNT(model_table) ? &model_table[index] : NULL;
}

int ws_model_index(const char *model) {
    for (unsigned int i = 0; i < COUNT(model_table); i++)
        if (strcmp(model_table[i].model, model) == 0) return (int)i;
    return -1;
}

const struct ws_profile *ws_profile_at(const struct ws_model *model, unsigned int index) {
    for (unsigned int i = 0; i < COUNT(profile_table); i++)
        if (strcmp(profile_table[i].family, model->family) == 0 && index-- == 0)
            return &profile_table[i];
    return NULL;
}

int ws_profile_by_constant(const struct ws_model *model, unsigned int constant) {
    const struct ws_profile *p;
    for (unsigned int i = 0; (p = ws_profile_at(model, i)); i++)
        if (p->constant == constant) return (int)i;
    return -1;
}

int ws_profile_by_id(const struct ws_model *model, unsigned int id) {
    const struct ws_profile *p;
    for (unsigned int i = 0; (p = ws_profile_at(model, i)); i++)
        if (p->id == id) return (int)i;
    return -1;
}

/* SMs of one compute slice: those of the model's plain one-slice profile. */
static unsigned int slice_sms(const struct ws_model *model) {
    int i = ws_profile_by_constant(model, 0);
    return i < 0 ? 0 : ws_profile_at(model, (unsigned int)i)->sms;
}

/*
 * Captured lists: 1g has 1c; 2g 1c x2 and 2c; 3g 1c x3, 2c x1, 3c; 4g 1c x4, 2c x2, 4c;
 * 7g 1c x7, 2c x3, 3c x2, 4c x1, 7c. Hopper and later add constant 7 (one slice with the SMs of
 * the double-memory 1g) to the 2g, and it is the only one of the double-memory 1g itself.
 */
int ws_ci_profile(const struct ws_model *model, const struct ws_profile *profile,
                  unsigned int constant, struct ws_ci_profile *out) {
    static const unsigned int slices_of[] = { 1, 2, 3, 4, 7 };
    const int double_memory = profile->constant == 9;
    const int rev1_exists = model->arch >= 9 && ws_profile_by_constant(model, 9) >= 0;

    if (constant == 7) {
        if (!rev1_exists || (!double_memory && profile->constant != 1)) return 0;
        const struct ws_profile *dm =
            ws_profile_at(model, (unsigned int)ws_profile_by_constant(model, 9));
        *out = (struct ws_ci_profile){ 7, 1, 1, dm->sms, profile->slices, profile->slices };
        return 1;
    }
    if (constant >= COUNT(slices_of) || (double_memory && rev1_exists)) return 0;
    unsigned int n = slices_of[constant];
    if (n > profile->slices) return 0;
    if (n == 3 && profile->slices == 4) return 0;
    *out = (struct ws_ci_profile){
        .constant = constant,
        .slices = n,
        .sms = n == profile->slices ? profile->sms : n * slice_sms(model),
        .size = n,
        .stride = n == 3 ? 4 : n,
    };
    for (unsigned int s = 0; s + n <= profile->slices; s += out->stride) out->max_count++;
    return 1;
}
