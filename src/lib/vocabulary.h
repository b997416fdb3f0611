/*-------------------------------------------------------------------------
 *
 * vocabulary.h
 *	  The words that all parts share: statuses, stages, calls, queues.
 *
 * IDENTIFICATION
 *	  src/lib/vocabulary.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_VOCABULARY_H
#define PAYFLOW_VOCABULARY_H

typedef enum SessionStatus
{
	STATUS_REGISTERING,
	STATUS_REGISTERED,
	STATUS_UNKNOWN,
	STATUS_AUTHORIZED,
	STATUS_CANCELING,
	STATUS_COMPLETED,
	STATUS_FAILED,
	STATUS_CANCELED,
	STATUS_COUNT
} SessionStatus;

typedef enum SessionStage
{
	STAGE_REGISTER,
	STAGE_FORM,
	STAGE_RETURN,
	STAGE_AUTHENTICATION,
	STAGE_BANK,
	STAGE_CAPTURE,
	STAGE_REVERSE,
	STAGE_NONE,
	STAGE_COUNT
} SessionStage;

typedef enum OrderStatus
{
	ORDER_OPEN,
	ORDER_PAID,
	ORDER_REFUNDING,
	ORDER_PARTIALLY_REFUNDED,
	ORDER_REFUNDED,
	ORDER_STATUS_COUNT
} OrderStatus;

/* what a worker may ask of a provider; CALL_NONE is for outcomes that needed no call */
typedef enum CallKind
{
	CALL_NONE,
	CALL_REGISTER,
	CALL_FIND,					/* status by our reference */
	CALL_GET,					/* status by the provider's id */
	CALL_EXPIRE,
	CALL_CAPTURE,
	CALL_CANCEL,
	CALL_REFUND,
	CALL_COUNT
} CallKind;

/* commands that move money after Register, each a row of operations */
typedef enum OperationKind
{
	OPERATION_CAPTURE,
	OPERATION_REVERSE,			/* of a session that is being canceled */
	OPERATION_VOID,				/* of an authorization that nobody wants */
	OPERATION_REFUND,
	OPERATION_ACCEPT,			/* unexpected money waits to become the order's receipt */
	OPERATION_AFTER_LOOK,		/* a session ended unproven: go on asking */
	OPERATION_KIND_COUNT
} OperationKind;

typedef enum OperationStatus
{
	OPERATION_PENDING,			/* surely not sent */
	OPERATION_SENT,				/* may have reached the provider */
	OPERATION_SUCCEEDED,
	OPERATION_FAILED,
	OPERATION_UNKNOWN,			/* cannot be proven, a person may decide */
	OPERATION_STATUS_COUNT
} OperationStatus;

typedef enum Queue
{
	QUEUE_PAYMENTS,
	QUEUE_STATUS,
	QUEUE_MONEY,
	QUEUE_NOTIFICATIONS,
	QUEUE_COUNT
} Queue;

#define status_is_final(status) \
	((status) == STATUS_COMPLETED || (status) == STATUS_FAILED || (status) == STATUS_CANCELED)

/* in progress: an HTTP handler answers 202 */
#define status_in_progress(status) \
	((status) == STATUS_REGISTERING || (status) == STATUS_UNKNOWN || (status) == STATUS_CANCELING)

#define operation_is_settled(status) \
	((status) == OPERATION_SUCCEEDED || (status) == OPERATION_FAILED)

/*
 * Names to and from values.  The *_from_name functions raise XX000-free
 * errors: ERRCODE_DATA_CORRUPTED when the word is none of ours, which only a
 * row written around the constraints can cause.
 */
extern const char *status_name(SessionStatus status);
extern SessionStatus status_from_name(const char *name);
extern const char *stage_name(SessionStage stage);
extern SessionStage stage_from_name(const char *name);
extern const char *order_status_name(OrderStatus status);
extern OrderStatus order_status_from_name(const char *name);
extern const char *operation_kind_name(OperationKind kind);
extern OperationKind operation_kind_from_name(const char *name);
extern const char *operation_status_name(OperationStatus status);
extern OperationStatus operation_status_from_name(const char *name);
extern const char *call_name(CallKind call);
extern const char *queue_name(Queue queue);

/* The queue in which a call is counted. */
extern Queue call_queue(CallKind call);

#endif							/* PAYFLOW_VOCABULARY_H */
