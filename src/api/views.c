/*-------------------------------------------------------------------------
 *
 * views.c
 *	  The functions behind the views workers and provider_stats.
 *
 * IDENTIFICATION
 *	  src/api/views.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "api/api.h"
#include "lib/compat.h"
#include "provider/provider.h"
#include "shared/shared.h"

PG_FUNCTION_INFO_V1(payflow_worker_rows);
PG_FUNCTION_INFO_V1(payflow_provider_stat_rows);

static const char *
state_name(WorkerState state)
{
	switch (state)
	{
		case WORKER_STARTING:
			return "starting";
		case WORKER_IDLE:
			return "idle";
		case WORKER_WORKING:
			return "working";
		case WORKER_PAUSED:
			return "paused";
		case WORKER_NO_EXTENSION:
			return "no extension";
		case WORKER_FREE:
		case WORKER_ENDED:
			break;
	}
	return "ended";
}

/*
 * The workers of this server that run, one row each.
 */
Datum
payflow_worker_rows(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	WorkerInfo	infos[MAX_WORKERS];
	int			n;

	require_loaded();
	InitMaterializedSet(fcinfo);
	n = worker_slots_read(infos);
	for (int i = 0; i < n; i++)
	{
		const WorkerInfo *info = &infos[i];
		Datum		values[12];
		bool		nulls[12] = {false};
		int			in_flight = 0;

		if (info->pid == 0)
			continue;			/* not yet or no longer a process */
		for (int queue = 0; queue < QUEUE_COUNT; queue++)
			in_flight += info->in_flight[queue];
		values[0] = Int32GetDatum(info->pid);
		values[1] = CStringGetTextDatum(NameStr(info->datname));
		values[2] = CStringGetTextDatum(info->queues);
		values[3] = Int32GetDatum(in_flight);
		values[4] = Int32GetDatum(info->in_flight[QUEUE_PAYMENTS]);
		values[5] = Int32GetDatum(info->in_flight[QUEUE_STATUS]);
		values[6] = Int32GetDatum(info->in_flight[QUEUE_MONEY]);
		values[7] = Int32GetDatum(info->in_flight[QUEUE_NOTIFICATIONS]);
		values[8] = CStringGetTextDatum(state_name(info->state));
		values[9] = Int64GetDatum(info->calls);
		values[10] = TimestampTzGetDatum(info->started_at);
		values[11] = TimestampTzGetDatum(info->last_loop);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}

static Datum
interval_datum(int64 microseconds)
{
	Interval   *interval = palloc0_object(Interval);

	interval->time = microseconds;
	return IntervalPGetDatum(interval);
}

static const char *
breaker_name(const ProviderFigures *figures)
{
	if (figures->trial)
		return "trial";
	return figures->open ? "open" : "closed";
}

static void
fill_provider_row(const Provider *provider, const ProviderFigures *figures, Datum *values, bool *nulls)
{
	values[0] = CStringGetTextDatum(provider->name);
	values[1] = CStringGetTextDatum(provider->driver->wrapper);
	values[2] = Int32GetDatum(figures->in_flight);
	values[3] = Int64GetDatum(figures->calls);
	values[4] = Int64GetDatum(figures->errors);
	values[5] = interval_datum(figures->latency_p50);
	values[6] = interval_datum(figures->latency_p95);
	values[7] = interval_datum(figures->latency_p99);
	nulls[5] = nulls[6] = nulls[7] = figures->latency_p50 < 0;
	values[8] = CStringGetTextDatum(breaker_name(figures));
	values[9] = Int32GetDatum(figures->consecutive_failures);
	values[10] = TimestampTzGetDatum(figures->blocked_until);
	nulls[10] = figures->blocked_until <= GetCurrentTimestamp();
	values[11] = CStringGetTextDatum(figures->last_error);
	nulls[11] = figures->last_error[0] == '\0';
	values[12] = TimestampTzGetDatum(figures->last_error_at);
	nulls[12] = figures->last_error_at == 0;
}

/*
 * All providers of this database, one row each, with zeros for one that was
 * never called.
 */
Datum
payflow_provider_stat_rows(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *cell;

	require_loaded();
	InitMaterializedSet(fcinfo);
	foreach(cell, all_providers())
	{
		const Provider *provider = lfirst(cell);
		ProviderFigures figures = {.latency_p50 = -1};
		Datum		values[13];
		bool		nulls[13] = {false};

		(void) limits_read(provider->serverid, &figures);
		fill_provider_row(provider, &figures, values, nulls);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
