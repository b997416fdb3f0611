/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The settings of the test provider: their names, defaults and types, in
 *	  one table.
 *
 * test/sandbox/settings.c
 *
 *-------------------------------------------------------------------------
 */
#include "store.h"

#include <stdlib.h>
#include <string.h>

#include "webhook.h"

typedef enum SettingType
{
	SETTING_BOOL,
	SETTING_NUMBER,
	SETTING_WORD,
	SETTING_URL,
	SETTING_SECRET,
	SETTING_LIST
} SettingType;

typedef struct Setting
{
	const char *name;
	SettingType type;
	size_t		offset;
	int64_t		least;			/* of a number */
	const char *const *words;
} Setting;

static const char *const auto_words[] = {"none", "pay", "authorize", "decline", NULL};
static const char *const refund_words[] = {"pending", "succeed", "fail", NULL};

#define AT(field) offsetof(Settings, field)

static const Setting setting_table[] = {
	{"webhooks", SETTING_BOOL, AT(webhooks), 0, NULL},
	{"webhook_url", SETTING_URL, AT(webhook_url), 0, NULL},
	{"webhook_secret", SETTING_SECRET, AT(webhook_secret), 0, NULL},
	{"event_ids", SETTING_BOOL, AT(event_ids), 0, NULL},
	{"auto", SETTING_WORD, AT(auto_act), 0, auto_words},
	{"auto_delay_ms", SETTING_NUMBER, AT(auto_delay_ms), 0, NULL},
	{"expires_in", SETTING_NUMBER, AT(expires_in), 1, NULL},
	{"key_ttl_s", SETTING_NUMBER, AT(key_ttl_s), 0, NULL},
	{"find", SETTING_BOOL, AT(find), 0, NULL},
	{"find_lag_ms", SETTING_NUMBER, AT(find_lag_ms), 0, NULL},
	{"refunds", SETTING_WORD, AT(refunds), 0, refund_words},
	{"api_keys", SETTING_LIST, AT(api_keys), 0, NULL},
	{"record", SETTING_BOOL, AT(record), 0, NULL}
};

#define MAX_SETTING	INT64_C(1000000000000)

static void *
setting_place(const Settings *settings, const Setting *setting)
{
	return (char *) settings + setting->offset;
}

void
settings_reset(Settings *settings)
{
	free(settings->webhook_url);
	free(settings->webhook_secret);
	json_decref(settings->api_keys);
	memset(settings, 0, sizeof(*settings));
	settings->event_ids = true;
	settings->expires_in = 86400;
	settings->key_ttl_s = 86400;
	settings->find = true;
	settings->refunds = REFUND_SUCCEEDED;
	settings->api_keys = json_array();
	settings->record = true;
}

static const Setting *
setting_find(const char *name)
{
	for (size_t i = 0; i < lengthof(setting_table); i++)
	{
		if (strcmp(setting_table[i].name, name) == 0)
			return &setting_table[i];
	}
	return NULL;
}

static int
word_number(const Setting *setting, json_t *value)
{
	for (int i = 0; json_is_string(value) && setting->words[i] != NULL; i++)
	{
		if (strcmp(setting->words[i], json_string_value(value)) == 0)
			return i;
	}
	return -1;
}

static bool
setting_valid(const Setting *setting, json_t *value)
{
	size_t		i;
	json_t	   *item;

	switch (setting->type)
	{
		case SETTING_BOOL:
			return json_is_boolean(value);
		case SETTING_NUMBER:
			return json_is_integer(value) &&
				json_integer_value(value) >= setting->least &&
				json_integer_value(value) <= MAX_SETTING;
		case SETTING_WORD:
			return word_number(setting, value) >= 0;
		case SETTING_URL:
			return json_is_null(value) ||
				(json_is_string(value) &&
				 (after_prefix(json_string_value(value), "http://") != NULL ||
				  after_prefix(json_string_value(value), "https://") != NULL));
		case SETTING_SECRET:
			return json_is_null(value) ||
				(json_is_string(value) &&
				 webhook_secret_valid(json_string_value(value)));
		case SETTING_LIST:
			if (json_is_null(value))
				return true;
			if (!json_is_array(value))
				return false;
			json_array_foreach(value, i, item)
			{
				if (!json_is_string(item))
					return false;
			}
			return true;
	}
	return false;
}

static void
setting_set(Settings *settings, const Setting *setting, json_t *value)
{
	void	   *place = setting_place(settings, setting);

	switch (setting->type)
	{
		case SETTING_BOOL:
			*(bool *) place = json_is_true(value);
			break;
		case SETTING_NUMBER:
			*(int64_t *) place = json_integer_value(value);
			break;
		case SETTING_WORD:
			*(int *) place = word_number(setting, value);
			break;
		case SETTING_URL:
		case SETTING_SECRET:
			free(*(char **) place);
			*(char **) place = json_is_null(value) ? NULL :
				xstrdup(json_string_value(value));
			break;
		case SETTING_LIST:
			json_decref(*(json_t **) place);
			*(json_t **) place = json_is_null(value) ? json_array() :
				json_deep_copy(value);
			break;
	}
}

/*
 * Take over the given settings, all of them or none.  Returns the name of
 * the first one that is unknown or has a wrong value, else NULL.
 */
const char *
settings_change(Settings *settings, json_t *changes)
{
	const char *name;
	json_t	   *value;

	json_object_foreach(changes, name, value)
	{
		const Setting *setting = setting_find(name);

		if (setting == NULL || !setting_valid(setting, value))
			return name;
	}
	json_object_foreach(changes, name, value)
		setting_set(settings, setting_find(name), value);
	return NULL;
}

void
settings_json(Buf *buf, const Settings *settings)
{
	for (size_t i = 0; i < lengthof(setting_table); i++)
	{
		const Setting *setting = &setting_table[i];
		const void *place = setting_place(settings, setting);
		char	   *text;

		buf_puts(buf, i == 0 ? "{" : ",");
		buf_json(buf, setting->name);
		buf_puts(buf, ":");
		switch (setting->type)
		{
			case SETTING_BOOL:
				buf_puts(buf, *(const bool *) place ? "true" : "false");
				break;
			case SETTING_NUMBER:
				buf_int(buf, *(const int64_t *) place);
				break;
			case SETTING_WORD:
				buf_json(buf, setting->words[*(const int *) place]);
				break;
			case SETTING_URL:
			case SETTING_SECRET:
				buf_json(buf, *(char *const *) place);
				break;
			case SETTING_LIST:
				text = json_dumps(*(json_t *const *) place, JSON_COMPACT);
				buf_puts(buf, text);
				free(text);
				break;
		}
	}
	buf_puts(buf, "}");
}

/* Is this one of the keys that the API accepts? */
bool
settings_accept_key(const Settings *settings, const char *api_key)
{
	size_t		i;
	json_t	   *item;

	if (json_array_size(settings->api_keys) == 0)
		return true;
	json_array_foreach(settings->api_keys, i, item)
	{
		if (strcmp(json_string_value(item), api_key) == 0)
			return true;
	}
	return false;
}
