/*-------------------------------------------------------------------------
 *
 * claim.h
 *	  What create() is asked for, and how an order is claimed for it.
 *
 * IDENTIFICATION
 *	  src/api/claim.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_CLAIM_H
#define PAYFLOW_CLAIM_H

#include "lib/payment_row.h"

/* what the caller wants */
typedef struct Wish
{
	char	   *order_id;
	int64		amount;
	char	   *currency;
	char	   *provider;		/* NULL: the merchant's default, or any that runs */
	char	   *merchant;
	bool		manual_capture;
	char	   *return_url;
	char	   *description;
	Datum		customer;		/* JSON objects, 0 for null */
	Datum		metadata;
	Datum		receipt;
} Wish;

/*
 * A literal list: the planner must see that it is that of the partial index
 * ux_payment_active_order.
 */
#define IS_LIVE(prefix) \
	prefix "status::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY[" \
	"'registering', 'registered', 'unknown', 'authorized', 'canceling']::pg_catalog.text[])"

/*
 * Makes the session of an order.  NULL when there is nothing to claim: the
 * order is known; or, where its row is locked, it has a live session.
 */
extern PaymentRow *claim_new_order(const Wish *wish, const char *provider);
extern PaymentRow *claim_known_order(const Wish *wish, const char *provider);

#endif							/* PAYFLOW_CLAIM_H */
