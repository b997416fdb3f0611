/*-------------------------------------------------------------------------
 *
 * asks.c
 *	  The ring of asks: sessions that callers want the provider asked about.
 *
 *	  A place goes free -> waiting -> taken -> answered; answered ones are
 *	  reused, the oldest first, with a new generation, by which those who wait
 *	  for the answer learn that it was given.  What the states say is in small
 *	  heads that are searched from end to end; the params lie apart.
 *
 *	  All guarded by shared_lock(1).
 *
 * IDENTIFICATION
 *	  src/shared/asks.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "lib/compat.h"
#include "shared/shared.h"

#define ASK_PLACES 1024

/* nobody waits longer: an ask that old, of a database without workers, makes room */
#define ASK_LIFETIME ((int64) 120 * USECS_PER_SEC)

typedef enum AskState
{
	ASK_FREE,
	ASK_WAITING,
	ASK_TAKEN,
	ASK_ANSWERED,
} AskState;

typedef struct AskHead
{
	AskState	state;
	Oid			database;
	uint64		generation;
	pg_uuid_t	session_id;
	TimestampTz asked_at;
	uint64		answer;			/* number of the answer, for the oldest first */
	int			worker_slot;	/* with ASK_TAKEN */
	bool		returned;
} AskHead;

typedef struct AskRing
{
	int			waiting;		/* places in that state */
	int			next;			/* where the next taking begins, so that all get their turn */
	uint64		answers;		/* given so far */
	AskHead		heads[ASK_PLACES];
	char		params[ASK_PLACES][ASK_PARAMS_MAX + 1];
} AskRing;

static AskRing *ring;

Size
asks_size(void)
{
	return sizeof(AskRing);
}

void
asks_setup(void *memory, bool found)
{
	ring = memory;
	if (!found)
		memset(ring, 0, sizeof(AskRing));
}

/* The question of that session that nobody has taken; -1: none. */
static int
find_waiting(Oid database, const pg_uuid_t *session_id)
{
	for (int i = 0; i < ASK_PLACES && ring->waiting > 0; i++)
	{
		AskHead    *head = &ring->heads[i];

		if (head->state == ASK_WAITING && head->database == database &&
			memcmp(&head->session_id, session_id, sizeof(*session_id)) == 0)
			return i;
	}
	return -1;
}

/* A place for a new question; -1: none. */
static int
find_place(TimestampTz now)
{
	int			answered = -1;
	int			forgotten = -1;

	for (int i = 0; i < ASK_PLACES; i++)
	{
		AskHead    *head = &ring->heads[i];

		switch (head->state)
		{
			case ASK_FREE:
				return i;
			case ASK_WAITING:
				if (head->asked_at + ASK_LIFETIME < now &&
					(forgotten < 0 || head->asked_at < ring->heads[forgotten].asked_at))
					forgotten = i;
				break;
			case ASK_ANSWERED:
				if (answered < 0 || head->answer < ring->heads[answered].answer)
					answered = i;
				break;
			case ASK_TAKEN:
				break;
		}
	}
	if (answered < 0 && forgotten >= 0)
		ring->waiting--;
	return answered >= 0 ? answered : forgotten;
}

bool
ask_put(const pg_uuid_t *session_id, bool returned, const char *params, AskTicket *ticket)
{
	TimestampTz now = GetCurrentTimestamp();
	int			place;

	if (params != NULL && strlen(params) > ASK_PARAMS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("parameters of a return are longer than %d bytes", ASK_PARAMS_MAX)));

	LWLockAcquire(shared_lock(1), LW_EXCLUSIVE);
	place = find_waiting(MyDatabaseId, session_id);
	if (place < 0)
	{
		place = find_place(now);
		if (place >= 0)
		{
			AskHead    *head = &ring->heads[place];

			head->state = ASK_WAITING;
			head->database = MyDatabaseId;
			head->generation++;
			head->session_id = *session_id;
			head->asked_at = now;
			head->returned = false;
			ring->params[place][0] = '\0';
			ring->waiting++;
		}
	}
	if (place >= 0)
	{
		ring->heads[place].returned |= returned;
		if (params != NULL)
			strlcpy(ring->params[place], params, ASK_PARAMS_MAX + 1);
		ticket->place = place;
		ticket->generation = ring->heads[place].generation;
	}
	LWLockRelease(shared_lock(1));

	if (place >= 0)
		wake_workers(MyDatabaseId);
	return place >= 0;
}

bool
ask_answered(const AskTicket *ticket)
{
	AskHead    *head = &ring->heads[ticket->place];
	bool		answered;

	LWLockAcquire(shared_lock(1), LW_SHARED);
	answered = head->generation != ticket->generation || head->state == ASK_ANSWERED;
	LWLockRelease(shared_lock(1));
	return answered;
}

int
ask_take(Oid database, int worker_slot, Ask *asks, int max)
{
	int			n = 0;
	int			start;

	LWLockAcquire(shared_lock(1), LW_EXCLUSIVE);
	start = ring->next;
	for (int i = 0; i < ASK_PLACES && n < max && ring->waiting > 0; i++)
	{
		int			place = (start + i) % ASK_PLACES;
		AskHead    *head = &ring->heads[place];

		if (head->state != ASK_WAITING || head->database != database)
			continue;
		head->state = ASK_TAKEN;
		head->worker_slot = worker_slot;
		ring->waiting--;
		ring->next = (place + 1) % ASK_PLACES;

		asks[n].place = place;
		asks[n].generation = head->generation;
		asks[n].session_id = head->session_id;
		asks[n].returned = head->returned;
		asks[n].asked_at = head->asked_at;
		strlcpy(asks[n].params, ring->params[place], sizeof(asks[n].params));
		n++;
	}
	LWLockRelease(shared_lock(1));
	return n;
}

void
ask_give_back(int place, uint64 generation)
{
	AskHead    *head = &ring->heads[place];

	LWLockAcquire(shared_lock(1), LW_EXCLUSIVE);
	if (head->generation == generation && head->state == ASK_TAKEN)
	{
		head->state = ASK_WAITING;
		ring->waiting++;
	}
	LWLockRelease(shared_lock(1));
}

void
ask_done(int place, uint64 generation)
{
	AskHead    *head = &ring->heads[place];
	Oid			database = InvalidOid;
	pg_uuid_t	session_id;

	LWLockAcquire(shared_lock(1), LW_EXCLUSIVE);
	if (head->generation == generation && head->state == ASK_TAKEN)
	{
		head->state = ASK_ANSWERED;
		head->answer = ++ring->answers;
		database = head->database;
		session_id = head->session_id;
	}
	LWLockRelease(shared_lock(1));

	if (OidIsValid(database))
		tell_waiters(database, &session_id);
}

void
ask_forget_worker(int worker_slot)
{
	Oid			database = InvalidOid;

	LWLockAcquire(shared_lock(1), LW_EXCLUSIVE);
	for (int i = 0; i < ASK_PLACES; i++)
	{
		AskHead    *head = &ring->heads[i];

		if (head->state == ASK_TAKEN && head->worker_slot == worker_slot)
		{
			head->state = ASK_WAITING;
			ring->waiting++;
			database = head->database;
		}
	}
	LWLockRelease(shared_lock(1));

	if (OidIsValid(database))
		wake_workers(database);
}

int
asks_waiting(Oid database)
{
	int			n = 0;

	LWLockAcquire(shared_lock(1), LW_SHARED);
	for (int i = 0; i < ASK_PLACES && ring->waiting > 0; i++)
		n += ring->heads[i].state == ASK_WAITING && ring->heads[i].database == database;
	LWLockRelease(shared_lock(1));
	return n;
}
