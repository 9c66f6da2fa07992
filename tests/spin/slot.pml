/* The life of a slot: hand-over by one compare-and-swap of {stage, owner, body, turn}, death of any process at any point,
 * processes that are taken for frozen and wake up late, entries that a new incarnation takes, a client that goes away.
 * docs/architecture.md tells the same in words; shm/slot.c, shm/fence.c, shm/block.c and services/slots.c are the code.
 *
 * Shown: who writes into a body is its one owner, or the body was left to it; what is committed never changes; every admitted
 * request ends, the slot and all bodies come back; no two processes work on the slot at once.
 *
 * run: -DONE_SAMPLER -DREQUESTS=1 -DDEATHS=1 ; -m400000 -w24
 * run: -DONE_SAMPLER -DREQUESTS=2 -DDEATHS=0 ; -m400000 -w24
 * run: -DONE_SAMPLER -DREQUESTS=2 -DDEATHS=1 -DFREEZES=0 ; -m400000 -w24
 * run: -DREQUESTS=1 -DDEATHS=1 -DFREEZES=0 -DCANCEL ; -m400000 -w24
 * breaks: -DNO_TURN -DREQUESTS=1 -DDEATHS=1 ; -m400000 -w24
 * breaks: -DNO_COPY -DREQUESTS=2 -DDEATHS=0 ; -m400000 -w24
 * breaks: -DFREE_LEFT_EARLY -DREQUESTS=2 -DDEATHS=0 ; -m400000 -w24
 * breaks: -DNO_TAKE_OVER -DREQUESTS=1 -DDEATHS=1 ; -m400000 -w24
 * breaks: -DNO_BURIAL -DREQUESTS=1 -DDEATHS=1 ; -m400000 -w24
 * breaks: -DNO_RELEASE -DREQUESTS=2 -DDEATHS=1 ; -m400000 -w24
 */

#ifndef REQUESTS
#define REQUESTS 2
#endif
#define TOKENS 1      /* of an answer */
#ifndef DEATHS
#define DEATHS 1      /* in all */
#endif
#ifndef FREEZES
#define FREEZES 1
#endif
#define BODIES 3

/* Entries of the incarnation table: 0 is nobody. */
#define GATEWAY 1
#define WORKER_A 2
#define WORKER_B 3
#define SAMPLER_A 4
#define SAMPLER_B 5
#define ENTRIES 6

mtype = { FREE, FILL, COMPUTE, SAMPLE, DONE };

/* The word. */
mtype stage = FREE;
byte owner, body, turn;

/* The lock of the incarnation in an entry is held; it was declared frozen. */
bool alive[ENTRIES];
bool fenced[ENTRIES];

/* A body: which request it holds (0: free), its committed counters, whose it is while no word refers to it: the one that
 * fills it, or the frozen one that it was left to. */
byte request_of[BODIES];
byte n_kv[BODIES], n_tokens[BODIES];
byte left_to[BODIES];

byte deaths, freezes, cancelled, answered;
bool holds[ENTRIES];  /* this process believes that the slot is its own */

#define WORKS(i) (holds[i] && alive[i] && !fenced[i])
#define WORKING (WORKS(WORKER_A) + WORKS(WORKER_B) + WORKS(SAMPLER_A) + WORKS(SAMPLER_B))

inline take_body(b, r) {
	atomic {
		if
		:: request_of[0] == 0 && left_to[0] == 0 -> b = 0
		:: request_of[1] == 0 && left_to[1] == 0 -> b = 1
		:: request_of[2] == 0 && left_to[2] == 0 -> b = 2
		fi;
		request_of[b] = r;
		n_kv[b] = 0;
		n_tokens[b] = 0
	}
}

/* Compare-and-swap from what was seen; ok says whether it happened. */
inline swap(ok, s_stage, s_owner, s_body, s_turn, new_stage, new_owner, new_body) {
	d_step {
#ifdef NO_TURN
		ok = stage == s_stage && owner == s_owner && body == s_body;
#else
		ok = stage == s_stage && owner == s_owner && body == s_body && turn == s_turn;
#endif
		if
		:: ok ->
			stage = new_stage;
			owner = new_owner;
			body = new_body;
			turn++
		:: else
		fi
	}
}

/* A write into body b for request r by process me: the body holds that request, and the word says that it is mine, or
 * it was left to me. */
inline check_write(b, r, me) {
	assert(request_of[b] == r && (left_to[b] == me || (owner == me && body == b)))
}

/* All stages are alike, so one sampler that lives for ever is enough where two workers quarrel. */
#ifdef ONE_SAMPLER
#define MORTAL(i) ((i) != SAMPLER_A)
#else
#define MORTAL(i) true
#endif

/* At any point a process may die: its lock is free at once, what it wrote stays. */
inline may_die(me) {
	if
	:: d_step { deaths < DEATHS && MORTAL(me) -> deaths++; alive[me] = false }; goto dead
	:: true
	fi
}

/* npu-worker and sampler alike: claim or take over, work, commit, pass on. */
proctype Stage(byte me; mtype mine; mtype next) {
	mtype w_stage;
	byte w_owner, w_body, w_turn, b, r, old;
	bool ok, frozen_owner, before;

born:
	skip;
	d_step { holds[me] = false; fenced[me] = false; alive[me] = true };
look:
	do
	/* Its beat told it that it was replaced. */
	:: fenced[me] -> alive[me] = false; goto dead
	:: atomic { stage == mine ->
		w_stage = stage; w_owner = owner; w_body = body; w_turn = turn };
		frozen_owner = false;
		ok = false;
		if
		:: w_owner == 0 || w_owner == me -> ok = true
#ifndef NO_TAKE_OVER
		:: w_owner != 0 && w_owner != me && !alive[w_owner] -> ok = true
#endif
		/* A process is taken for frozen though it may only be slow: the worst case of a late waking. */
		:: d_step { w_owner != 0 && w_owner != me && alive[w_owner] && MORTAL(w_owner) &&
				(fenced[w_owner] || freezes < FREEZES) ->
			freezes = (fenced[w_owner] -> freezes : freezes + 1) };
			ok = true; frozen_owner = true
		:: w_owner != 0 && w_owner != me && alive[w_owner] -> skip
		fi;
		if
		:: !ok -> goto look
		:: ok && frozen_owner ->
			b = w_body;
#ifndef NO_COPY
			/* The copy of what is committed, and the old body left to the frozen one, before the swap. */
			atomic {
				request_of[w_body] != 0 && (left_to[w_body] == 0 || left_to[w_body] == w_owner) &&
				stage == mine && turn == w_turn ->
				r = request_of[w_body];
				take_body(b, r);
				n_kv[b] = n_kv[w_body];
				n_tokens[b] = n_tokens[w_body];
				left_to[b] = me;
				left_to[w_body] = w_owner
			} unless { turn != w_turn; goto look };
			may_die(me);
#endif
			swap(ok, w_stage, w_owner, w_body, w_turn, mine, me, b);
			if
			:: ok ->
				fenced[w_owner] = true;
				w_body = b;
				w_turn++;
				may_die(me);
				left_to[b] = (left_to[b] == me -> 0 : left_to[b])
			:: else ->
				/* The tag on the old body stays: whoever has the slot now settles it. */
#ifndef NO_COPY
				d_step {
					request_of[b] = 0;
					left_to[b] = 0
				};
#endif
				goto look
			fi
		:: else ->
			before = w_owner == me;
			if
			:: before -> ok = true
			:: else ->
				swap(ok, w_stage, w_owner, w_body, w_turn, mine, me, w_body);
				w_turn++
			fi;
			if
			:: ok ->
				may_die(me);
				/* What the word refers to is the slot's, unless I am the one that it was left to. */
				d_step {
					if
					:: left_to[w_body] != me && owner == me && body == w_body -> left_to[w_body] = 0
					:: else
					fi
				}
			:: else -> goto look
			fi
		fi;
		d_step {
			w_owner = me;
			r = request_of[w_body];
			holds[me] = true;
			assert(WORKING <= 1)
		};
		may_die(me);
		/* Work: data first, then its counter. Done again after a death it writes the same. */
		check_write(w_body, r, me);
		may_die(me);
		if
		:: cancelled == r && r != 0
		:: else ->
			if
			:: mine == COMPUTE && n_kv[w_body] == n_tokens[w_body] ->
				check_write(w_body, r, me);
				n_kv[w_body]++
			:: mine == SAMPLE && n_tokens[w_body] < n_kv[w_body] ->
				check_write(w_body, r, me);
				n_tokens[w_body]++;
				assert(n_tokens[w_body] <= TOKENS)
			:: else
			fi
		fi;
		may_die(me);
		holds[me] = false;
		if
		:: cancelled == r && r != 0 -> swap(ok, mine, me, w_body, w_turn, DONE, 0, w_body)
		:: mine == SAMPLE && n_tokens[w_body] >= TOKENS && !(cancelled == r && r != 0) ->
			swap(ok, mine, me, w_body, w_turn, DONE, 0, w_body)
		:: else -> swap(ok, mine, me, w_body, w_turn, next, 0, w_body)
		fi;
		if
		:: ok
		:: else ->
			/* Passed on by another: this one was fenced, owns nothing, and leaves. */
			assert(freezes > 0);
			alive[me] = false;
			goto dead
		fi
	:: answered == REQUESTS -> goto end
	od;
dead:
	/* Once it is gone, what was left to it is garbage; its successor takes the entry when nothing names it any more. */
	atomic {
#ifndef NO_BURIAL
		(owner != me || stage == FREE) || answered == REQUESTS ->
#endif
		b = 0;
		do
		:: b < BODIES ->
			if
			:: left_to[b] == me && body == b && stage != FREE && stage != FILL ->
				/* A fencer died, or lost, between the tag and the swap: the slot's after all. */
				left_to[b] = 0
			:: left_to[b] == me && !(body == b && stage != FREE && stage != FILL) ->
				left_to[b] = 0;
				request_of[b] = 0
			:: else
			fi;
			b++
		:: else -> break
		od
	};
	if
	:: answered == REQUESTS -> goto end
	:: else -> goto born
	fi;
end:
	skip
}

/* Admits one request after the other; dies and comes back like anyone. */
proctype Gateway() {
	byte me = GATEWAY, r, b, w_turn;
	bool ok;

born:
	alive[me] = true;
	do
	:: answered == REQUESTS -> goto end
	/* A slot that its predecessor was filling: what it had taken is given back. */
	:: atomic { stage == FILL && answered < REQUESTS -> owner = me; turn++; w_turn = turn };
		goto release
	:: atomic { stage == FREE && answered < REQUESTS -> stage = FILL; owner = me; turn++; w_turn = turn };
		r = answered + 1;
		may_die(me);
		take_body(b, r);
		may_die(me);
		swap(ok, FILL, me, body, w_turn, COMPUTE, 0, b);
		assert(ok);
		may_die(me)
#ifdef CANCEL
	:: stage == COMPUTE && answered < REQUESTS && cancelled == 0 -> cancelled = answered + 1
#endif
	:: atomic { stage == DONE -> w_turn = turn; b = body };
		/* The answer is whole, or was given up on purpose. */
		assert(request_of[b] == answered + 1);
		assert(n_tokens[b] == TOKENS || cancelled == answered + 1);
		swap(ok, DONE, 0, b, w_turn, FILL, me, 0);
		assert(ok);
		left_to[b] = 0;
		w_turn = turn;
		may_die(me);
release:
		skip;
		/* No word refers to a body now: everything of this slot that isn't left to someone comes back. */
		d_step {
#ifdef FREE_LEFT_EARLY
			left_to[0] = 0; left_to[1] = 0; left_to[2] = 0;
#endif
#ifndef NO_RELEASE
			ok = request_of[0] == answered + 1 && left_to[0] == 0 &&
			     (n_tokens[0] == TOKENS || cancelled == answered + 1);
			ok = ok || (request_of[1] == answered + 1 && left_to[1] == 0 &&
				    (n_tokens[1] == TOKENS || cancelled == answered + 1));
			ok = ok || (request_of[2] == answered + 1 && left_to[2] == 0 &&
				    (n_tokens[2] == TOKENS || cancelled == answered + 1));
			request_of[0] = (left_to[0] -> request_of[0] : 0);
			request_of[1] = (left_to[1] -> request_of[1] : 0);
			request_of[2] = (left_to[2] -> request_of[2] : 0);
#else
			ok = true;
#endif
			/* A request that was never passed on is admitted anew; one that had its answer is answered. */
			answered = (ok -> answered + 1 : answered);
			stage = FREE;
			owner = 0;
			turn++
		}
	od;
dead:
	goto born;
end:
	skip
}

/* When nothing can move any more, nothing may be left. */
proctype Monitor() {
	timeout;
	assert(answered == REQUESTS);
	assert(stage == FREE);
	assert(request_of[0] == 0 && request_of[1] == 0 && request_of[2] == 0);
	assert(left_to[0] == 0 && left_to[1] == 0 && left_to[2] == 0)
}

init {
	atomic {
		run Gateway();
		run Stage(WORKER_A, COMPUTE, SAMPLE);
		run Stage(WORKER_B, COMPUTE, SAMPLE);
		run Stage(SAMPLER_A, SAMPLE, COMPUTE);
#ifndef ONE_SAMPLER
		run Stage(SAMPLER_B, SAMPLE, COMPUTE);
#endif
		run Monitor()
	}
}
