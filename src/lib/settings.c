/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The server settings of payflow.
 *
 * IDENTIFICATION
 *	  src/lib/settings.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"
#include "utils/varlena.h"

#include "lib/compat.h"
#include "lib/settings.h"
#include "lib/wire.h"

#define SECONDS_PER_HOUR 3600
#define SECONDS_PER_DAY (24 * SECONDS_PER_HOUR)

char	   *setting_databases;
int			setting_workers;
char	   *setting_queues;
int			setting_max_in_flight[QUEUE_COUNT];
int			setting_lease;
int			setting_poll_interval;
int			setting_journal;
bool		setting_notify;
int			setting_unresolved_alert_after;
char	   *setting_ca_file;
int			setting_key_retention;
int			setting_journal_retention;
char	   *setting_ops_webhook_url;
bool		setting_allow_private_notify_addresses;
bool		setting_allow_drop;

/* payflow.queues as bits (1 << Queue) */
static int	queues_worked;

static const struct config_enum_entry journal_modes[] = {
	{"all", JOURNAL_ALL, false},
	{"failures", JOURNAL_FAILURES, false},
	{NULL, 0, false}
};

static const struct
{
	const char *name;
	const char *summary;
}			max_in_flight_settings[QUEUE_COUNT] = {
	[QUEUE_PAYMENTS] = {"payflow.max_in_flight_payments",
	"Sets how many registrations one worker has in flight at most."},
	[QUEUE_STATUS] = {"payflow.max_in_flight_status",
	"Sets how many questions about payments one worker has in flight at most."},
	[QUEUE_MONEY] = {"payflow.max_in_flight_money",
	"Sets how many calls that move money one worker has in flight at most."},
	[QUEUE_NOTIFICATIONS] = {"payflow.max_in_flight_notifications",
	"Sets how many notifications one worker has in flight at most."},
};

static bool
check_databases(char **newval, void **extra pg_attribute_unused(),
				GucSource source pg_attribute_unused())
{
	char	   *value = pstrdup(*newval);
	List	   *names;
	ListCell   *cell;
	bool		valid = true;

	if (!SplitGUCList(value, ',', &names))
	{
		GUC_check_errdetail("List syntax is invalid.");
		valid = false;
	}
	foreach(cell, names)
	{
		const char *name = lfirst(cell);

		if (valid && (name[0] == '\0' || strlen(name) >= NAMEDATALEN))
		{
			GUC_check_errdetail("\"%s\" cannot be the name of a database.", name);
			valid = false;
		}
	}
	list_free(names);
	pfree(value);
	return valid;
}

List *
listed_databases(void)
{
	List	   *names;
	List	   *distinct = NIL;
	ListCell   *cell;

	if (!SplitGUCList(pstrdup(setting_databases), ',', &names))
		return NIL;
	foreach(cell, names)
	{
		ListCell   *other;

		foreach(other, distinct)
		{
			if (strcmp(lfirst(other), lfirst(cell)) == 0)
				break;
		}
		if (other == NULL)
			distinct = lappend(distinct, lfirst(cell));
	}
	return distinct;
}

/*
 * Reads a list of queue names into bits.  Allocates nothing, as an assign hook
 * must not fail.  Returns NULL, or where the list goes wrong.
 */
static const char *
read_queues(const char *list, int *queues)
{
	const char *at = list;

	*queues = 0;
	at += strspn(at, " \t\n\r");
	while (*at != '\0')
	{
		size_t		length = strcspn(at, ", \t\n\r");
		int			queue;

		for (queue = 0; queue < QUEUE_COUNT; queue++)
		{
			if (strlen(queue_name(queue)) == length && pg_strncasecmp(queue_name(queue), at, length) == 0)
				break;
		}
		if (queue == QUEUE_COUNT)
			return at;
		*queues |= 1 << queue;

		at += length;
		at += strspn(at, " \t\n\r");
		if (*at == '\0')
			break;
		if (*at != ',')
			return at;
		at++;
		at += strspn(at, " \t\n\r");
		if (*at == '\0')
			return at;
	}
	return NULL;
}

static bool
check_queues(char **newval, void **extra pg_attribute_unused(),
			 GucSource source pg_attribute_unused())
{
	int			queues;
	const char *wrong = read_queues(*newval, &queues);

	if (wrong == NULL)
		return true;
	if (*wrong == '\0')
		GUC_check_errdetail("List syntax is invalid.");
	else
		GUC_check_errdetail("No queue at \"%s\".", wrong);
	GUC_check_errhint("Valid queues are \"payments\", \"status\", \"money\" and \"notifications\", separated by commas.");
	return false;
}

static void
assign_queues(const char *newval, void *extra pg_attribute_unused())
{
	read_queues(newval, &queues_worked);
}

bool
queue_is_worked(Queue queue)
{
	return (queues_worked & (1 << queue)) != 0;
}

static bool
check_ca_file(char **newval, void **extra pg_attribute_unused(),
			  GucSource source pg_attribute_unused())
{
	if ((*newval)[0] == '\0' || is_absolute_path(*newval))
		return true;
	GUC_check_errdetail("The path must be absolute.");
	return false;
}

static bool
check_url(char **newval, void **extra pg_attribute_unused(),
		  GucSource source pg_attribute_unused())
{
	if ((*newval)[0] == '\0' || url_is_usable(*newval))
		return true;
	GUC_check_errdetail("The URL must be an absolute http or https one, of at most %d bytes and without a user name.",
						URL_MAX);
	return false;
}

/* who works what, and how much of it at once */
static void
define_worker_settings(void)
{
	DefineCustomStringVariable("payflow.databases",
							   "Lists the databases in which payflow's workers run.",
							   NULL,
							   &setting_databases,
							   "",
							   PGC_SIGHUP, GUC_LIST_INPUT,
							   check_databases, NULL, NULL);
	DefineCustomIntVariable("payflow.workers",
							"Sets the number of workers in each listed database.",
							NULL,
							&setting_workers,
							1, 0, 64,
							PGC_SIGHUP, 0,
							NULL, NULL, NULL);
	DefineCustomStringVariable("payflow.queues",
							   "Lists the queues that this server's workers work.",
							   "An empty list makes them work none.",
							   &setting_queues,
							   "payments,status,money,notifications",
							   PGC_SIGHUP, GUC_LIST_INPUT,
							   check_queues, assign_queues, NULL);
	for (int queue = 0; queue < QUEUE_COUNT; queue++)
		DefineCustomIntVariable(max_in_flight_settings[queue].name,
								max_in_flight_settings[queue].summary,
								NULL,
								&setting_max_in_flight[queue],
								500, 1, 10000,
								PGC_SIGHUP, 0,
								NULL, NULL, NULL);
	DefineCustomIntVariable("payflow.lease",
							"Sets how long a worker has a payment for itself after taking it.",
							"A call that may take longer than that has a longer lease.",
							&setting_lease,
							60, 1, SECONDS_PER_HOUR,
							PGC_SIGHUP, GUC_UNIT_S,
							NULL, NULL, NULL);
	DefineCustomIntVariable("payflow.poll_interval",
							"Sets how often workers look for due work that nobody has told them of.",
							NULL,
							&setting_poll_interval,
							5000, 10, SECONDS_PER_HOUR * 1000,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomStringVariable("payflow.ca_file",
							   "Location of the certificate authorities for connections to providers.",
							   "Empty means the system's.",
							   &setting_ca_file,
							   "",
							   PGC_SIGHUP, 0,
							   check_ca_file, NULL, NULL);
}

/* what is kept, and who is told */
static void
define_record_settings(void)
{
	DefineCustomEnumVariable("payflow.journal",
							 "Sets which attempts are written to the journal.",
							 NULL,
							 &setting_journal,
							 JOURNAL_ALL, journal_modes,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("payflow.notify",
							 "Makes workers send NOTIFY on the channel \"payflow\" when a payment's status changes.",
							 NULL,
							 &setting_notify,
							 false,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
	DefineCustomIntVariable("payflow.key_retention",
							"Sets how long idempotency keys are kept.",
							NULL,
							&setting_key_retention,
							7 * SECONDS_PER_DAY, SECONDS_PER_HOUR, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_S,
							NULL, NULL, NULL);
	DefineCustomIntVariable("payflow.journal_retention",
							"Sets how long the journal is kept.",
							NULL,
							&setting_journal_retention,
							90 * SECONDS_PER_DAY, SECONDS_PER_HOUR, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_S,
							NULL, NULL, NULL);
	DefineCustomIntVariable("payflow.unresolved_alert_after",
							"Sets after what time an alert is raised for a payment whose state cannot be learned.",
							NULL,
							&setting_unresolved_alert_after,
							SECONDS_PER_HOUR, 1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_S,
							NULL, NULL, NULL);
	/* such URLs often contain a secret */
	DefineCustomStringVariable("payflow.ops_webhook_url",
							   "Sets the URL to which alerts are posted.",
							   "Empty means that they are not.",
							   &setting_ops_webhook_url,
							   "",
							   PGC_SIGHUP, GUC_SUPERUSER_ONLY,
							   check_url, NULL, NULL);
	DefineCustomBoolVariable("payflow.allow_private_notify_addresses",
							 "Lets notifications go to loopback, private and link-local addresses.",
							 NULL,
							 &setting_allow_private_notify_addresses,
							 false,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("payflow.allow_drop",
							 "Lets the extension be dropped together with its history of money.",
							 NULL,
							 &setting_allow_drop,
							 false,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);
}

void
define_settings(void)
{
	define_worker_settings();
	define_record_settings();
	MarkGUCPrefixReserved("payflow");
}
