/*-------------------------------------------------------------------------
 *
 * wish.c
 *	  What the calls share by which people move money: locking the payment,
 *	  and the wish that goes to the rules of src/session.
 *
 * IDENTIFICATION
 *	  src/api/wish.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "api/api.h"
#include "lib/compat.h"
#include "lib/uuid.h"
#include "provider/provider.h"
#include "session/session.h"

PaymentRow *
lock_payment(const pg_uuid_t *session_id)
{
	PaymentRow *payment = session_lock(session_id);

	if (payment == NULL)
		session_not_found(session_id);
	return payment;
}

void
wish_init(Outcome *wish, ProviderTerms *terms, OutcomeKind kind, const char *event, const PaymentRow *payment)
{
	const Provider *provider = provider_by_name(payment->provider);

	if (provider != NULL)
		*terms = provider->terms;	/* a copy: the cached one may go away while SQL runs */
	outcome_init(wish, payment, provider != NULL ? terms : NULL, "api");
	wish->kind = kind;
	wish->event = event;
}

void
new_operation_id(const PaymentRow *payment, pg_uuid_t *operation_id)
{
	uuid_v7(operation_id, routing_slot(payment->merchant, payment->order_id));
}
