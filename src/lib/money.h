/*-------------------------------------------------------------------------
 *
 * money.h
 *	  Currencies and amounts: minor units to and from exact decimal text.
 *
 * IDENTIFICATION
 *	  src/lib/money.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_MONEY_H
#define PAYFLOW_MONEY_H

/* the largest amount that we take or ask for */
#define MAX_AMOUNT INT64CONST(1000000000000000)

/*
 * How many decimal digits the currency's minor unit has; -1 when the code is
 * none of an active ISO 4217 currency, in upper case.
 */
extern int	currency_exponent(const char *code);

/*
 * Minor units from decimal text with at most `exponent` decimals.  False when
 * it is no such text or not within 0 .. MAX_AMOUNT.
 */
extern bool amount_from_text(const char *text, int exponent, int64 *amount);

/*
 * The SQL functions' work: text in the current memory context; ERROR PT400
 * invalid_currency or invalid_amount for what is none.
 */
extern char *format_amount(int64 amount, const char *currency);
extern int64 parse_amount(const char *text, const char *currency);

#endif							/* PAYFLOW_MONEY_H */
