/*-------------------------------------------------------------------------
 *
 * source.h
 *	  Private to src/sweep: the work sources.
 *
 * IDENTIFICATION
 *	  src/sweep/source.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_SOURCE_H
#define PAYFLOW_SOURCE_H

#include "lib/spi.h"
#include "lib/vocabulary.h"

/*
 * A kind of due rows: in which queue they are worked, and the statements that
 * find them.  `due` takes (provider, now, limit, offset) and locks what it returns;
 * `next` takes (provider, now) and returns the earliest alarm after now.
 */
typedef struct WorkSource
{
	Queue		queue;
	Statement	due;
	Statement	next;
} WorkSource;

extern WorkSource work_sources[];
extern const int n_work_sources;

#endif							/* PAYFLOW_SOURCE_H */
