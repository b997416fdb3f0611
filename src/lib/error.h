/*-------------------------------------------------------------------------
 *
 * error.h
 *	  SQLSTATEs of payflow's own errors, which PostgREST turns into HTTP
 *	  statuses.  DETAIL is one stable word for programs.
 *
 *	  ereport(ERROR, payflow_error(ERRCODE_PAYFLOW_CONFLICT, "parameters_differ"),
 *			  errmsg("..."), errhint("..."));
 *
 * IDENTIFICATION
 *	  src/lib/error.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_ERROR_H
#define PAYFLOW_ERROR_H

#define ERRCODE_PAYFLOW_BAD_REQUEST		MAKE_SQLSTATE('P', 'T', '4', '0', '0')
#define ERRCODE_PAYFLOW_FORBIDDEN		MAKE_SQLSTATE('P', 'T', '4', '0', '3')
#define ERRCODE_PAYFLOW_NOT_FOUND		MAKE_SQLSTATE('P', 'T', '4', '0', '4')
#define ERRCODE_PAYFLOW_CONFLICT		MAKE_SQLSTATE('P', 'T', '4', '0', '9')
#define ERRCODE_PAYFLOW_KEY_REUSED		MAKE_SQLSTATE('P', 'T', '4', '2', '2')

/* two fields at once, so that no call can forget the word */
#define payflow_error(code, word)	(errcode(code), errdetail_internal("%s", (word)))

#endif							/* PAYFLOW_ERROR_H */
