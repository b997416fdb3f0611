/*-------------------------------------------------------------------------
 *
 * source.h
 *	  Private to src/sweep: the work sources, and the leases.
 *
 * IDENTIFICATION
 *	  src/sweep/source.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_SOURCE_H
#define PAYFLOW_SOURCE_H

#include "nodes/pg_list.h"

#include "lib/spi.h"
#include "sweep/sweep.h"

/* ---- source.c ---- */

/*
 * A kind of due rows: in which queue they are worked, and the statements that
 * find them.
 *
 * `first` takes (provider, from) and returns the earliest alarm.  `due` takes
 * (provider, now, limit, offset, from, names_refunds, believed) and locks what
 * it returns; sessions have no use for the last two.  `next` takes (provider,
 * now) and returns the earliest alarm after now.  `postpone` takes (provider,
 * now, limit, pause) and puts off what is due, `postpone_one` takes
 * (id, now, pause).
 */
typedef struct WorkSource
{
	Queue		queue;
	Statement	first;
	Statement	due;
	Statement	next;
	Statement	postpone;
	Statement	postpone_one;
} WorkSource;

extern WorkSource work_sources[WORK_SOURCES];

/* ---- lease.c ---- */

/*
 * Writes the leases, and the marks of what is sent for the first time, of the
 * claims from the first-th one on, which are all of sessions or all of
 * operations, and brings the copies up to date.
 */
extern void lease_sessions(List *claims, int first, const ClaimRequest *request, bool asked, TimestampTz now);
extern void lease_operations(List *claims, int first, const ClaimRequest *request, TimestampTz now);

#endif							/* PAYFLOW_SOURCE_H */
