/*-------------------------------------------------------------------------
 *
 * books.h
 *	  Private to src/session: what is booked about a session beside its row:
 *	  its operations, the movements that its provider has reported, its ledger
 *	  entries.
 *
 *	  Most payments have none of these before they are paid: then books are
 *	  empty and cost no statement.
 *
 * IDENTIFICATION
 *	  src/session/books.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_BOOKS_H
#define PAYFLOW_BOOKS_H

#include "nodes/pg_list.h"

#include "lib/operation_row.h"
#include "lib/outcome.h"
#include "lib/payment_row.h"

#define CURRENCY_SIZE 4

/* a movement that the provider reports: a row of provider_operations */
typedef struct ProviderFact
{
	pg_uuid_t	id;
	const char *kind;			/* payment, refund, refund_total, dispute, dispute_total */
	const char *ref;			/* the provider's id */
	const char *step;
	int64		amount;
	int64		absorbed;		/* of it, what a total had shown before it was named */
	char		currency[CURRENCY_SIZE];
	TimestampTz event_at;
} ProviderFact;

/* a ledger entry, booked or to be booked; accounts by their kinds */
typedef struct LedgerEntry
{
	const char *type;
	const char *debit;
	const char *credit;
	int64		amount;
	char		currency[CURRENCY_SIZE];
	bool		has_operation;
	pg_uuid_t	operation_id;
	bool		has_fact;
	pg_uuid_t	fact_id;
	const char *fact_ref;		/* the provider's id of that; NULL: no fact */
	TimestampTz event_at;		/* of a new one */
	const char *note;			/* of a new one; NULL: none */
} LedgerEntry;

/* an open or resolved discrepancy, where a person decides about it */
typedef struct Discrepancy
{
	int64		id;
	int64		amount;			/* money in suspense that it is about; 0: none */
	char		currency[CURRENCY_SIZE];
} Discrepancy;

typedef struct Books
{
	List	   *operations;		/* of OperationRow *, oldest first; all are locked */
	List	   *facts;			/* of ProviderFact *, those of this decision too */
	List	   *entries;		/* of LedgerEntry *, those of this decision too */
	Discrepancy *discrepancy;	/* that the outcome names, or NULL */
	List	   *taken_refs;		/* ids of movements told now that are another session's; of char * */
	char	   *late_payment;	/* the merchant's policy; NULL: not read yet */
	bool		held_elsewhere; /* somebody holds one of the operations */
} Books;

/* Whether an outcome can only be decided with the session's books. */
extern bool books_needed(const PaymentRow *payment, const Outcome *outcome);

/*
 * Reads the books of sessions, which the transaction has locked, and locks
 * their operations: those that somebody holds are waited for, or leave
 * held_elsewhere.
 */
extern void books_read(const pg_uuid_t *session_ids, Books **books, int n, bool wait);

/* Of the refunds and disputes that an outcome names, those that are another session's. */
extern List *read_taken_refs(const PaymentRow *payment, const Outcome *outcome);

/* The discrepancy of that id as it is; NULL: there is none. */
extern Discrepancy *read_discrepancy(int64 id);

/* hold, accept, refund */
extern char *read_late_payment(const char *merchant);

/* The operation of that id, or NULL. */
extern OperationRow *books_operation(const Books *books, const pg_uuid_t *operation_id);
/* The first unsettled operation of a kind, or NULL. */
extern OperationRow *books_unsettled(const Books *books, OperationKind kind);
extern bool books_has_operation(const Books *books, OperationKind kind);

/* Sums over the entries in one currency. */
extern int64 booked_received(const Books *books, const char *currency);
extern int64 booked_refunded(const Books *books, const char *currency);
extern int64 booked_disputed(const Books *books, const char *currency);
extern int64 booked_suspense(const Books *books, const char *currency);
/* Of suspense, what no refund on its way has been promised. */
extern int64 free_suspense(const Books *books, const char *currency);
/* Of what totals have shown (kind refund_total or dispute_total), the part that nothing has named since. */
extern int64 unattributed(const Books *books, const char *total_kind, const char *named_kind, const char *currency);

#endif							/* PAYFLOW_BOOKS_H */
