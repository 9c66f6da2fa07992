/* tests/xrt/softnpu/program.c: makes the xclbin that XRT wants before it gives out a hardware
 * context: one kernel SOFTNPU with an opcode, an instruction stream, its length and three buffers;
 * banks for host memory and the device's own; a partition of four columns whose image is a name and
 * filler, since the software NPU needs no more.
 *
 *   program FILE [other]        prints its XXH3-64, as a manifest wants it
 *
 * other: a program that isn't for this device's streams. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xrt/detail/xclbin.h>
#include <xxhash.h>

#include "context.h"

#define ARG(name, qualifier, id, size, offset, type)                                               \
	"<arg name=\"" name "\" addressQualifier=\"" qualifier "\" id=\"" id                       \
	"\" port=\"\" size=\"" size "\" offset=\"" offset "\" hostOffset=\"0x0\" hostSize=\"" size \
	"\" type=\"" type "\"/>"

static const char metadata[] =
	"<?xml version=\"1.0\" encoding=\"utf-8\"?><project name=\"\"><platform vendor=\"\" "
	"boardid=\"\" name=\"\" featureRomTime=\"0\"><version major=\"0\" minor=\"1\"/>"
	"<description/><device name=\"fpga0\" fpgaDevice=\"\"><core name=\"OCL_REGION_0\" "
	"type=\"clc_region\" clockFreq=\"0MHz\"><kernel name=\"SOFTNPU\" language=\"c\" "
	"type=\"dpu\"><extended-data subtype=\"DPU\" functional=\"0\" "
	"dpu_kernel_id=\"0x901\"/>" ARG("opcode", "0", "0", "0x8", "0x00", "uint64_t") ARG(
		"stream", "1", "1", "0x8", "0x08",
		"char *") ARG("words", "0", "2", "0x4", "0x10",
			      "uint32_t") ARG("weights", "1", "3", "0x8", "0x14",
					      "void *") ARG("acts", "1", "4", "0x8", "0x1c",
							    "void *")
		ARG("output", "1", "5", "0x8", "0x24",
		    "void *") "<instance "
			      "name=\"SOFTNPU0\"/></kernel></core></device></platform></project>";

struct section {
	uint32_t kind;
	const void *bytes;
	size_t size;
};

static uint8_t file[65536], partition[4096];
static const char *identity = CONTEXT_PROGRAM; /* how the image begins */

static struct section topology(void)
{
	static uint8_t bytes[sizeof(struct mem_topology) + sizeof(struct mem_data)];
	struct mem_topology *t = (struct mem_topology *)(void *)bytes;
	static const char *const tags[] = {"HOST", "SRAM"};
	t->m_count = 2;
	for (int i = 0; i < 2; i++) {
		struct mem_data *bank = &t->m_mem_data[i];
		bank->m_type = MEM_DRAM;
		bank->m_used = 1;
		bank->m_size = i ? 0xc000 : 0x10000;
		bank->m_base_address = 0x4000000;
		memcpy(bank->m_tag, tags[i], strlen(tags[i]));
	}
	return (struct section){MEM_TOPOLOGY, bytes, sizeof bytes};
}

static struct section kernels(void)
{
	static struct ip_layout layout = {.m_count = 1};
	struct ip_data *k = &layout.m_ip_data[0];
	k->m_type = IP_PS_KERNEL;
	k->ps_kernel.m_subtype = ST_DPU;
	k->ps_kernel.m_kernel_id = 0x901;
	k->m_base_address = UINT64_MAX;
	memcpy(k->m_name, "SOFTNPU:SOFTNPU0", sizeof "SOFTNPU:SOFTNPU0");
	return (struct section){IP_LAYOUT, &layout, sizeof layout};
}

/* Which bank each buffer argument lies in: the stream in the device's, the rest in the host's. */
static struct section wiring(void)
{
	static uint8_t bytes[sizeof(struct connectivity) + 3 * sizeof(struct connection)];
	struct connectivity *c = (struct connectivity *)(void *)bytes;
	static const int arguments[] = {1, 3, 4, 5}, banks[] = {1, 0, 0, 0};
	c->m_count = 4;
	for (int i = 0; i < 4; i++) {
		c->m_connection[i].arg_index = arguments[i];
		c->m_connection[i].mem_data_index = banks[i];
	}
	return (struct section){CONNECTIVITY, bytes, sizeof bytes};
}

static uint32_t append(size_t *at, const void *bytes, size_t size)
{
	size_t start = *at;
	memcpy(partition + start, bytes, size);
	*at = (start + size + 7) / 8 * 8;
	return (uint32_t)start;
}

static struct section image(void)
{
	struct aie_partition *p = (struct aie_partition *)(void *)partition;
	static const uint16_t columns[] = {0, 4};
	static const uint64_t kernel = 0x901;
	uint8_t filler[256];
	struct cdo_group group = {.cdo_type = CT_PRIMARY, .pdi_id = 1};
	struct aie_pdi pdi = {0};
	size_t at = sizeof *p;
	memset(filler, 0xA5, sizeof filler);
	memcpy(filler, identity, strlen(identity));
	p->mpo_name = append(&at, "softnpu", 8);
	p->operations_per_cycle = 2048;
	p->info.column_width = 4;
	p->info.start_columns.size = 2;
	p->info.start_columns.offset = append(&at, columns, sizeof columns);
	pdi.pdi_image.size = sizeof filler;
	pdi.pdi_image.offset = append(&at, filler, sizeof filler);
	group.mpo_name = append(&at, "DPU", 4);
	group.dpu_kernel_ids.size = 1;
	group.dpu_kernel_ids.offset = append(&at, &kernel, sizeof kernel);
	pdi.cdo_groups.size = 1;
	pdi.cdo_groups.offset = append(&at, &group, sizeof group);
	p->aie_pdi.size = 1;
	p->aie_pdi.offset = append(&at, &pdi, sizeof pdi);
	p->kernel_commit_id = append(&at, "", 1);
	return (struct section){AIE_PARTITION, partition, at};
}

static size_t assemble(const struct section *sections, uint32_t n)
{
	struct axlf *axlf = (struct axlf *)(void *)file;
	size_t at = sizeof *axlf + (n - 1) * sizeof(struct axlf_section_header);
	memcpy(axlf->m_magic, "xclbin2", 8);
	axlf->m_signature_length = -1;
	memset(axlf->reserved, 0xff, sizeof axlf->reserved);
	memset(axlf->m_keyBlock, 0xff, sizeof axlf->m_keyBlock);
	axlf->m_header.m_mode = XCLBIN_FLAT;
	axlf->m_header.m_numSections = n;
	axlf->m_header.m_versionMajor = 2;
	axlf->m_header.m_versionMinor = 25;
	for (uint32_t i = 0; i < 16; i++)
		axlf->m_header.uuid[i] = (uint8_t)(identity[0] + i);
	for (uint32_t i = 0; i < n; i++) {
		at = (at + 7) / 8 * 8;
		axlf->m_sections[i].m_sectionKind = sections[i].kind;
		axlf->m_sections[i].m_sectionOffset = at;
		axlf->m_sections[i].m_sectionSize = sections[i].size;
		memcpy(file + at, sections[i].bytes, sections[i].size);
		at += sections[i].size;
	}
	axlf->m_header.m_length = (at + 7) / 8 * 8;
	return axlf->m_header.m_length;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[2], "other") == 0)
		identity = "ANOTHER1";
	struct section banks = topology(), wires = wiring();
	const struct section sections[] = {
		banks,
		{ASK_GROUP_TOPOLOGY, banks.bytes, banks.size},
		kernels(),
		wires,
		{ASK_GROUP_CONNECTIVITY, wires.bytes, wires.size},
		image(),
		{EMBEDDED_METADATA, metadata, sizeof metadata - 1},
	};
	FILE *out = argc == 2 || argc == 3 ? fopen(argv[1], "wbe") : NULL;
	if (!out)
		return fprintf(stderr, "usage: program FILE [other]\n"), 64;
	size_t size = assemble(sections, sizeof sections / sizeof *sections);
	bool written = fwrite(file, 1, size, out) == size;
	printf("%016llx\n", (unsigned long long)XXH3_64bits(file, size));
	return fclose(out) != 0 || !written;
}
