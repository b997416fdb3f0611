/*-------------------------------------------------------------------------
 *
 * sandbox_answer.c
 *	  What the answers of the test provider mean.
 *
 *	  An answer counts only if it is the provider's own: a page that some
 *	  proxy made says nothing of a payment, whatever its status code.  One that
 *	  is wrong in a figure or an entry is believed in none.
 *
 * IDENTIFICATION
 *	  src/provider/sandbox_answer.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/compat.h"
#include "lib/json.h"
#include "lib/uuid.h"
#include "lib/wire.h"
#include "provider/sandbox.h"

#define ID_MAX 255
#define STATUS_MAX 60
#define MESSAGE_MAX 500

/* sums of a few such totals still fit */
#define TOTAL_MAX INT64CONST(1000000000000000000)

/* no payment has more refunds or disputes */
#define ENTRIES_MAX 1000

/* Nothing is told of the payment. */
static void
clear_payment(Outcome *outcome)
{
	outcome->provider_payment_id = NULL;
	outcome->unknown_word = false;
	outcome->amount = 0;
	outcome->currency[0] = '\0';
	outcome->authorized = -1;
	outcome->captured = -1;
	outcome->refunded = -1;
	outcome->disputed = -1;
	outcome->refunds = NULL;
	outcome->n_refunds = 0;
	outcome->refunds_complete = false;
	outcome->disputes = NULL;
	outcome->n_disputes = 0;
	outcome->disputes_complete = false;
}

static void
set_lost(Outcome *outcome, const char *error)
{
	clear_payment(outcome);
	outcome->kind = OUTCOME_LOST;
	outcome->error = error;
}

/* Our word for the provider's code of a decline. */
static const char *
failure_code(const char *decline_code)
{
	if (decline_code != NULL &&
		(strcmp(decline_code, "insufficient_funds") == 0 ||
		 strcmp(decline_code, "authentication_failed") == 0))
		return decline_code;
	return "declined";
}

/*
 * A total that may be missing (-1).  False when it is no number that a total
 * can be.
 */
static bool
read_total(const Json *payment, const char *key, int64 *total)
{
	*total = -1;
	switch (json_get_int64(payment, key, total))
	{
		case JSON_ABSENT:
			return true;
		case JSON_FOUND:
			return *total >= 0 && *total <= TOTAL_MAX;
		default:
			return false;
	}
}

/* An amount that moved: there, and more than nothing. */
static bool
read_amount(const Json *movement, int64 *amount)
{
	return read_total(movement, "amount", amount) && *amount > 0;
}

static bool
read_currency(const Json *payment, char currency[4])
{
	const char *code;

	switch (json_get_string(payment, "currency", &code))
	{
		case JSON_ABSENT:
			return true;
		case JSON_FOUND:
			strlcpy(currency, code, 4);
			return strlen(code) == 3 && strspn(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 3;
		default:
			return false;
	}
}

/* ASCII from the character `first` on, of a length that we keep. */
static bool
is_plain(const char *text, char first)
{
	size_t		length = strlen(text);

	for (const char *at = text; *at != '\0'; at++)
	{
		if (*at < first || *at > '~')
			return false;
	}
	return length > 0 && length <= ID_MAX;
}

static bool
read_id(const Json *object, const char **id)
{
	return json_get_string(object, "id", id) == JSON_FOUND && is_plain(*id, '!');
}

static bool
is_foreign(const Json *payment, const char *session_id)
{
	const char *reference;

	switch (json_get_string(payment, "reference", &reference))
	{
		case JSON_ABSENT:
			return false;
		case JSON_FOUND:
			return strcmp(reference, session_id) != 0;
		default:
			return true;
	}
}

/* ---- refunds and disputes ---- */

/* False for a word that is none of the provider's; then it may succeed yet. */
static bool
movement_status(const char *word, MovementStatus *status)
{
	static const char *const words[] = {
		[MOVEMENT_PENDING] = "pending",
		[MOVEMENT_SUCCEEDED] = "succeeded",
		[MOVEMENT_FAILED] = "failed",
	};

	for (size_t i = 0; i < lengthof(words); i++)
	{
		if (strcmp(words[i], word) == 0)
		{
			*status = (MovementStatus) i;
			return true;
		}
	}
	*status = MOVEMENT_PENDING;
	return false;
}

static bool
read_refund(const Json *object, ProviderRefund *refund, Outcome *outcome)
{
	const char *status = json_get_message(object, "status", STATUS_MAX);
	const char *reference;

	memset(refund, 0, sizeof(*refund));
	if (status == NULL || !read_id(object, &refund->id) || !read_amount(object, &refund->amount))
		return false;
	if (!movement_status(status, &refund->status))
		outcome->unknown_word = true;
	/* of a refund that others made, it may be anything */
	if (json_get_string(object, "reference", &reference) == JSON_FOUND && is_plain(reference, ' '))
		refund->reference = reference;
	return true;
}

static bool
read_dispute(const Json *object, ProviderDispute *dispute)
{
	const char *status = json_get_message(object, "status", STATUS_MAX);

	if (!read_id(object, &dispute->id) ||
		!read_amount(object, &dispute->amount) ||
		!read_total(object, "won", &dispute->won))
		return false;
	if (dispute->won < 0)
		dispute->won = status != NULL && strcmp(status, "won") == 0 ? dispute->amount : 0;
	return dispute->won <= dispute->amount;
}

/*
 * A list and its length; NULL when it is missing.  False when it is something
 * else, or longer than is accepted.
 */
static bool
read_list(const Json *payment, const char *key, const Json **list, int *length)
{
	*list = json_member(payment, key);
	*length = 0;
	if (*list != NULL && (*list)->kind == JSON_KIND_NULL)
		*list = NULL;
	if (*list == NULL)
		return true;
	if ((*list)->kind != JSON_KIND_ARRAY)
		return false;
	for (const Json *entry = (*list)->child; entry != NULL; entry = entry->next)
		(*length)++;
	return *length <= ENTRIES_MAX;
}

/* What is there twice would be counted twice.  Sorts the ids. */
static bool
are_distinct(const char **ids, int n)
{
	qsort(ids, n, sizeof(*ids), pg_qsort_strcmp);
	for (int i = 1; i < n; i++)
	{
		if (strcmp(ids[i - 1], ids[i]) == 0)
			return false;
	}
	return true;
}

static bool
read_refunds(const Json *payment, Outcome *outcome)
{
	const Json *list;
	const char **ids;
	int			length;
	int64		sum = 0;

	if (outcome->terms != NULL && !outcome->terms->names_refunds)
		return true;
	if (!read_list(payment, "refunds", &list, &length))
		return false;
	if (list == NULL)
		return true;
	outcome->refunds = palloc_array(ProviderRefund, length);
	ids = palloc_array(const char *, length);
	for (const Json *entry = list->child; entry != NULL; entry = entry->next)
	{
		ProviderRefund *refund = &outcome->refunds[outcome->n_refunds];

		if (!read_refund(entry, refund, outcome) || sum > TOTAL_MAX)
			return false;
		sum += refund->amount;
		ids[outcome->n_refunds++] = refund->id;
	}
	outcome->refunds_complete = true;
	return are_distinct(ids, length);
}

static bool
read_disputes(const Json *payment, Outcome *outcome)
{
	const Json *list;
	const char **ids;
	int			length;
	int64		sum = 0;

	if (!read_list(payment, "disputes", &list, &length))
		return false;
	if (list == NULL)
		return true;
	outcome->disputes = palloc_array(ProviderDispute, length);
	ids = palloc_array(const char *, length);
	for (const Json *entry = list->child; entry != NULL; entry = entry->next)
	{
		ProviderDispute *dispute = &outcome->disputes[outcome->n_disputes];

		if (!read_dispute(entry, dispute) || sum > TOTAL_MAX)
			return false;
		sum += dispute->amount;
		ids[outcome->n_disputes++] = dispute->id;
	}
	outcome->disputes_complete = true;
	return are_distinct(ids, length);
}

/*
 * The answer to a refund: only the one that was asked for.  Anything else, and
 * be it a fact, must not be taken for the result of our command.
 */
static void
read_made_refund(const Json *answer, const PaymentRow *payment, Outcome *outcome)
{
	const OperationRow *operation = payment->operation;
	ProviderRefund *refund = palloc_object(ProviderRefund);
	char		reference[UUID_TEXT_SIZE];
	const char *payment_id = NULL;
	JsonFound	found;

	Assert(operation != NULL && payment->provider_payment_id != NULL);
	if (!read_refund(answer, refund, outcome))
	{
		set_lost(outcome, "unusable answer");
		return;
	}
	found = json_get_string(answer, "payment", &payment_id);
	if (found == JSON_UNUSABLE ||
		(found == JSON_FOUND && strcmp(payment_id, payment->provider_payment_id) != 0) ||
		refund->reference == NULL ||
		strcmp(refund->reference, uuid_to_text(&operation->operation_id, reference)) != 0 ||
		refund->amount != operation->amount)
	{
		set_lost(outcome, "answer is about another refund");
		return;
	}
	outcome->kind = OUTCOME_TOLD;
	outcome->provider_payment_id = payment_id;
	outcome->refunds = refund;
	outcome->n_refunds = 1;
}

/* ---- payments ---- */

/* What does not decide over money: left out where it is of no use. */
static void
read_details(const Json *payment, Outcome *outcome)
{
	const char *text;

	if (json_get_string(payment, "redirect_url", &text) == JSON_FOUND && url_is_usable(text))
		outcome->redirect_url = text;
	if (json_get_string(payment, "expires_at", &text) == JSON_FOUND)
		(void) timestamp_from_wire(text, &outcome->provider_expires_at);
}

static SessionStage
pending_stage(const Json *payment, const char *status)
{
	static const struct
	{
		const char *word;
		SessionStage stage;
	}			stages[] = {
		{"form", STAGE_FORM},
		{"redirected", STAGE_RETURN},
		{"authentication", STAGE_AUTHENTICATION},
		{"processing", STAGE_BANK},
	};
	const char *word;

	if (json_get_string(payment, "stage", &word) == JSON_FOUND)
	{
		for (size_t i = 0; i < lengthof(stages); i++)
		{
			if (strcmp(stages[i].word, word) == 0)
				return stages[i].stage;
		}
	}
	return strcmp(status, "requires_action") == 0 ? STAGE_AUTHENTICATION : STAGE_FORM;
}

/* What the payment's status and decline code mean. */
static void
read_status(const Json *payment, const char *status, Outcome *outcome)
{
	const char *decline_code = json_get_message(payment, "decline_code", MESSAGE_MAX);

	if (decline_code != NULL && decline_code[0] == '\0')
		decline_code = NULL;

	if (strcmp(status, "pending") == 0 || strcmp(status, "requires_action") == 0)
	{
		outcome->kind = decline_code == NULL ? OUTCOME_PENDING : OUTCOME_ATTEMPT_DECLINED;
		outcome->stage = pending_stage(payment, status);
	}
	else if (strcmp(status, "authorized") == 0)
	{
		bool		taken_back = decline_code != NULL && strcmp(decline_code, "capture_failed") == 0;

		outcome->kind = taken_back ? OUTCOME_CAPTURE_FAILED : OUTCOME_AUTHORIZED;
	}
	else if (strcmp(status, "paid") == 0)
		outcome->kind = OUTCOME_PAID;
	else if (strcmp(status, "declined") == 0)
		outcome->kind = OUTCOME_DECLINED;
	else if (strcmp(status, "expired") == 0)
		outcome->kind = OUTCOME_EXPIRED;
	else if (strcmp(status, "canceled") == 0)
		outcome->kind = OUTCOME_CANCELED;
	else
	{
		outcome->kind = OUTCOME_PENDING;
		outcome->unknown_word = true;
	}

	if (outcome->kind == OUTCOME_DECLINED || outcome->kind == OUTCOME_ATTEMPT_DECLINED)
	{
		outcome->failure_code = failure_code(decline_code);
		outcome->failure_message = decline_code;
	}
	else if (outcome->kind == OUTCOME_CAPTURE_FAILED)
		outcome->failure_message = decline_code;
}

static void
read_payment(const Json *payment, const char *session_id, Outcome *outcome)
{
	const char *status = json_get_message(payment, "status", STATUS_MAX);

	if (status == NULL ||
		!read_id(payment, &outcome->provider_payment_id) ||
		!read_total(payment, "amount", &outcome->amount) ||
		!read_total(payment, "authorized", &outcome->authorized) ||
		!read_total(payment, "captured", &outcome->captured) ||
		!read_total(payment, "refunded", &outcome->refunded) ||
		!read_total(payment, "disputed", &outcome->disputed) ||
		!read_currency(payment, outcome->currency) ||
		!read_refunds(payment, outcome) ||
		!read_disputes(payment, outcome))
	{
		set_lost(outcome, "unusable answer");
		return;
	}
	if (outcome->amount < 0)
		outcome->amount = 0;
	outcome->foreign_reference = is_foreign(payment, session_id);
	outcome->provider_status = status;
	read_details(payment, outcome);
	read_status(payment, status, outcome);
}

/* The answer to a look-up: payments, of which one should be ours. */
static void
read_found(const Json *payments, const char *session_id, Outcome *outcome)
{
	if (payments->kind != JSON_KIND_ARRAY)
	{
		set_lost(outcome, "unusable answer");
		return;
	}
	for (const Json *payment = payments->child; payment != NULL; payment = payment->next)
	{
		const char *reference;

		if (json_get_string(payment, "reference", &reference) == JSON_FOUND &&
			strcmp(reference, session_id) == 0)
		{
			read_payment(payment, session_id, outcome);
			return;
		}
	}
	/* others' payments are the answer to another question */
	if (payments->child != NULL)
		set_lost(outcome, "answer has other payments only");
	else
		outcome->kind = OUTCOME_NOT_FOUND;
}

/* ---- errors ---- */

/* An error to a POST that says that the same one came before. */
static bool
is_about_repeat(const char *code)
{
	return strcmp(code, "key_in_use") == 0 || strcmp(code, "key_reused") == 0 ||
		strstr(code, "duplicate") != NULL;
}

/*
 * An error in the provider's own form: what it will not do, or does not have.
 */
static void
read_error(CallKind call, int status, const char *code, Outcome *outcome)
{
	outcome->error = psprintf("HTTP %d %s", status, code);
	if (call == CALL_FIND)
	{
		/*
		 * 501 where it cannot be looked up by reference: no answer to the
		 * question, which must not look like a proof.
		 */
		if (status != 404 && outcome->terms != NULL && outcome->terms->lookup == LOOKUP_EXACT)
			outcome->kind = OUTCOME_LOST;
		else
			outcome->kind = OUTCOME_NOT_FOUND;
	}
	else if (status == 404 && call != CALL_REGISTER)
		outcome->kind = OUTCOME_NOT_FOUND;
	else if (call == CALL_GET || is_about_repeat(code))
		outcome->kind = OUTCOME_LOST;
	else if (status == 402 && call == CALL_REGISTER)
	{
		outcome->kind = OUTCOME_DECLINED;
		outcome->failure_code = failure_code(code);
	}
	else
		outcome->kind = OUTCOME_REFUSED;
}

/* True for statuses with which the provider itself refuses a call. */
static bool
is_refusal(CallKind call, int status)
{
	switch (status)
	{
		case 400:
		case 402:
		case 404:
		case 405:
		case 409:
		case 410:
		case 422:
			return true;
		case 501:
			return call == CALL_FIND;
		default:
			return false;
	}
}

static void
read_success(CallKind call, const Json *body, const PaymentRow *payment, Outcome *outcome)
{
	char		session_id[UUID_TEXT_SIZE];

	uuid_to_text(&payment->session_id, session_id);
	if (call == CALL_FIND)
		read_found(body, session_id, outcome);
	else if (call == CALL_REFUND)
		read_made_refund(body, payment, outcome);
	else
		read_payment(body, session_id, outcome);
}

void
sandbox_parse(CallKind call, const PaymentRow *payment, const ProviderResponse *response,
			  Outcome *outcome)
{
	int			status = response->http_status;
	const Json *body;
	const Json *error;
	const char *code;

	outcome->http_status = status;
	outcome->retry_after = response->retry_after;
	clear_payment(outcome);

	if (status == 401 || status == 403)
	{
		outcome->kind = OUTCOME_UNAUTHORIZED;
		outcome->error = psprintf("HTTP %d", status);
		return;
	}
	if (status == 429)
	{
		outcome->kind = OUTCOME_THROTTLED;
		outcome->error = "HTTP 429";
		return;
	}
	if (status != 200 && status != 201 && !is_refusal(call, status))
	{
		set_lost(outcome, psprintf("HTTP %d", status));
		return;
	}
	body = response->truncated ? NULL : json_read(response->body, response->body_length);
	if (body == NULL)
	{
		set_lost(outcome, response->truncated ? "answer is too long" : "not readable JSON");
		return;
	}

	if (status == 200 || status == 201)
	{
		read_success(call, body, payment, outcome);
		return;
	}
	error = json_member(body, "error");
	if (error == NULL || error->kind != JSON_KIND_OBJECT)
	{
		set_lost(outcome, psprintf("HTTP %d, not the provider's answer", status));
		return;
	}
	code = json_get_message(error, "code", STATUS_MAX);
	read_error(call, status, code == NULL ? "" : code, outcome);
	if (outcome->kind == OUTCOME_REFUSED || outcome->kind == OUTCOME_DECLINED)
		outcome->failure_message = json_get_message(error, "message", MESSAGE_MAX);
}
