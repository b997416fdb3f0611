/*-------------------------------------------------------------------------
 *
 * provider.h
 *	  Drivers and providers.
 *
 *	  A driver turns (call, payment, options) into an HTTP request and an HTTP
 *	  response into an outcome.  It is pure: no I/O, no SPI, no state.  A
 *	  provider is a foreign server of the driver's wrapper: its options, its
 *	  secrets, read through the catalog's caches.
 *
 * IDENTIFICATION
 *	  src/provider/provider.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_PROVIDER_H
#define PAYFLOW_PROVIDER_H

#include "nodes/pg_list.h"

#include "lib/outcome.h"
#include "lib/payment_row.h"

typedef struct Driver Driver;
typedef struct ProviderOption ProviderOption;	/* options.h */

/*
 * One provider as its options say now.  Lives in a cache of the backend; valid
 * until the next call that can process invalidations, so copy what outlives
 * the transaction (provider_copy()).
 */
typedef struct Provider
{
	Oid			serverid;
	char	   *name;
	const Driver *driver;
	char	   *endpoint;		/* without a trailing slash */
	char	   *account;		/* NULL: not set */
	char	   *api_key;		/* NULL: no mapping, or the mapping has none */
	char	   *ca_file;		/* NULL: the setting payflow.ca_file, else the system's */
	int64		connect_timeout;	/* microseconds */
	int64		timeout;		/* microseconds */
	int			max_in_flight;
	double		max_rps;		/* 0: no limit */
	int			breaker_failures;
	int64		breaker_pause;	/* microseconds */
	ProviderTerms terms;
} Provider;

typedef struct ProviderRequest
{
	const char *method;			/* GET, POST */
	char	   *url;			/* endpoint and path and query */
	List	   *headers;		/* of char *, "Name: value" */
	char	   *body;			/* NULL: none */
	size_t		body_length;
	bool		mutating;		/* must not be sent twice within one attempt */
} ProviderRequest;

typedef struct ProviderResponse
{
	int			http_status;
	const char *body;			/* bytes, not terminated, encoding not verified */
	size_t		body_length;
	bool		truncated;		/* longer than is accepted */
	int64		retry_after;	/* microseconds; -1: not told */
} ProviderResponse;

struct Driver
{
	const char *wrapper;		/* name of the foreign-data wrapper */
	const ProviderOption *options;	/* its own ones, beside the common ones */
	ProviderTerms default_terms;
	bool		(*supports_currency) (const char *currency);

	/*
	 * Builds the request.  The endpoint is the payment's frozen one, so are
	 * all inputs of the body: the same call of the same payment gives the same
	 * bytes, whatever options have changed since.
	 */
	void		(*build) (CallKind call, const PaymentRow *payment, const Provider *provider,
						  ProviderRequest *request);

	/*
	 * Reads a complete HTTP response.  Fills kind and what the provider says
	 * of an outcome whose other fields the caller has set.  Never raises an
	 * error for what the provider sent.
	 */
	void		(*parse) (CallKind call, const PaymentRow *payment, const ProviderResponse *response,
						  Outcome *outcome);
};

/* The driver of a foreign-data wrapper, by its name; NULL when it is none of ours. */
extern const Driver *driver_by_wrapper(const char *wrapper);

/*
 * The provider of that name, or NULL when there is no such foreign server or
 * its wrapper is not payflow's.  Needs a transaction.  Raises no error for bad
 * options: the validator refused them.
 */
extern const Provider *provider_by_name(const char *name);
extern const Provider *provider_by_oid(Oid serverid);

/* All providers of this database.  Needs a transaction.  List of const Provider *. */
extern List *all_providers(void);

/* Whether nothing has changed since the last look-up, as far as is known by now. */
extern bool providers_are_current(void);

/* A copy in the current memory context that shares nothing with the cache. */
extern Provider *provider_copy(const Provider *provider);

/* Registers the caches' invalidation callbacks; once a process, from _PG_init. */
extern void provider_cache_init(void);

extern const Driver sandbox_driver;

#endif							/* PAYFLOW_PROVIDER_H */
