/* liblockstep-xrt.so: XRT's hardware contexts, buffers and run lists exist only in C++; this file puts
 * them behind xrt_module.h. Built where libxrt-dev is; the only C++ of the project. */
#include "npu-worker/device/xrt_module.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <xrt/experimental/xrt_kernel.h>
#include <xrt/experimental/xrt_xclbin.h>
#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_hw_context.h>
#include <xrt/xrt_kernel.h>

namespace {

constexpr uint64_t OPCODE = 3; // run an instruction stream
constexpr int FIRST_ARG = 3;   // after opcode, instructions, word count

struct opened {
	xrt::device device;
	xrt::xclbin program;
	xrt::hw_context context;
	xrt::kernel kernel;
	std::unique_ptr<xrt::runlist> list; // of the last submission
	std::vector<xrt::run> runs;
};

struct buffer {
	xrt::bo bo;
	size_t bytes;
	void *memory;
};

/* The errno in an exception, negative; its text goes to why. */
template <typename F> int guarded(char *why, F work)
{
	try {
		return work();
	} catch (const std::system_error &error) {
		snprintf(why, XRT_MODULE_WHY, "%s", error.what());
		int code = error.code().value();
		return code > 0 ? -code : code < 0 ? code : -EIO;
	} catch (const std::exception &error) {
		snprintf(why, XRT_MODULE_WHY, "%s", error.what());
		return -EIO;
	} catch (...) {
		snprintf(why, XRT_MODULE_WHY, "an exception without a name");
		return -EIO;
	}
}

int open_device(const char *program, const char *kernel, void **ret_device, char *why)
{
	return guarded(why, [&] {
		auto o = std::make_unique<opened>();
		o->device = xrt::device(0);
		o->program = xrt::xclbin(std::string(program));
		o->device.register_xclbin(o->program);
		o->context = xrt::hw_context(o->device, o->program.get_uuid());
		o->kernel = xrt::kernel(o->context, kernel);
		*ret_device = o.release();
		return 0;
	});
}

void close_device(void *device)
{
	char why[XRT_MODULE_WHY];
	(void)guarded(why, [&] {
		delete static_cast<opened *>(device);
		return 0;
	});
}

int make_buffer(void *device, int instructions, void *memory, size_t bytes, void **ret_buffer,
		char *why)
{
	return guarded(why, [&] {
		auto *o = static_cast<opened *>(device);
		auto flags = instructions ? xrt::bo::flags::cacheable : xrt::bo::flags::host_only;
		auto group = o->kernel.group_id(instructions ? 1 : FIRST_ARG);
		auto b = std::make_unique<buffer>();
		b->bytes = bytes;
		b->bo = memory ? xrt::bo(o->device, memory, bytes, flags, group)
			       : xrt::bo(o->device, bytes, flags, group);
		b->memory = memory ? memory : b->bo.map<void *>();
		*ret_buffer = b.release();
		return 0;
	});
}

void *buffer_memory(void *b)
{
	return static_cast<buffer *>(b)->memory;
}

void free_buffer(void *b)
{
	char why[XRT_MODULE_WHY];
	(void)guarded(why, [&] {
		delete static_cast<buffer *>(b);
		return 0;
	});
}

int sync_buffer(void *b, int to_device, size_t offset, size_t bytes, char *why)
{
	return guarded(why, [&] {
		static_cast<buffer *>(b)->bo.sync(to_device ? XCL_BO_SYNC_BO_TO_DEVICE
							    : XCL_BO_SYNC_BO_FROM_DEVICE,
						  bytes, offset);
		return 0;
	});
}

int submit(void *device, const xrt_module_run *runs, uint32_t n, char *why)
{
	return guarded(why, [&] {
		auto *o = static_cast<opened *>(device);
		o->list.reset();
		o->list = std::make_unique<xrt::runlist>(o->context);
		while (o->runs.size() < n)
			o->runs.emplace_back(o->kernel);
		for (uint32_t i = 0; i < n; i++) {
			xrt::run &run = o->runs[i];
			run.set_arg(0, OPCODE);
			run.set_arg(1, static_cast<buffer *>(runs[i].instructions)->bo);
			run.set_arg(2, runs[i].n_words);
			for (int a = 0; a < 3; a++)
				run.set_arg(FIRST_ARG + a, static_cast<buffer *>(runs[i].args[a])->bo);
			o->list->add(run);
		}
		o->list->execute();
		return 0;
	});
}

int state_of(void *device, char *why)
{
	return guarded(why, [&] {
		return static_cast<int>(static_cast<opened *>(device)->list->state());
	});
}

const xrt_module module = {XRT_MODULE_VERSION, sizeof(xrt_module), open_device, close_device,
			   make_buffer,	       buffer_memory,	   free_buffer, sync_buffer,
			   submit,	       state_of};

} // namespace

extern "C" __attribute__((visibility("default"))) const xrt_module *lockstep_xrt_module(void)
{
	return &module;
}
