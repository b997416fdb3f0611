/*-------------------------------------------------------------------------
 *
 * operation_row.h
 *	  A row of operations in C: a command that moves money after Register.
 *
 * IDENTIFICATION
 *	  src/lib/operation_row.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_OPERATION_ROW_H
#define PAYFLOW_OPERATION_ROW_H

#include "access/htup.h"
#include "access/tupdesc.h"
#include "datatype/timestamp.h"
#include "utils/uuid.h"

#include "lib/vocabulary.h"

/* 0 stands for a null time, NULL for a null string */
typedef struct OperationRow
{
	pg_uuid_t	operation_id;	/* also the reference by which the provider knows a refund */
	pg_uuid_t	session_id;
	OperationKind kind;
	OperationStatus status;
	int64		amount;			/* 0: it has none */
	char	   *currency;
	bool		from_suspense;	/* a refund of money in suspense, not of the receipt */
	char	   *idempotency_key;
	TimestampTz next_action_at;
	TimestampTz lease_until;
	int64		lease_token;	/* 0: no lease */
	int			attempts;
	TimestampTz first_sent_at;	/* with the present key; 0: surely never sent */
	bool		ask_due;		/* the provider is to be asked before it is sent (again) */
	TimestampTz unresolved_since;
	char	   *provider_ref;	/* the provider's id of it */
	int64		total_before;	/* a refund: the provider's refunded total when it was first sent; -1: not known */
	char	   *failure_code;
	char	   *failure_message;
	char	   *reason;
	char	   *receipt;		/* JSON text */
	bool		settled_by_person;
	int64		discrepancy_id; /* whose money it moves; 0: none */
	TimestampTz created_at;
	TimestampTz updated_at;

	/* not of the row: what is to be written of it */
	bool		is_new;
	bool		changed;
} OperationRow;

/* The select list that operation_row_read() reads: the operation is op. */
#define OPERATION_ROW_COLUMNS \
	"op.operation_id, op.session_id, op.kind, op.status, op.amount, op.currency::pg_catalog.text, " \
	"op.source, op.idempotency_key, op.next_action_at, op.lease_until, op.lease_token, op.attempts, " \
	"op.first_sent_at, op.ask_due, op.unresolved_since, op.provider_ref, op.total_before, op.failure_code, " \
	"op.failure_message, op.reason, op.receipt::pg_catalog.text, op.settled_by, op.discrepancy_id, op.created_at, " \
	"op.updated_at"

#define OPERATION_ROW_NCOLUMNS 25

/*
 * Reads OPERATION_ROW_COLUMNS from a tuple where they begin after `skip`
 * columns.  Strings are allocated in the current memory context.
 */
extern OperationRow *operation_row_read(HeapTuple tuple, TupleDesc tupdesc, int skip);

#endif							/* PAYFLOW_OPERATION_ROW_H */
