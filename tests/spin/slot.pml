/* The life of one slot (shm/slot.h, block.h, fence.h): hand-over by one compare-and-swap, take-over from the dead,
 * fencing of the frozen, reuse for another request.
 *
 * An incarnation here may act in every stage, so any two of them stand for two instances of a role. It may end between
 * any two stores. A frozen process is one that takes no step for a while: it needs no model of its own, since a fence
 * may come at any time, by mistake too. What a fenced process does until it notices is part of the search.
 * With REUSE the second incarnation comes into the first one's entry, when that has ended and nothing names it any more.
 *
 * run: -DREQUESTS=2 -DDEATHS=2 -DFENCES=0 -DHANDED ; -m200000
 * run: -DREQUESTS=2 -DDEATHS=1 -DFENCES=0 -DHANDED -DREUSE ; -m200000
 * run: -DREQUESTS=2 -DDEATHS=1 -DFENCES=0 -DCANCEL -DINCS=2 ; -m200000
 * run: -DREQUESTS=1 -DDEATHS=1 -DFENCES=1 ; -m200000
 * run: -DREQUESTS=2 -DDEATHS=1 -DFENCES=1 -DSHORT=1 ; -m200000
 * run: -DREQUESTS=1 -DDEATHS=0 -DFENCES=2 -DSHORT=1 ; -m200000
 * breaks: -DREQUESTS=1 -DDEATHS=0 -DFENCES=1 -DNO_TURN ; -m200000
 * breaks: -DREQUESTS=1 -DDEATHS=0 -DFENCES=1 -DNO_COPY ; -m200000
 * breaks: -DREQUESTS=1 -DDEATHS=0 -DFENCES=1 -DNO_LEAVE ; -m200000
 * breaks: -DREQUESTS=1 -DDEATHS=1 -DFENCES=1 -DSHORT=1 -DLATE_LEAVE ; -m200000
 * breaks: -DREQUESTS=1 -DDEATHS=0 -DFENCES=2 -DSHORT=1 -DNO_STAMP ; -m200000
 * breaks: -DREQUESTS=1 -DDEATHS=0 -DFENCES=1 -DFREE_ALL ; -m200000
 * breaks: -DREQUESTS=1 -DDEATHS=0 -DFENCES=1 -DFENCE_FILL ; -m200000
 * breaks: -DREQUESTS=1 -DDEATHS=0 -DFENCES=0 -DNO_SETTLE ; -m200000
 * breaks: -DREQUESTS=1 -DDEATHS=1 -DFENCES=0 -DSWEEP_CURRENT ; -m200000
 * breaks: -DREQUESTS=1 -DDEATHS=1 -DFENCES=0 -DNO_TAKE_OVER ; -m200000
 * breaks: -DREQUESTS=1 -DDEATHS=1 -DFENCES=0 -DHANDED -DREUSE -DNO_HELD ; -m200000
 * breaks: -DREQUESTS=2 -DDEATHS=0 -DFENCES=0 -DCANCEL -DNO_GENERATION ; -m200000
 */
#ifndef INCS
#define INCS 3
#endif
/* The way of a request without the stages that only repeat what SAMPLE shows. */
#ifndef SHORT
#define SHORT 0
#endif
#define BODIES	 3 /* 1 .. BODIES; 0: none */

#define FREE	 0
#define FILL	 1
#define TOKENIZE 2
#define COMPUTE	 3
#define SAMPLE	 4
#define RECLAIM	 5
#define DONE	 6

/* The slot's word and line. */
byte stage, owner, body, turn;
bit held;
byte generation, cancel;

/* Block words; each run here is one block. */
#define NOBODYS	 0
#define PRIVATE	 1
#define SETTLED	 2
#define LEFT	 3
byte kind[BODIES + 1], number[BODIES + 1], stamp[BODIES + 1];

/* Bodies: whose request, and the counters that commit. */
byte request[BODIES + 1];
bit tokenized[BODIES + 1], n_kv[BODIES + 1], n_tokens[BODIES + 1], failed[BODIES + 1];
byte token[BODIES + 1];

/* What no process can see: who lives, who writes where, what he believes to own; what was asked for. */
bit alive[INCS + 1];
byte writer[BODIES + 1], holds[INCS + 1];
byte deaths = DEATHS, fences = FENCES, begun, ended;
byte used; /* incarnations are alike: they come on in order */
bit wanted_gone[REQUESTS + 1], was_done[REQUESTS + 1], admitted[REQUESTS + 1];

/* Entries of the table of the living: a word names an entry, the table says which incarnation that is. */
#ifdef REUSE
byte table[INCS];
#define ENTRY(i)  ((i + 1) / 2) /* 1 and 2: 1, 3: 2 */
#define NUMBER(e) table[e]
#define IN_ORDER  true
#else
#define ENTRY(i)  i
#define NUMBER(e) e
#define IN_ORDER  (id <= used + 1)
#endif
#define MINE	 (owner == ENTRY(id))
#define OTHERS	 (owner != 0 && owner != ENTRY(id))
#define ORPHAN	 (OTHERS && !alive[NUMBER(owner)])

#define ALL_OVER (begun == REQUESTS && stage == FREE)

/* Death: the kernel's proof is that the stores have ended. */
#define MAY_DIE                                                                                                        \
	if                                                                                                             \
	:: deaths > 0 -> deaths--; goto dead                                                                           \
	:: else                                                                                                        \
	:: true                                                                                                        \
	fi

/* Nobody who lives may still write it. */
inline free_block(b)
{
	assert(writer[b] == 0);
	assert(!(alive[1] && holds[1] == b) && !(alive[2] && holds[2] == b));
#if INCS > 2
	assert(!(alive[3] && holds[3] == b));
#endif
	kind[b] = NOBODYS;
	number[b] = 0;
	stamp[b] = 0;
	request[b] = 0
}

/* The word of a block that was freed and taken again is another one. */
#ifdef NO_STAMP
#define STAMP(b, value) skip
#else
#define STAMP(b, value) stamp[b] = value
#endif
#define IS_OLD(b) (kind[b] == old_kind && number[b] == old_number && stamp[b] == old_stamp)

/* What a living incarnation has for itself it also uses. */
inline nothing_leaks(b)
{
	assert(kind[b] != SETTLED);
	assert(kind[b] != PRIVATE || !alive[number[b]] || holds[number[b]] == b)
}

inline take_block(b)
{
	if
	:: kind[1] == NOBODYS -> b = 1
	:: else ->
		if
		:: kind[2] == NOBODYS -> b = 2
		:: else ->
			if
			:: kind[3] == NOBODYS -> b = 3
			:: else -> b = 0
			fi
		fi
	fi;
	if
	:: b != 0 -> kind[b] = PRIVATE; number[b] = id; STAMP(b, turn)
	:: else
	fi
}

inline enter(b)
{
	assert(writer[b] == 0);
	writer[b] = id
}

/* A store into the body: it must still be there for this request. */
inline leave(b)
{
	assert(writer[b] == id && kind[b] != NOBODYS && request[b] == mine_request);
	writer[b] = 0
}

/* A full pool would make the turns count without end. */
#define SOME_FREE (kind[1] == NOBODYS || kind[2] == NOBODYS || kind[3] == NOBODYS)
#define OF_THE_ENDED(b) ((kind[b] == PRIVATE || kind[b] == LEFT) && !alive[number[b]])

/* The end of a request: once, complete, and not because another was cancelled. */
inline deliver(b)
{
	assert(!was_done[request[b]] && request[b] == generation);
	was_done[request[b]] = 1;
	assert(failed[b] || (n_tokens[b] && token[b] == request[b]));
	assert(!failed[b] || wanted_gone[request[b]])
}

/* The only swap: from the word that was seen. */
#ifdef NO_TURN
#define IS_SEEN (stage == seen_stage && owner == seen_owner && held == seen_held && body == seen_body)
#define RAISE	skip
#else
#define IS_SEEN (turn == seen_turn)
#define RAISE	turn++
#endif

inline swap(to_stage, to_owner, to_body)
{
	if
	:: IS_SEEN ->
		stage = to_stage;
		owner = to_owner;
		held = to_owner == ENTRY(id);
		body = to_body;
		RAISE;
		seen_stage = to_stage;
		seen_owner = to_owner;
		seen_held = held;
		seen_body = to_body;
		seen_turn = turn;
		swapped = true
	:: else -> swapped = false
	fi
}

inline settle(b)
{
#ifdef NO_SETTLE
	skip
#else
	if
	:: b != 0 && (kind[b] == PRIVATE || (kind[b] == LEFT && number[b] != id)) ->
		kind[b] = SETTLED;
		number[b] = 0
	:: else
	fi
#endif
}

inline see()
{
	used = (id > used -> id : used);
	seen_stage = stage;
	seen_owner = owner;
	seen_held = held;
	seen_body = body;
	seen_turn = turn
}

/* Nothing is remembered from one look to the next. */
inline forget()
{
	seen_stage = 0;
	seen_owner = 0;
	seen_held = 0;
	seen_body = 0;
	seen_turn = 0;
	mine_request = 0;
	fresh = 0;
	i = 0;
	next = 0;
	old_kind = 0;
	old_number = 0;
	old_stamp = 0;
	swapped = 0;
	gone = 0
}

proctype incarnation(byte id)
{
	byte seen_stage, seen_owner, seen_body, seen_turn;
	byte mine_request, fresh, i, next, old_kind, old_number, old_stamp;
	bit swapped, gone, seen_held;

#ifdef REUSE
	atomic { table[ENTRY(id)] == 0 -> table[ENTRY(id)] = id; alive[id] = 1 }
#endif
look:
	atomic { forget() };
	do
	:: atomic { ALL_OVER -> goto dead }
	:: atomic { IN_ORDER && stage == FREE && begun < REQUESTS && SOME_FREE -> see() }
		atomic { MAY_DIE; swap(FILL, ENTRY(id), 0); if :: swapped -> goto fill :: else -> goto look fi }
#ifndef NO_TAKE_OVER
	:: atomic { IN_ORDER && stage >= FILL && ORPHAN -> see(); goto take }
#endif
	:: atomic { IN_ORDER && stage > FILL && owner == 0 -> see(); goto take }
#ifdef NO_HELD
	:: atomic { IN_ORDER && stage > FILL && stage < DONE && MINE -> see(); holds[id] = body; goto act }
#else
	:: atomic { IN_ORDER && stage > FILL && stage < DONE && MINE && held -> see(); holds[id] = body; goto act }
	:: atomic { IN_ORDER && stage > FILL && stage < DONE && MINE && !held -> see(); goto take }
#endif
#ifdef FENCE_FILL
	:: atomic { IN_ORDER && stage == FILL && OTHERS && alive[NUMBER(owner)] && fences > 0 -> fences--; see(); goto take }
#endif
	:: atomic { IN_ORDER && stage > FILL && stage < DONE && OTHERS && alive[NUMBER(owner)] && fences > 0 ->
		fences--; see(); goto fence }
	od;

/* ---- gateway: a new request */
fill:
	atomic { MAY_DIE; take_block(fresh); holds[id] = fresh; if :: fresh == 0 -> goto clear :: else fi }
	atomic { MAY_DIE; begun++; mine_request = begun; generation = begun }
	atomic { MAY_DIE; enter(fresh) }
	atomic {
		MAY_DIE;
		request[fresh] = mine_request;
		tokenized[fresh] = SHORT; n_kv[fresh] = SHORT; n_tokens[fresh] = 0; failed[fresh] = 0; token[fresh] = 0;
		leave(fresh)
	}
	atomic {
		MAY_DIE;
		swap((SHORT -> SAMPLE : TOKENIZE), 0, fresh);
		assert(swapped); /* a slot in FILL is never taken from the living */
		holds[id] = 0;
		admitted[mine_request] = 1;
		goto look
	}

/* ---- claiming and taking over */
take:
	atomic {
		MAY_DIE;
		next = seen_owner;
		swap(seen_stage, ENTRY(id), seen_body);
		if
		:: !swapped -> goto look
		:: else -> holds[id] = seen_body
		fi;
		if
		:: seen_stage == DONE && next == 0 -> deliver(seen_body)
		:: else
		fi
	}
	atomic {
		MAY_DIE;
		settle(seen_body);
		if
		:: seen_stage == FILL -> goto clear
		:: seen_stage == DONE -> goto release
		:: else
		fi
	}

/* ---- the turn of whoever owns the slot: counters first, then what they allow */
act:
	atomic {
		MAY_DIE;
		mine_request = request[seen_body];
#ifdef NO_GENERATION
		gone = cancel == 255;
#else
		gone = cancel == generation;
#endif
		next = stage;
		if
		:: gone -> next = (n_kv[seen_body] && !SHORT -> RECLAIM : DONE)
		:: !gone && seen_stage == TOKENIZE -> next = COMPUTE
		:: !gone && seen_stage == COMPUTE -> next = SAMPLE
		:: !gone && seen_stage == SAMPLE -> next = (SHORT -> DONE : RECLAIM)
		:: else
		fi;
		if
		:: seen_stage == RECLAIM -> next = DONE
		:: else
		fi;
		enter(seen_body)
	}
	/* Data before its counter; a half-done step is done again. */
	if
	:: seen_stage == SAMPLE && !gone ->
		atomic { MAY_DIE; if :: !n_tokens[seen_body] -> token[seen_body] = mine_request :: else fi }
	:: else
	fi;
	atomic {
		MAY_DIE;
		if
		:: gone && seen_stage != RECLAIM -> failed[seen_body] = 1
		:: !gone && seen_stage == TOKENIZE -> tokenized[seen_body] = 1
		:: !gone && seen_stage == COMPUTE -> assert(tokenized[seen_body]); n_kv[seen_body] = 1
		:: !gone && seen_stage == SAMPLE -> assert(n_kv[seen_body]); n_tokens[seen_body] = 1
		:: else
		fi;
		leave(seen_body)
	}
	atomic {
		MAY_DIE;
		fresh = 0;
		if
		:: next == DONE || next == RECLAIM
		:: next != DONE && next != RECLAIM
#ifdef HANDED
		:: next == SAMPLE -> fresh = 1 /* handed to one of them, who may be dead */
#endif
		fi;
		swap(next, fresh, seen_body);
		holds[id] = 0;
		if
		:: swapped -> goto look
		:: else -> goto dead /* fenced: exit status 75 */
		fi
	}

/* ---- fence: a copy of what is committed; what the owner could write is left to it */
fence:
#ifdef NO_COPY
	atomic { MAY_DIE; swap(seen_stage, ENTRY(id), seen_body); if :: swapped -> holds[id] = seen_body; goto act :: else -> goto look fi }
#endif
	atomic { MAY_DIE; take_block(fresh); if :: fresh == 0 -> goto look :: else -> holds[id] = fresh fi }
	atomic { MAY_DIE; enter(fresh); mine_request = request[seen_body]; request[fresh] = mine_request;
		n_tokens[fresh] = n_tokens[seen_body]; n_kv[fresh] = n_kv[seen_body];
		tokenized[fresh] = tokenized[seen_body]; failed[fresh] = failed[seen_body] }
	atomic { MAY_DIE; token[fresh] = (n_tokens[fresh] -> token[seen_body] : 0); leave(fresh) }
#if !defined(NO_LEAVE) && !defined(LATE_LEAVE)
again:
	atomic { MAY_DIE; old_kind = kind[seen_body]; old_number = number[seen_body];
		old_stamp = stamp[seen_body]; i = NUMBER(seen_owner) }
	atomic { MAY_DIE; if :: !IS_SEEN -> goto give_back :: else fi }
	atomic { MAY_DIE;
		if
		:: IS_OLD(seen_body) -> kind[seen_body] = LEFT; number[seen_body] = i; STAMP(seen_body, seen_turn)
		:: else -> goto again
		fi }
#endif
	atomic {
		MAY_DIE;
		i = seen_body;
		next = seen_owner;
		swap(seen_stage, ENTRY(id), fresh);
		if
		:: !swapped -> goto give_back
		:: else
		fi
	}
#ifdef LATE_LEAVE
	atomic { MAY_DIE; kind[i] = LEFT; number[i] = next }
#endif
	atomic { MAY_DIE; settle(seen_body); goto act }
give_back:
	atomic {
		MAY_DIE;
		holds[id] = 0;
		if
		:: kind[fresh] == PRIVATE && number[fresh] == id -> free_block(fresh)
		:: else
		fi;
		goto look
	}

/* ---- gateway: the answer was delivered */
release:
	atomic {
		MAY_DIE;
		swap(FILL, ENTRY(id), 0);
		assert(swapped);
		holds[id] = 0
	}
clear:
	atomic {
		holds[id] = 0;
		i = 1;
		do
		:: i > BODIES -> break
		:: i <= BODIES -> MAY_DIE;
			if
#ifdef FREE_ALL
			:: kind[i] != NOBODYS -> free_block(i)
#else
			:: kind[i] == SETTLED || (kind[i] == PRIVATE && number[i] == id) -> free_block(i)
#endif
			:: else
			fi;
			i++
		od
	}
	atomic { MAY_DIE; nothing_leaks(1); nothing_leaks(2); nothing_leaks(3); swap(FREE, 0, 0); assert(swapped); goto look }

dead:
	atomic {
		forget();
		alive[id] = 0;
		holds[id] = 0;
		i = 1;
		do
		:: i <= BODIES && writer[i] == id -> writer[i] = 0; i++
		:: i <= BODIES && writer[i] != id -> i++
		:: i > BODIES -> break
		od;
		i = 0;
		ended++
	}
}

/* What the ended have left. Who sweeps may sleep at any point, so one stands for all. */
proctype sweeper()
{
	byte i, old_kind, old_number, old_stamp;
	bit may_free;
	do
	:: atomic { ended == INCS -> break }
	:: atomic { OF_THE_ENDED(1) -> i = 1; goto sweep }
	:: atomic { OF_THE_ENDED(2) -> i = 2; goto sweep }
	:: atomic { OF_THE_ENDED(3) -> i = 3;
sweep:
		old_kind = kind[i];
		old_number = number[i];
		old_stamp = stamp[i] }
		atomic {
#ifdef SWEEP_CURRENT
			may_free = true;
#else
			may_free = stage == FREE || body != i;
#endif
			if
			:: !may_free -> old_kind = 0
			:: else
			fi
		}
		atomic {
			if
			:: old_kind != 0 && IS_OLD(i) -> free_block(i)
			:: else
			fi;
			i = 0; old_kind = 0; old_number = 0; old_stamp = 0; may_free = 0
		}
	od
}

#ifdef REUSE
/* First it is proven that the entry's incarnation has ended, then looked whether anything names it; then it is freed. */
proctype undertaker()
{
	atomic { table[1] != 0 && !alive[table[1]] };
	atomic { stage == FREE || owner != 1 };
	table[1] = 0
}
#endif

/* A client that goes away, perhaps late: its handle names a request, not the slot. */
proctype client()
{
	byte handle;
	atomic {
		if
		:: admitted[1] -> handle = 1
		:: admitted[REQUESTS] -> handle = REQUESTS
		:: ended == INCS -> goto gone
		fi
	}
	atomic { if :: generation == handle -> wanted_gone[handle] = 1 :: else -> goto gone fi }
#ifdef NO_GENERATION
	cancel = 255;
#else
	atomic { if :: cancel < handle -> cancel = handle :: else fi };
#endif
gone:
	skip
}

init
{
	byte i;
	atomic {
		i = 1;
		do
#ifdef REUSE
		:: i <= INCS -> run incarnation(i); i++
#else
		:: i <= INCS -> alive[i] = 1; run incarnation(i); i++
#endif
		:: i > INCS -> break
		od;
		run sweeper();
#ifdef REUSE
		run undertaker();
#endif
#ifdef CANCEL
		run client()
#endif
	}
	/* A slot that nobody can bring on is a deadlock here. */
	ended == INCS;
	atomic {
		assert(ALL_OVER);
		for (i : 1 .. REQUESTS) {
			assert(!admitted[i] || was_done[i])
		}
		/* What is not free is left to, or private of, one that has ended: the next sweep frees it. */
		for (i : 1 .. BODIES) {
			assert(kind[i] != SETTLED)
		}
	}
}
