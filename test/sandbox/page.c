/*-------------------------------------------------------------------------
 *
 * page.c
 *	  The page where a person pays, at a payment's redirect_url.
 *
 * test/sandbox/page.c
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "api.h"

static const char page_style[] =
	":root{color-scheme:light dark}"
	"*{box-sizing:border-box}"
	"body{margin:0;font:1rem/1.5 system-ui,sans-serif;background:#f3f4f6;color:#1f2430}"
	"main{max-width:26rem;margin:8vh auto;padding:2rem;background:#fff;border-radius:.75rem;"
	"box-shadow:0 1px 3px #0003}"
	"h1{margin:0 0 1rem;font-size:1.25rem}"
	"dl{display:grid;grid-template-columns:auto 1fr;gap:.25rem 1rem;margin:0 0 1.5rem}"
	"dt{color:#565d6d}dd{margin:0;text-align:right;overflow-wrap:anywhere}"
	".amount{font-size:1.5rem;font-weight:600}"
	"form{display:grid;gap:.75rem}"
	"button{padding:.75rem;font:inherit;border-radius:.5rem;border:1px solid #6b7280;"
	"background:transparent;color:inherit;cursor:pointer}"
	"button.first{background:#1d4ed8;border-color:#1d4ed8;color:#fff;font-weight:600}"
	"button:focus-visible,a:focus-visible{outline:3px solid #f59e0b;outline-offset:2px}"
	"p.note{margin:1.5rem 0 0;font-size:.875rem;color:#565d6d}"
	"@media(prefers-color-scheme:dark){body{background:#111418;color:#e6e8ec}"
	"main{background:#1c2128}dt,p.note{color:#a3aab8}}";

/* What is said of a payment, by status */
static const char *const page_words[] = {
	"waits for you", "waits for your confirmation", "is authorized", "is paid",
	"was declined", "has expired", "was canceled"
};

/* An amount of minor units with its decimal point. */
static void
put_amount(Buf *buf, int64_t amount, const char *currency)
{
	int			digits = currency_digits(currency);
	int64_t		unit = 1;

	for (int i = 0; i < digits; i++)
		unit *= 10;
	buf_int(buf, amount / unit);
	if (digits > 0)
		buf_printf(buf, ".%0*lld", digits, (long long) (amount % unit));
	buf_printf(buf, " %s", currency);
}

static void
put_row(Buf *buf, const char *name, const char *value)
{
	buf_printf(buf, "<dt>%s</dt><dd>", name);
	buf_html(buf, value);
	buf_puts(buf, "</dd>\n");
}

static void
put_head(Buf *buf, const char *title)
{
	buf_printf(buf, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
			   "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
			   "<title>%s</title>\n<style>%s</style>\n</head>\n<body>\n<main>\n<h1>%s</h1>\n",
			   title, page_style, title);
}

static void
put_buttons(Buf *buf, const Payment *payment)
{
	buf_puts(buf, "<form method=\"post\">\n");
	buf_printf(buf, "<button class=\"first\" name=\"act\" value=\"pay\">%s</button>\n",
			   payment->status == PAYMENT_REQUIRES_ACTION ? "Confirm and pay" : "Pay");
	buf_puts(buf, "<button name=\"act\" value=\"decline\">Decline</button>\n");
	if (payment->status == PAYMENT_PENDING)
		buf_puts(buf, "<button name=\"act\" value=\"authenticate\">Authenticate</button>\n");
	buf_puts(buf, "</form>\n");
}

static void
put_page(Buf *buf, const Payment *payment)
{
	char		id[24];

	payment_id(id, payment);
	put_head(buf, payment_is_open(payment) ? "Payment" : "Payment finished");
	buf_puts(buf, "<dl>\n");
	put_row(buf, "Order", payment->order == NULL ? "–" : payment->order->name);
	buf_puts(buf, "<dt>Amount</dt><dd class=\"amount\">");
	put_amount(buf, payment->amount, payment->currency);
	buf_puts(buf, "</dd>\n");
	put_row(buf, "Payment", id);
	buf_puts(buf, "</dl>\n");
	buf_printf(buf, "<p role=\"status\" data-status=\"%s\">The payment %s.</p>\n",
			   payment_status_names[payment->status], page_words[payment->status]);
	if (payment_is_open(payment))
		put_buttons(buf, payment);
	else if (payment->return_url != NULL)
	{
		buf_puts(buf, "<p><a href=\"");
		buf_html(buf, payment->return_url);
		buf_puts(buf, "\">Back to the shop</a></p>\n");
	}
	buf_puts(buf, "<p class=\"note\">This is a test provider: no money moves.</p>\n"
			 "</main>\n</body>\n</html>\n");
}

static void
put_missing(Buf *buf)
{
	put_head(buf, "No such payment");
	buf_puts(buf, "<p>There is no payment at this address.</p>\n</main>\n</body>\n</html>\n");
}

/* Was this button pressed?  It is a field in the body of the form. */
static bool
pressed(const Call *call, const char *act)
{
	Buf			body = {0};
	Buf			field = {0};
	bool		found;

	/* both terminated, and with the separators that make a field whole */
	buf_puts(&body, "&");
	buf_append(&body, call->body.data, call->body.len);
	buf_append(&body, "&", 2);
	buf_printf(&field, "&act=%s&", act);
	buf_append(&field, "", 1);
	found = strstr(body.data, field.data) != NULL;
	buf_free(&body);
	buf_free(&field);
	return found;
}

/* Do what the payer chose.  Returns false if he chose nothing we know. */
static bool
act(const Call *call, Payment *payment)
{
	if (pressed(call, "pay"))
		payment_payer_pays(payment);
	else if (pressed(call, "decline"))
		payment_decline(payment, NULL);
	else if (pressed(call, "authenticate"))
		payment_wait(payment, PAYMENT_REQUIRES_ACTION, STAGE_AUTHENTICATION);
	else
		return false;
	return true;
}

static void
answer_page(Call *call, int status, Buf *buf)
{
	answer_buf(call, status, "text/html; charset=utf-8", buf);
}

/*
 * A form was posted: act, then send the payer back to the shop if the payment
 * is finished, else to the page again.
 */
static void
handle_post(Call *call, Payment *payment)
{
	Buf			buf = {0};

	if (!payment_is_open(payment))
	{
		put_page(&buf, payment);
		answer_page(call, 409, &buf);
		return;
	}
	if (!act(call, payment))
	{
		put_page(&buf, payment);
		answer_page(call, 400, &buf);
		return;
	}
	if (!payment_is_open(payment) && payment->return_url != NULL)
		call->answer.location = xstrdup(payment->return_url);
	else
		call->answer.location = xstrdup(call->path);
	answer_page(call, 303, &buf);
}

/* /pay/{id}; not a call of the API, so neither counted nor met by rules */
bool
page_handle(Call *call, const char *id)
{
	Payment    *payment;
	Buf			buf = {0};

	store_lock();
	payment = payment_by_id(id);
	if (payment != NULL)
		payment_refresh(payment);
	if (payment == NULL)
	{
		put_missing(&buf);
		answer_page(call, 404, &buf);
	}
	else if (call_is(call, "POST"))
		handle_post(call, payment);
	else if (call_is(call, "GET"))
	{
		put_page(&buf, payment);
		answer_page(call, 200, &buf);
	}
	else
		answer_error(call, 405, "method_not_allowed", "the page takes GET and POST");
	store_unlock();
	return false;
}
