/*-------------------------------------------------------------------------
 *
 * signature.c
 *	  Signatures of the Standard Webhooks scheme: v1, then the base64 of
 *	  HMAC-SHA256 over id.timestamp.body.
 *
 * test/sandbox/signature.c
 *
 *-------------------------------------------------------------------------
 */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "webhook.h"

#define SECRET_PREFIX	"whsec_"
#define MAX_SECRET		1024

/*
 * The bytes of a secret: base64 after the prefix whsec_, else as it is.
 * Returns how many there are, or -1 if it is malformed.
 */
static int
secret_bytes(const char *secret, unsigned char out[MAX_SECRET])
{
	const char *base64 = after_prefix(secret, SECRET_PREFIX);
	size_t		len = strlen(base64 == NULL ? secret : base64);
	int			n;

	if (len == 0 || len > MAX_SECRET)
		return -1;
	if (base64 == NULL)
	{
		memcpy(out, secret, len);
		return (int) len;
	}
	if (len % 4 != 0)
		return -1;
	n = EVP_DecodeBlock(out, (const unsigned char *) base64, (int) len);
	/* the decoder counts the padding as bytes */
	for (size_t i = len; n > 0 && i > len - 2 && base64[i - 1] == '='; i--)
		n--;
	return n > 0 ? n : -1;
}

bool
webhook_secret_valid(const char *secret)
{
	unsigned char bytes[MAX_SECRET];

	return secret_bytes(secret, bytes) > 0;
}

/* The value of the header webhook-signature. */
void
webhook_sign(char out[64], const WebhookEvent *event, int64_t timestamp)
{
	unsigned char secret[MAX_SECRET];
	unsigned char mac[EVP_MAX_MD_SIZE];
	unsigned int mac_len = 0;
	int			secret_len = secret_bytes(event->secret, secret);
	Buf			buf = {0};

	buf_printf(&buf, "%s.%lld.", event->id == NULL ? "" : event->id,
			   (long long) timestamp);
	buf_append(&buf, event->body, event->body_len);
	HMAC(EVP_sha256(), secret, secret_len, (unsigned char *) buf.data, buf.len,
		 mac, &mac_len);
	buf_free(&buf);

	if (event->forge)
		mac[0] ^= 1;
	memcpy(out, "v1,", 3);
	EVP_EncodeBlock((unsigned char *) out + 3, mac, (int) mac_len);
}
