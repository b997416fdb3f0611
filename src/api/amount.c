/*-------------------------------------------------------------------------
 *
 * amount.c
 *	  format_amount() and parse_amount(): minor units to and from text.
 *
 * IDENTIFICATION
 *	  src/api/amount.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

#include "lib/money.h"

PG_FUNCTION_INFO_V1(payflow_format_amount);
PG_FUNCTION_INFO_V1(payflow_parse_amount);

Datum
payflow_format_amount(PG_FUNCTION_ARGS)
{
	int64		amount = PG_GETARG_INT64(0);
	char	   *currency = text_to_cstring(PG_GETARG_TEXT_PP(1));

	PG_RETURN_TEXT_P(cstring_to_text(format_amount(amount, currency)));
}

Datum
payflow_parse_amount(PG_FUNCTION_ARGS)
{
	char	   *value = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *currency = text_to_cstring(PG_GETARG_TEXT_PP(1));

	PG_RETURN_INT64(parse_amount(value, currency));
}
