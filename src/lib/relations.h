/*-------------------------------------------------------------------------
 *
 * relations.h
 *	  payflow's relations in this database, and whether what was learned of
 *	  them still holds.
 *
 * IDENTIFICATION
 *	  src/lib/relations.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_RELATIONS_H
#define PAYFLOW_RELATIONS_H

/* The table, or index, of schema payflow; raises 42P01 when there is none. */
extern Oid	payflow_relation(const char *name);

/*
 * A number that changes when something may have changed about what is watched,
 * or about any function.  Of a relation that means columns, constraints,
 * triggers, indexes; of a domain its constraints and its default.
 *
 * watch_relation() returns the number from which on changes count: ask it
 * before looking.
 */
extern uint64 relation_changes(void);
extern uint64 watch_relation(Oid relid);
extern void watch_domain(Oid type);

#endif							/* PAYFLOW_RELATIONS_H */
