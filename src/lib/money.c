/*-------------------------------------------------------------------------
 *
 * money.c
 *	  Currencies and amounts.  Integer arithmetic only: no amount ever passes
 *	  through a float.
 *
 * IDENTIFICATION
 *	  src/lib/money.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "common/int.h"
#include "mb/pg_wchar.h"

#include "lib/error.h"
#include "lib/money.h"

typedef struct Currency
{
	char		code[4];
	int8		exponent;
} Currency;

/*
 * The active codes of ISO 4217 that have a minor unit, funds codes too, sorted.
 * ANG, BGN and CUC have left the list since 2024 and stay for the payments that
 * were made in them.
 */
static const Currency currencies[] = {
	{"AED", 2}, {"AFN", 2}, {"ALL", 2}, {"AMD", 2}, {"ANG", 2}, {"AOA", 2}, {"ARS", 2},
	{"AUD", 2}, {"AWG", 2}, {"AZN", 2}, {"BAM", 2}, {"BBD", 2}, {"BDT", 2}, {"BGN", 2},
	{"BHD", 3}, {"BIF", 0}, {"BMD", 2}, {"BND", 2}, {"BOB", 2}, {"BOV", 2}, {"BRL", 2},
	{"BSD", 2}, {"BTN", 2}, {"BWP", 2}, {"BYN", 2}, {"BZD", 2}, {"CAD", 2}, {"CDF", 2},
	{"CHE", 2}, {"CHF", 2}, {"CHW", 2}, {"CLF", 4}, {"CLP", 0}, {"CNY", 2}, {"COP", 2},
	{"COU", 2}, {"CRC", 2}, {"CUC", 2}, {"CUP", 2}, {"CVE", 2}, {"CZK", 2}, {"DJF", 0},
	{"DKK", 2}, {"DOP", 2}, {"DZD", 2}, {"EGP", 2}, {"ERN", 2}, {"ETB", 2}, {"EUR", 2},
	{"FJD", 2}, {"FKP", 2}, {"GBP", 2}, {"GEL", 2}, {"GHS", 2}, {"GIP", 2}, {"GMD", 2},
	{"GNF", 0}, {"GTQ", 2}, {"GYD", 2}, {"HKD", 2}, {"HNL", 2}, {"HTG", 2}, {"HUF", 2},
	{"IDR", 2}, {"ILS", 2}, {"INR", 2}, {"IQD", 3}, {"IRR", 2}, {"ISK", 0}, {"JMD", 2},
	{"JOD", 3}, {"JPY", 0}, {"KES", 2}, {"KGS", 2}, {"KHR", 2}, {"KMF", 0}, {"KPW", 2},
	{"KRW", 0}, {"KWD", 3}, {"KYD", 2}, {"KZT", 2}, {"LAK", 2}, {"LBP", 2}, {"LKR", 2},
	{"LRD", 2}, {"LSL", 2}, {"LYD", 3}, {"MAD", 2}, {"MDL", 2}, {"MGA", 2}, {"MKD", 2},
	{"MMK", 2}, {"MNT", 2}, {"MOP", 2}, {"MRU", 2}, {"MUR", 2}, {"MVR", 2}, {"MWK", 2},
	{"MXN", 2}, {"MXV", 2}, {"MYR", 2}, {"MZN", 2}, {"NAD", 2}, {"NGN", 2}, {"NIO", 2},
	{"NOK", 2}, {"NPR", 2}, {"NZD", 2}, {"OMR", 3}, {"PAB", 2}, {"PEN", 2}, {"PGK", 2},
	{"PHP", 2}, {"PKR", 2}, {"PLN", 2}, {"PYG", 0}, {"QAR", 2}, {"RON", 2}, {"RSD", 2},
	{"RUB", 2}, {"RWF", 0}, {"SAR", 2}, {"SBD", 2}, {"SCR", 2}, {"SDG", 2}, {"SEK", 2},
	{"SGD", 2}, {"SHP", 2}, {"SLE", 2}, {"SOS", 2}, {"SRD", 2}, {"SSP", 2}, {"STN", 2},
	{"SVC", 2}, {"SYP", 2}, {"SZL", 2}, {"THB", 2}, {"TJS", 2}, {"TMT", 2}, {"TND", 3},
	{"TOP", 2}, {"TRY", 2}, {"TTD", 2}, {"TWD", 2}, {"TZS", 2}, {"UAH", 2}, {"UGX", 0},
	{"USD", 2}, {"USN", 2}, {"UYI", 0}, {"UYU", 2}, {"UYW", 4}, {"UZS", 2}, {"VED", 2},
	{"VES", 2}, {"VND", 0}, {"VUV", 0}, {"WST", 2}, {"XAD", 2}, {"XAF", 0}, {"XCD", 2},
	{"XCG", 2}, {"XOF", 0}, {"XPF", 0}, {"YER", 2}, {"ZAR", 2}, {"ZMW", 2}, {"ZWG", 2},
};

static int
compare_code(const void *code, const void *currency)
{
	return strcmp((const char *) code, ((const Currency *) currency)->code);
}

int
currency_exponent(const char *code)
{
	const Currency *currency = bsearch(code, currencies, lengthof(currencies), sizeof(Currency),
									   compare_code);

	return currency == NULL ? -1 : currency->exponent;
}

/* The exponent of a currency that must be a known one. */
static int
checked_exponent(const char *currency)
{
	int			exponent = currency_exponent(currency);

	if (exponent < 0)
		ereport(ERROR,
				payflow_error(ERRCODE_PAYFLOW_BAD_REQUEST, "invalid_currency"),
				errmsg("currency \"%.*s\" is not known",
					   pg_mbcliplen(currency, strlen(currency), 20), currency),
				errhint("Use an ISO 4217 code in upper case, such as EUR."));
	return exponent;
}

/*
 * Adds a digit.  False when the amount would exceed what is accepted.
 */
static bool
append_digit(int64 *amount, int digit)
{
	return !pg_mul_s64_overflow(*amount, 10, amount) &&
		!pg_add_s64_overflow(*amount, digit, amount) &&
		*amount <= MAX_AMOUNT;
}

bool
amount_from_text(const char *text, int exponent, int64 *amount)
{
	int64		value = 0;
	int			missing = exponent; /* decimals still to come */
	const char *at = text;

	if (!isdigit((unsigned char) *at))
		return false;
	for (; isdigit((unsigned char) *at); at++)
	{
		if (!append_digit(&value, *at - '0'))
			return false;
	}
	if (*at == '.')
	{
		at++;
		if (!isdigit((unsigned char) *at))
			return false;
		for (; isdigit((unsigned char) *at); at++, missing--)
		{
			if (missing == 0 || !append_digit(&value, *at - '0'))
				return false;
		}
	}
	if (*at != '\0')
		return false;
	for (; missing > 0; missing--)
	{
		if (!append_digit(&value, 0))
			return false;
	}
	*amount = value;
	return true;
}

char *
format_amount(int64 amount, const char *currency)
{
	int			exponent = checked_exponent(currency);
	const char *sign = amount < 0 ? "-" : "";
	uint64		magnitude = amount < 0 ? -(uint64) amount : (uint64) amount;
	uint64		unit = 1;

	if (exponent == 0)
		return psprintf("%s" UINT64_FORMAT, sign, magnitude);
	for (int i = 0; i < exponent; i++)
		unit *= 10;
	return psprintf("%s" UINT64_FORMAT ".%0*d", sign, magnitude / unit,
					exponent, (int) (magnitude % unit));
}

int64
parse_amount(const char *text, const char *currency)
{
	int			exponent = checked_exponent(currency);
	int64		amount;

	if (!amount_from_text(text, exponent, &amount))
		ereport(ERROR,
				payflow_error(ERRCODE_PAYFLOW_BAD_REQUEST, "invalid_amount"),
				errmsg("\"%s\" is not an amount of %s", text, currency),
				exponent == 0 ?
				errhint("Write whole units in digits, at most 10^15.") :
				errhint("Write digits with a decimal point and at most %d decimals; at most 10^15 in minor units.",
						exponent));
	return amount;
}
