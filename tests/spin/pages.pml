/* One KV page's word (shm/page.h). A worker's bit is its entry's, and entries are used again: whoever clears a dead
 * worker's bits may sleep until a successor has them. A page is taken again by another sequence: whoever read a page
 * table may sleep until then.
 *
 * Worker 1 has died in entry 1 and left its bit on a page. Two heirs hold the page, clear the bit and bury the dead;
 * worker 4 registers in entry 1 and adopts the page from a table that it read before. Then the sequence ends.
 *
 * run: ; -m100000
 * breaks: -DNO_NUMBER ; -m100000
 * breaks: -DNO_CHANGES ; -m100000
 * breaks: -DNO_GENERATION ; -m100000
 */
#define DEAD	  1
#define SUCCESSOR 4

#define OURS  1
#define RIVAL 2

byte number = DEAD; /* in entry 1 */
byte mask = 2;	    /* bit = entry */
byte generation = 1, changes;

bit listed = 1; /* the sequence's table names the page, of generation 1 */
byte content = OURS;
byte ended;

#ifdef NO_CHANGES
#define CHANGED skip
#else
#define CHANGED changes++
#endif

/* A swap; only here the mask changes. */
#define IS_OLD (mask == old_mask && generation == old_generation && changes == old_changes)

inline load()
{
	old_mask = mask;
	old_generation = generation;
	old_changes = changes
}

inline set(bit_of)
{
	if
	:: mask != 0 && !(mask & (bit_of)) -> mask = mask | (bit_of); CHANGED; held = true
	:: mask != 0 && (mask & (bit_of)) -> held = true
	:: mask == 0 -> held = false
	fi
}

inline clear(bit_of)
{
	if
	:: mask & (bit_of) -> mask = mask & ~(bit_of); CHANGED
	:: else
	fi
}

proctype heir(byte entry)
{
	byte old_mask, old_generation, old_changes;
	bit held;
	/* page_adopt: what a running sequence names is held by me first ... */
	atomic { if :: listed -> set(1 << entry) :: else fi };
	/* ... page_drop_all: then the dead one's bit goes, as long as the entry is its. */
again:
	atomic { load() }
#ifndef NO_NUMBER
	if
	:: number != DEAD -> goto rest
	:: else
	fi;
#endif
	atomic {
		if
		:: !(old_mask & 2) -> goto bury
		:: (old_mask & 2) && IS_OLD -> mask = mask & ~2; CHANGED
		:: (old_mask & 2) && !IS_OLD -> goto again
		fi
	}
bury:
	/* inc_bury: named by no page, then the number goes. */
	if
	:: mask & 2 -> goto again
	:: else
	fi;
	atomic { if :: number == DEAD -> number = 0 :: else fi };
rest:
	/* The sequence is over: its pages are collected. */
	atomic { !listed -> clear(1 << entry); ended++ }
}

proctype successor()
{
	bit held, may_use;
	atomic { number == 0 -> number = SUCCESSOR }
	/* The table as it is now ... */
	atomic { if :: listed -> may_use = true :: else fi };
	/* ... and a while later its page. */
	atomic { set(2) };
#ifndef NO_GENERATION
	atomic {
		if
		:: held && generation != 1 -> clear(2); held = false
		:: else
		fi
	};
#endif
	if
	:: held && may_use ->
		/* Reading, and writing behind what is computed: it stays mine. */
		assert((mask & 2) && content == OURS);
		assert((mask & 2) && content == OURS)
	:: else
	fi;
	atomic { if :: held -> clear(2) :: else fi; ended++ }
}

/* The sequence ends; another one takes the page when nobody holds it. */
proctype rival()
{
	atomic { listed = 0 }
	atomic { mask == 0 -> generation++; mask = 1 << 4; content = 0 }
	content = RIVAL;
	assert(mask & (1 << 4));
	atomic { mask = mask & ~(1 << 4); CHANGED; ended++ }
}

init
{
	atomic { run heir(2); run heir(3); run successor(); run rival() }
	end: (ended == 4)
}
