/*-------------------------------------------------------------------------
 *
 * wire.c
 *	  Text as it goes over the wire: UTF-8, URLs, times.
 *
 * IDENTIFICATION
 *	  src/lib/wire.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <ctype.h>

#include "catalog/namespace.h"
#include "common/string.h"
#include "mb/pg_wchar.h"
#include "utils/datetime.h"

#include "lib/wire.h"

/*
 * Converts as far as possible, with '?' for each character that has no
 * counterpart, or returns NULL at the first of them.
 */
static const char *
convert(const char *text, int from, int to, bool replace)
{
	Oid			proc = FindDefaultConversionProc(from, to);
	const char *at = text;
	int			left = strlen(text);
	char	   *result = palloc((Size) left * MAX_CONVERSION_GROWTH + 1);
	char	   *out = result;

	*out = '\0';
	while (left > 0)
	{
		int			step = 0;

		if (OidIsValid(proc))
			step = pg_do_encoding_conversion_buf(proc, from, to, (unsigned char *) at, left,
												 (unsigned char *) out,
												 left * MAX_CONVERSION_GROWTH + 1, true);
		if (step > 0)
			out += strlen(out);
		else if (!IS_HIGHBIT_SET(*at))
		{
			*out++ = *at;
			step = 1;
		}
		else if (replace)
		{
			*out++ = '?';
			step = Min(pg_encoding_mblen(from, at), left);
		}
		else
			return NULL;
		at += step;
		left -= step;
		*out = '\0';
	}
	return result;
}

/* Of a database without an encoding: '?' for every byte that is not UTF-8. */
static const char *
mended_utf8(const char *text)
{
	char	   *result = pstrdup(text);
	char	   *at = result;
	int			left = strlen(text);

	while (left > 0)
	{
		int			valid = pg_encoding_verifymbstr(PG_UTF8, at, left);

		at += valid;
		left -= valid;
		if (left > 0)
		{
			*at++ = '?';
			left--;
		}
	}
	return result;
}

const char *
utf8_from_server(const char *text)
{
	int			encoding = GetDatabaseEncoding();

	if (encoding == PG_UTF8 || pg_is_ascii(text))
		return text;
	if (encoding == PG_SQL_ASCII)
		return mended_utf8(text);
	return convert(text, encoding, PG_UTF8, true);
}

const char *
server_from_utf8(const char *text, bool replace)
{
	int			encoding = GetDatabaseEncoding();

	if (encoding == PG_UTF8 || encoding == PG_SQL_ASCII || pg_is_ascii(text))
		return text;
	return convert(text, PG_UTF8, encoding, replace);
}

/*
 * The host of a URL and what follows the host and port.  False when the URL is
 * none that we use.
 */
static bool
split_url(const char *url, const char **host, int *host_length)
{
	const char *authority;
	const char *end;
	const char *port;

	if (pg_strncasecmp(url, "http://", 7) == 0)
		authority = url + 7;
	else if (pg_strncasecmp(url, "https://", 8) == 0)
		authority = url + 8;
	else
		return false;
	end = authority + strcspn(authority, "/?#");

	if (*authority == '[')
	{
		port = authority + strspn(authority, "[0123456789abcdefABCDEF:.");
		if (*port++ != ']')
			return false;
	}
	else
	{
		port = authority;
		while (port < end && (isalnum((unsigned char) *port) || IS_HIGHBIT_SET(*port) ||
							  *port == '-' || *port == '.' || *port == '_'))
			port++;
	}
	*host = authority;
	*host_length = port - authority;

	if (*port == ':')
	{
		int			digits = strspn(port + 1, "0123456789");

		if (digits < 1 || digits > 5 || atoi(port + 1) < 1 || atoi(port + 1) > 65535)
			return false;
		port += 1 + digits;
	}
	return *host_length > 0 && port == end;
}

bool
url_is_usable(const char *url)
{
	const char *host;
	int			host_length;

	if (strlen(url) > URL_MAX)
		return false;
	for (const char *at = url; *at != '\0'; at++)
	{
		/* browsers take a backslash for a slash, and so find another host */
		if ((unsigned char) *at <= ' ' || *at == 0x7f || *at == '\\')
			return false;
	}
	return split_url(url, &host, &host_length);
}

bool
url_is_loopback(const char *url)
{
	const char *host;
	int			host_length;
	struct in_addr number;

	if (!split_url(url, &host, &host_length))
		return false;
	host = pnstrdup(host, host_length);
	return pg_strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
		(inet_pton(AF_INET, host, &number) == 1 && (ntohl(number.s_addr) >> 24) == 127);
}

void
append_percent_encoded(StringInfo buf, const char *text)
{
	for (const char *at = utf8_from_server(text); *at != '\0'; at++)
	{
		if ((isalnum((unsigned char) *at) && !IS_HIGHBIT_SET(*at)) || strchr("-._~", *at) != NULL)
			appendStringInfoChar(buf, *at);
		else
			appendStringInfo(buf, "%%%02X", (unsigned char) *at);
	}
}

/*
 * A number of exactly so many digits that is followed by the character; moves
 * on behind that.  -1: it is none.  '\0' for the character: any may follow.
 */
static int
take_number(const char **at, int digits, char follows)
{
	int			number = 0;

	for (int i = 0; i < digits; i++, (*at)++)
	{
		if (!isdigit((unsigned char) **at))
			return -1;
		number = number * 10 + (**at - '0');
	}
	if (follows == '\0')
		return number;
	return *(*at)++ == follows ? number : -1;
}

/* Z, +hh:mm or -hh:mm at the end of a time, in seconds. */
static bool
take_offset(const char *at, int *offset)
{
	int			sign;
	int			hours;
	int			minutes;

	*offset = 0;
	if (*at == 'Z' || *at == 'z')
		return at[1] == '\0';
	if (*at != '+' && *at != '-')
		return false;
	sign = *at++ == '-' ? -1 : 1;
	hours = take_number(&at, 2, ':');
	if (hours < 0)
		return false;
	minutes = take_number(&at, 2, '\0');
	*offset = sign * (hours * SECS_PER_HOUR + minutes * SECS_PER_MINUTE);
	return hours < 24 && minutes >= 0 && minutes < 60 && *at == '\0';
}

bool
timestamp_from_wire(const char *text, TimestampTz *time)
{
	const char *at = text;
	int			year;
	int			month;
	int			day;
	int			hour;
	int			minute;
	int			second;
	int			offset;
	int64		fraction = 0;

	/* each number only if the ones before it are right: else `at` may be past the end */
	if ((year = take_number(&at, 4, '-')) < 1 ||
		(month = take_number(&at, 2, '-')) < 1 || month > MONTHS_PER_YEAR ||
		(day = take_number(&at, 2, '\0')) < 1 || day > day_tab[isleap(year)][month - 1])
		return false;
	if (*at != 'T' && *at != 't' && *at != ' ')
		return false;
	at++;
	if ((hour = take_number(&at, 2, ':')) < 0 || hour > 23 ||
		(minute = take_number(&at, 2, ':')) < 0 || minute > 59 ||
		(second = take_number(&at, 2, '\0')) < 0 || second > 60)
		return false;
	if (*at == '.')
	{
		int			weight = USECS_PER_SEC / 10;

		for (at++; isdigit((unsigned char) *at); at++, weight /= 10)
			fraction += (*at - '0') * weight;
	}
	if (!take_offset(at, &offset))
		return false;

	*time = (date2j(year, month, day) - POSTGRES_EPOCH_JDATE) * USECS_PER_DAY +
		(hour * SECS_PER_HOUR + minute * SECS_PER_MINUTE + second - offset) * USECS_PER_SEC + fraction;
	return true;
}
