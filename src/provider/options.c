/*-------------------------------------------------------------------------
 *
 * options.c
 *	  The options of foreign servers and user mappings.
 *
 *	  Checking an option and reading it is the same code: the validator reads
 *	  into a provider that it throws away.
 *
 * IDENTIFICATION
 *	  src/provider/options.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_foreign_server.h"
#include "catalog/pg_user_mapping.h"
#include "commands/defrem.h"
#include "common/string.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgtime.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"

#include "lib/compat.h"
#include "lib/wire.h"
#include "provider/options.h"

#define TEXT_MAX 255
#define SECRET_MAX 4096

/* longer ones would take sums of times out of range */
#define INTERVAL_MAX_YEARS 100

#define SECONDS_PER_HOUR 3600
#define SECONDS_PER_DAY (24 * SECONDS_PER_HOUR)

#define SERVER ForeignServerRelationId
#define MAPPING UserMappingRelationId
#define AT(field) offsetof(Provider, field)

static const ProviderOption common_options[] = {
	{"endpoint", SERVER, OPTION_URL, .place = AT(endpoint)},
	{"account", SERVER, OPTION_TEXT, .place = AT(account)},
	{"connect_timeout", SERVER, OPTION_DURATION, .place = AT(connect_timeout), .max = SECONDS_PER_HOUR},
	{"timeout", SERVER, OPTION_DURATION, .place = AT(timeout), .max = SECONDS_PER_HOUR},
	{"poll_intervals", SERVER, OPTION_POLL_INTERVALS, .place = AT(terms)},
	{"max_in_flight", SERVER, OPTION_INTEGER, .place = AT(max_in_flight), .min = 1, .max = 10000},
	{"max_rps", SERVER, OPTION_NUMBER, .place = AT(max_rps), .min = 0.001, .max = 1000000},
	{"breaker_failures", SERVER, OPTION_INTEGER, .place = AT(breaker_failures), .min = 1, .max = 1000000},
	{"breaker_pause", SERVER, OPTION_DURATION, .place = AT(breaker_pause), .max = SECONDS_PER_DAY},
	{"ca_file", SERVER, OPTION_PATH, .place = AT(ca_file)},
	{"key_validity", SERVER, OPTION_INTERVAL, .place = AT(terms.key_validity)},
	{"session_ttl", SERVER, OPTION_INTERVAL, .place = AT(terms.session_ttl)},
	{"form_timeout", SERVER, OPTION_INTERVAL, .place = AT(terms.form_timeout)},
	{"return_timeout", SERVER, OPTION_INTERVAL, .place = AT(terms.return_timeout)},
	{"authentication_timeout", SERVER, OPTION_INTERVAL, .place = AT(terms.authentication_timeout)},
	{"authorization_ttl", SERVER, OPTION_INTERVAL, .place = AT(terms.authorization_ttl)},
	{"timezone", SERVER, OPTION_ZONE, .place = OPTION_UNREAD},
	{"grace", SERVER, OPTION_INTERVAL, .place = AT(terms.grace)},
	{"api_key", MAPPING, OPTION_SECRET, .place = AT(api_key)},
	{"webhook_secret", MAPPING, OPTION_SECRETS, .place = OPTION_UNREAD},
	{.name = NULL}
};

static const ProviderOption *
find_option(const ProviderOption *own, Oid catalog, const char *name)
{
	const ProviderOption *const lists[] = {common_options, own};

	for (size_t i = 0; i < lengthof(lists); i++)
	{
		for (const ProviderOption *option = lists[i]; option->name != NULL; option++)
		{
			if (option->catalog == catalog && strcmp(option->name, name) == 0)
				return option;
		}
	}
	return NULL;
}

/* The names of the options that an object of the catalog may have. */
static char *
option_names(const ProviderOption *own, Oid catalog)
{
	const ProviderOption *const lists[] = {common_options, own};
	StringInfoData names;

	initStringInfo(&names);
	for (size_t i = 0; i < lengthof(lists); i++)
	{
		for (const ProviderOption *option = lists[i]; option->name != NULL; option++)
		{
			if (option->catalog == catalog)
				appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "", option->name);
		}
	}
	return names.data;
}

/*
 * The readers return NULL, or what is wrong, as a sentence for a hint.
 */

static const char *
read_url(const char *value, char **result)
{
	size_t		length = strlen(value);

	if (!url_is_usable(value) || strpbrk(value, "?#") != NULL || !pg_is_ascii(value))
		return "It must be an http or https URL with a host, in ASCII, without user name, query and fragment.";
	while (value[length - 1] == '/')
		length--;
	*result = pnstrdup(value, length);
	return NULL;
}

static const char *
read_text(const char *value, char **result)
{
	for (const char *at = value; *at != '\0'; at++)
	{
		if ((unsigned char) *at < ' ' || *at == 0x7f)
			return "It must not contain control characters.";
	}
	if (*value == '\0' || strlen(value) > TEXT_MAX)
		return psprintf("It must have 1 to %d bytes.", TEXT_MAX);
	*result = pstrdup(value);
	return NULL;
}

/* A secret goes into a header, where a line break would begin another one. */
static const char *
read_secret(const char *value, char **result)
{
	for (const char *at = value; *at != '\0'; at++)
	{
		if (*at <= ' ' || *at >= 0x7f)
			return "It must consist of visible ASCII characters.";
	}
	if (*value == '\0' || strlen(value) > SECRET_MAX)
		return psprintf("It must have 1 to %d characters.", SECRET_MAX);
	*result = pstrdup(value);
	return NULL;
}

static const char *
read_secrets(const char *value, char **result)
{
	char	   *secrets = pstrdup(value);
	int			n = 0;

	for (char *secret = strtok(secrets, ", "); secret != NULL; secret = strtok(NULL, ", "))
	{
		char	   *ignored;
		const char *complaint = read_secret(secret, &ignored);

		if (complaint != NULL)
			return complaint;
		/* as senders write it into the header of a signature */
		if (strcmp(secret, "v1") == 0)
			return "Leave \"v1,\" out: a secret begins after it, with \"whsec_\".";
		n++;
	}
	if (n == 0)
		return "It must be one secret, or several separated by spaces or commas.";
	*result = pstrdup(value);
	return NULL;
}

static const char *
read_path(const char *value, char **result)
{
	if (!is_absolute_path(value))
		return "It must be an absolute path.";
	*result = pstrdup(value);
	return NULL;
}

static const char *
read_zone(const char *value, char **result)
{
	pg_tz	   *zone = pg_tzset(value);

	if (zone == NULL || !pg_tz_acceptable(zone))
		return "It must be the name of a time zone, such as Europe/Berlin.";
	*result = pstrdup(value);
	return NULL;
}

static const char *
read_integer(const ProviderOption *option, const char *value, int *result)
{
	int			number;

	if (!parse_int(value, &number, 0, NULL) || number < option->min || number > option->max)
		return psprintf("It must be a whole number from %.0f to %.0f.", option->min, option->max);
	*result = number;
	return NULL;
}

static const char *
read_number(const ProviderOption *option, const char *value, double *result)
{
	double		number;

	if (!parse_real(value, &number, 0, NULL) || !(number >= option->min && number <= option->max))
		return psprintf("It must be a number from %g to %.0f.", option->min, option->max);
	*result = number;
	return NULL;
}

/*
 * False when it is no interval.  Up to version 15 the server's parser can say
 * so only by raising an error; it has no effects that would have to be undone.
 */
static bool
parse_interval(const char *value, Interval *result)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool valid = true;

	PG_TRY();
	{
		Datum		interval = DirectFunctionCall3(interval_in, CStringGetDatum(value),
												   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));

		*result = *DatumGetIntervalP(interval);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		FreeErrorData(error);
		FlushErrorState();
		valid = false;
	}
	PG_END_TRY();
	return valid;
}

static const char *
read_interval(const char *value, Interval *result)
{
	Interval	interval;

	if (!parse_interval(value, &interval))
		return "It must be an interval, such as '30 seconds', '24 hours' or '1 month'.";
	/* month by month and day by day, as they have no fixed lengths */
	if (interval.month < 0 || interval.day < 0 || interval.time < 0 ||
		(interval.month == 0 && interval.day == 0 && interval.time == 0))
		return "It must be a positive interval.";
	if (interval.month > INTERVAL_MAX_YEARS * MONTHS_PER_YEAR ||
		interval.day > INTERVAL_MAX_YEARS * 366 ||
		interval.time > INTERVAL_MAX_YEARS * 366 * USECS_PER_DAY)
		return psprintf("It must not be longer than %d years.", INTERVAL_MAX_YEARS);
	*result = interval;
	return NULL;
}

static const char *
read_duration(const ProviderOption *option, const char *value, int64 *result)
{
	Interval	interval;
	const char *complaint = read_interval(value, &interval);
	int64		duration;

	if (complaint != NULL)
		return complaint;
	duration = ((int64) interval.month * DAYS_PER_MONTH + interval.day) * USECS_PER_DAY + interval.time;
	if (duration > option->max * USECS_PER_SEC)
		return psprintf("It must not be longer than %.0f seconds.", option->max);
	*result = duration;
	return NULL;
}

static const char *
read_poll_intervals(const char *value, ProviderTerms *terms)
{
	Interval	intervals[MAX_POLL_INTERVALS];
	int			n = 0;
	char	   *next = pstrdup(value);

	while (next != NULL)
	{
		char	   *item = strsep(&next, ",");
		const char *complaint;

		if (n == MAX_POLL_INTERVALS)
			return psprintf("It must not have more than %d intervals.", MAX_POLL_INTERVALS);
		complaint = read_interval(item, &intervals[n++]);
		if (complaint != NULL)
			return "It must be a list of positive intervals, such as '10 seconds, 1 minute'.";
	}
	memcpy(terms->poll_intervals, intervals, sizeof(Interval) * n);
	terms->n_poll_intervals = n;
	return NULL;
}

static const char *
read_choice(const ProviderOption *option, const char *value, int *result)
{
	StringInfoData words;

	initStringInfo(&words);
	for (const OptionChoice *choice = option->choices; choice->word != NULL; choice++)
	{
		if (pg_strcasecmp(choice->word, value) == 0)
		{
			*result = choice->value;
			return NULL;
		}
		appendStringInfo(&words, "%s%s", words.len > 0 ? ", " : "", choice->word);
	}
	return psprintf("It must be one of: %s.", words.data);
}

static const char *
read_flag(const char *value, bool *result)
{
	bool		yes = pg_strcasecmp(value, "yes") == 0;

	if (!yes && pg_strcasecmp(value, "no") != 0)
		return "It must be one of: yes, no.";
	*result = yes;
	return NULL;
}

static const char *
read_option(const ProviderOption *option, const char *value, Provider *provider)
{
	char	   *unread;
	void	   *place = option->place == OPTION_UNREAD ? (void *) &unread : (char *) provider + option->place;

	switch (option->type)
	{
		case OPTION_URL:
			return read_url(value, place);
		case OPTION_TEXT:
			return read_text(value, place);
		case OPTION_SECRET:
			return read_secret(value, place);
		case OPTION_SECRETS:
			return read_secrets(value, place);
		case OPTION_PATH:
			return read_path(value, place);
		case OPTION_ZONE:
			return read_zone(value, place);
		case OPTION_INTEGER:
			return read_integer(option, value, place);
		case OPTION_NUMBER:
			return read_number(option, value, place);
		case OPTION_DURATION:
			return read_duration(option, value, place);
		case OPTION_INTERVAL:
			return read_interval(value, place);
		case OPTION_POLL_INTERVALS:
			return read_poll_intervals(value, place);
		case OPTION_CHOICE:
			return read_choice(option, value, place);
		case OPTION_FLAG:
			return read_flag(value, place);
	}
	pg_unreachable();
}

/* What only a superuser may make the server do. */
static void
check_privilege(const ProviderOption *option, const char *value)
{
	if (superuser())
		return;
	if (option->type == OPTION_PATH)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to set option \"%s\"", option->name),
				 errdetail("Only superusers may name a file of the server.")));
	if (option->type == OPTION_URL && pg_strncasecmp(value, "https:", 6) != 0 &&
		!url_is_loopback(value))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to set option \"%s\" to an http URL", option->name),
				 errdetail("Only superusers may have secrets sent to other hosts without encryption."),
				 errhint("Use https.")));
}

static void
check_value(const ProviderOption *option, const char *value)
{
	Provider	scratch;
	const char *complaint = read_option(option, value, &scratch);

	if (complaint == NULL)
		return;
	/* a secret is not to be shown; a URL may have one before its host */
	if (option->type == OPTION_SECRET || option->type == OPTION_SECRETS || option->type == OPTION_URL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\"", option->name),
				 errhint("%s", complaint)));
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for option \"%s\": \"%s\"", option->name, value),
			 errhint("%s", complaint)));
}

void
check_options(List *options, Oid catalog, const ProviderOption *own)
{
	ListCell   *cell;
	bool		has_endpoint = false;

	foreach(cell, options)
	{
		DefElem    *def = lfirst(cell);
		const ProviderOption *option = find_option(own, catalog, def->defname);

		if (option == NULL)
		{
			const char *names = option_names(own, catalog);

			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					 errmsg("invalid option \"%s\"", def->defname),
					 names[0] == '\0' ?
					 errhint("There are no valid options in this context.") :
					 errhint("Valid options in this context are: %s.", names)));
		}
		check_value(option, defGetString(def));
		check_privilege(option, defGetString(def));
		if (option->type == OPTION_URL)
			has_endpoint = true;
	}
	if (catalog == SERVER && !has_endpoint)
		ereport(ERROR,
				(errcode(ERRCODE_FDW_DYNAMIC_PARAMETER_VALUE_NEEDED),
				 errmsg("option \"endpoint\" is required"),
				 errhint("It is the provider's address, such as https://api.example.com.")));
}

void
read_options(List *options, Oid catalog, Provider *provider)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *def = lfirst(cell);
		const ProviderOption *option = find_option(provider->driver->options, catalog, def->defname);

		/* in a catalog that somebody has written to, even the value may be missing */
		if (option == NULL || def->arg == NULL || read_option(option, defGetString(def), provider) != NULL)
			ereport(LOG,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("ignored option \"%s\" of payment provider \"%s\"",
							def->defname, provider->name)));
	}
}
