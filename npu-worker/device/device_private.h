/* npu-worker/device/device_private.h: shared by probe.c and device.c. */
#pragma once
#include "npu-worker/device/device.h"
#include "npu-worker/device/xrt_module.h"

#define DEVICE_NODE "/dev/accel/accel0"

enum { DEVICE_FIRMWARE = 32 };
/* The version that the driver tells, or "of unknown version". */
void device_firmware(char version[DEVICE_FIRMWARE]);
