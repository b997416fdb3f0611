/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  The server settings of payflow.
 *
 * IDENTIFICATION
 *	  src/lib/settings.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_SETTINGS_H
#define PAYFLOW_SETTINGS_H

#include "nodes/pg_list.h"

#include "lib/vocabulary.h"

typedef enum JournalMode
{
	JOURNAL_ALL,				/* every attempt */
	JOURNAL_FAILURES,			/* only attempts that failed */
} JournalMode;

extern char *setting_databases; /* comma-separated list, may be empty */
extern int	setting_workers;	/* workers a database */
extern char *setting_queues;	/* comma-separated list, may be empty */
extern int	setting_max_in_flight[QUEUE_COUNT];
extern int	setting_lease;		/* seconds */
extern int	setting_poll_interval;	/* milliseconds */
extern int	setting_journal;	/* JournalMode */
extern bool setting_notify;
extern int	setting_unresolved_alert_after; /* seconds */
extern char *setting_ca_file;	/* may be empty */
extern int	setting_key_retention;	/* seconds */
extern int	setting_journal_retention;	/* seconds */
extern char *setting_ops_webhook_url;	/* may be empty */
extern bool setting_allow_private_notify_addresses;
extern bool setting_allow_drop;

/*
 * Defines all settings.  Called once from _PG_init.
 */
extern void define_settings(void);

/*
 * True when this instance works the queue, by payflow.queues.
 */
extern bool queue_is_worked(Queue queue);

/*
 * The databases of payflow.databases, each once: List of char *, in the current
 * memory context.  Names are taken as written; odd ones are double-quoted.
 */
extern List *listed_databases(void);

#endif							/* PAYFLOW_SETTINGS_H */
