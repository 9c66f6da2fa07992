/* sampler/work.h: the insides of struct smp_work. */
#pragma once
#include "base/arena.h"
#include "sampler/row.h"
#include "sampler/sampler.h"
#include "sampler/set.h"

struct smp_work {
	struct arena arena;
	struct smp_row row;
	struct smp_set set;
};
