/*-------------------------------------------------------------------------
 *
 * options.h
 *	  The options of foreign servers and user mappings: one table says what
 *	  they are called and take, for the drivers' validators and for reading
 *	  them into a Provider.
 *
 * IDENTIFICATION
 *	  src/provider/options.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_OPTIONS_H
#define PAYFLOW_OPTIONS_H

#include "provider/provider.h"

typedef enum OptionType
{
	OPTION_URL,					/* char *: of http or https, without a query */
	OPTION_TEXT,				/* char * */
	OPTION_SECRET,				/* char *: fit for a header */
	OPTION_SECRETS,				/* char *: several for the time of a change */
	OPTION_PATH,				/* char *: absolute, set by superusers only */
	OPTION_ZONE,				/* char *: a time zone */
	OPTION_INTEGER,				/* int: min .. max */
	OPTION_NUMBER,				/* double: min .. max */
	OPTION_DURATION,			/* int64: microseconds, at most max seconds */
	OPTION_INTERVAL,			/* Interval */
	OPTION_POLL_INTERVALS,		/* of ProviderTerms */
	OPTION_CHOICE,				/* an enum: one of the choices */
	OPTION_FLAG,				/* bool: yes or no */
} OptionType;

typedef struct OptionChoice
{
	const char *word;			/* NULL ends a list */
	int			value;
} OptionChoice;

/* an option that is checked and that nothing reads yet */
#define OPTION_UNREAD (-1)

struct ProviderOption
{
	const char *name;			/* NULL ends a list */
	Oid			catalog;		/* ForeignServerRelationId or UserMappingRelationId */
	OptionType	type;
	int			place;			/* offset in Provider */
	double		min;
	double		max;
	const OptionChoice *choices;
};

/*
 * The work of a driver's validator: raises an error unless the options are
 * those of an object of that catalog, beside the common ones the driver's own.
 */
extern void check_options(List *options, Oid catalog, const ProviderOption *own);

/*
 * Reads options of a catalog into a provider that has the defaults already,
 * allocating in the current memory context.  What the validator would refuse,
 * as it may have been another one then, is logged and leaves the default.
 */
extern void read_options(List *options, Oid catalog, Provider *provider);

#endif							/* PAYFLOW_OPTIONS_H */
