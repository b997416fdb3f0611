/*-------------------------------------------------------------------------
 *
 * payer.c
 *	  payer_redirected(): the application sends the payer to the payment page.
 *
 * IDENTIFICATION
 *	  src/api/payer.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "api/api.h"
#include "api/args.h"
#include "provider/provider.h"
#include "session/session.h"

PG_FUNCTION_INFO_V1(payflow_payer_redirected);

Datum
payflow_payer_redirected(PG_FUNCTION_ARGS)
{
	const pg_uuid_t *session_id;
	ApiCall		call;
	PaymentRow *row;
	const Provider *provider;
	ProviderTerms terms;
	bool		replayed;
	Datum		result;

	require_loaded();
	session_id = arg_session_id(fcinfo, 0);
	PreventCommandIfReadOnly("payflow.payer_redirected()");

	api_enter(&call);
	row = read_payment(session_id);
	replayed = row->redirected_at != 0;
	provider = provider_by_name(row->provider);
	if (provider != NULL)
		terms = provider->terms;	/* a copy: the cached one may go away while SQL runs */
	api_pin_search_path(&call);
	if (!session_payer_redirected(session_id, provider != NULL ? &terms : NULL))
		session_not_found(session_id);
	api_unpin_search_path(&call);
	row = read_payment(session_id);
	result = payment_datum(fcinfo, &call, row, replayed, http_status_of(row));
	api_leave(&call);
	return result;
}
