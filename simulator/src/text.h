/* Copying text into a caller's buffer the way NVML does. */
#ifndef WATTSIM_TEXT_H
#define WATTSIM_TEXT_H

#include <string.h>

#include "nvml_abi.h"

static inline nvmlReturn_t ws_copy_text(const char *text, char *buffer, unsigned int size) {
    if (!buffer) return NVML_ERROR_INVALID_ARGUMENT;
    size_t n = strlen(text) + 1;
    if (n > size) return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(buffer, text, n);
    return NVML_SUCCESS;
}

#endif
