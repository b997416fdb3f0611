/*-------------------------------------------------------------------------
 *
 * vocabulary.c
 *	  Names of statuses, stages, calls, queues and outcomes.
 *
 * IDENTIFICATION
 *	  src/lib/vocabulary.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/outcome.h"
#include "lib/vocabulary.h"

static const char *const status_names[STATUS_COUNT] = {
	[STATUS_REGISTERING] = "registering",
	[STATUS_REGISTERED] = "registered",
	[STATUS_UNKNOWN] = "unknown",
	[STATUS_AUTHORIZED] = "authorized",
	[STATUS_CANCELING] = "canceling",
	[STATUS_COMPLETED] = "completed",
	[STATUS_FAILED] = "failed",
	[STATUS_CANCELED] = "canceled",
};

static const char *const stage_names[STAGE_COUNT] = {
	[STAGE_REGISTER] = "register",
	[STAGE_FORM] = "form",
	[STAGE_RETURN] = "return",
	[STAGE_AUTHENTICATION] = "authentication",
	[STAGE_BANK] = "bank",
	[STAGE_CAPTURE] = "capture",
	[STAGE_REVERSE] = "reverse",
	[STAGE_NONE] = "none",
};

static const char *const order_status_names[ORDER_STATUS_COUNT] = {
	[ORDER_OPEN] = "open",
	[ORDER_PAID] = "paid",
	[ORDER_REFUNDING] = "refunding",
	[ORDER_PARTIALLY_REFUNDED] = "partially_refunded",
	[ORDER_REFUNDED] = "refunded",
};

static const char *const call_names[CALL_COUNT] = {
	[CALL_NONE] = "none",
	[CALL_REGISTER] = "register",
	[CALL_FIND] = "find",
	[CALL_GET] = "get",
	[CALL_EXPIRE] = "expire",
	[CALL_CAPTURE] = "capture",
	[CALL_CANCEL] = "cancel",
	[CALL_REFUND] = "refund",
};

static const char *const operation_kind_names[OPERATION_KIND_COUNT] = {
	[OPERATION_CAPTURE] = "capture",
	[OPERATION_REVERSE] = "reverse",
	[OPERATION_VOID] = "void",
	[OPERATION_REFUND] = "refund",
	[OPERATION_ACCEPT] = "accept",
	[OPERATION_AFTER_LOOK] = "after_look",
};

static const char *const operation_status_names[OPERATION_STATUS_COUNT] = {
	[OPERATION_PENDING] = "pending",
	[OPERATION_SENT] = "sent",
	[OPERATION_SUCCEEDED] = "succeeded",
	[OPERATION_FAILED] = "failed",
	[OPERATION_UNKNOWN] = "unknown",
};

static const char *const queue_names[QUEUE_COUNT] = {
	[QUEUE_PAYMENTS] = "payments",
	[QUEUE_STATUS] = "status",
	[QUEUE_MONEY] = "money",
	[QUEUE_NOTIFICATIONS] = "notifications",
};

static const char *const outcome_names[OUTCOME_KIND_COUNT] = {
	[OUTCOME_ATTEMPT_DECLINED] = "attempt_declined",
	[OUTCOME_AUTHORIZED] = "authorized",
	[OUTCOME_PAID] = "paid",
	[OUTCOME_DECLINED] = "declined",
	[OUTCOME_EXPIRED] = "expired",
	[OUTCOME_CANCELED] = "canceled",
	[OUTCOME_CAPTURE_FAILED] = "capture_failed",
	[OUTCOME_TOLD] = "told",
	[OUTCOME_PENDING] = "pending",
	[OUTCOME_NOT_FOUND] = "not_found",
	[OUTCOME_REFUSED] = "refused",
	[OUTCOME_UNSENT] = "unsent",
	[OUTCOME_LOST] = "lost",
	[OUTCOME_THROTTLED] = "throttled",
	[OUTCOME_UNAUTHORIZED] = "unauthorized",
	[OUTCOME_NEVER_SENT_LAPSED] = "never_sent_lapsed",
	[OUTCOME_UNREACHABLE_SETTING] = "unreachable_setting",
	[OUTCOME_DUE] = "due",
	[OUTCOME_CANCEL_ASKED] = "cancel_asked",
	[OUTCOME_CAPTURE_ASKED] = "capture_asked",
	[OUTCOME_REFUND_ASKED] = "refund_asked",
	[OUTCOME_REFUND_DECIDED] = "refund_decided",
	[OUTCOME_DISCREPANCY_DECIDED] = "discrepancy_decided",
};

static int
value_of(const char *const *names, int n, const char *name, const char *what)
{
	for (int i = 0; i < n; i++)
	{
		if (strcmp(names[i], name) == 0)
			return i;
	}
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("unknown %s \"%s\"", what, name)));
}

const char *
status_name(SessionStatus status)
{
	return status_names[status];
}

SessionStatus
status_from_name(const char *name)
{
	return (SessionStatus) value_of(status_names, STATUS_COUNT, name, "session status");
}

const char *
stage_name(SessionStage stage)
{
	return stage_names[stage];
}

SessionStage
stage_from_name(const char *name)
{
	return (SessionStage) value_of(stage_names, STAGE_COUNT, name, "session stage");
}

const char *
order_status_name(OrderStatus status)
{
	return order_status_names[status];
}

OrderStatus
order_status_from_name(const char *name)
{
	return (OrderStatus) value_of(order_status_names, ORDER_STATUS_COUNT, name, "order status");
}

const char *
operation_kind_name(OperationKind kind)
{
	return operation_kind_names[kind];
}

OperationKind
operation_kind_from_name(const char *name)
{
	return (OperationKind) value_of(operation_kind_names, OPERATION_KIND_COUNT, name, "operation kind");
}

const char *
operation_status_name(OperationStatus status)
{
	return operation_status_names[status];
}

OperationStatus
operation_status_from_name(const char *name)
{
	return (OperationStatus) value_of(operation_status_names, OPERATION_STATUS_COUNT, name, "operation status");
}

const char *
call_name(CallKind call)
{
	return call_names[call];
}

const char *
queue_name(Queue queue)
{
	return queue_names[queue];
}

const char *
outcome_name(OutcomeKind kind)
{
	return outcome_names[kind];
}

Queue
call_queue(CallKind call)
{
	switch (call)
	{
		case CALL_REGISTER:
			return QUEUE_PAYMENTS;
		case CALL_EXPIRE:
		case CALL_CAPTURE:
		case CALL_CANCEL:
		case CALL_REFUND:
			return QUEUE_MONEY;
		default:
			return QUEUE_STATUS;
	}
}
