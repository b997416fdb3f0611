/*-------------------------------------------------------------------------
 *
 * main.c
 *	  A payment provider for tests: command line, start and end.
 *
 * test/sandbox/main.c
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <getopt.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "api.h"
#include "control.h"
#include "kill.h"
#include "timer.h"
#include "webhook.h"

typedef struct Options
{
	int			port;
	int			control_port;
	const char *ready_file;
	char	   *tls_cert;		/* PEM text, or NULL */
	char	   *tls_key;
} Options;

static Face api_face = {.handle = api_handle,.max_body = 1024 * 1024};
static Face control_face = {.handle = control_handle,.max_body = 16 * 1024 * 1024};

static void
usage(FILE *out)
{
	fputs("Usage: sandbox [OPTION]...\n"
		  "A payment provider for tests.\n\n"
		  "  --port=PORT           of the provider's API (default 0: choose one)\n"
		  "  --control-port=PORT   of the control API (default 0: choose one)\n"
		  "  --ready-file=FILE     is written, with both addresses, when both listen;\n"
		  "                        without it they go to standard output\n"
		  "  --kill-server=CMD     shell command of the rule kill, target server\n"
		  "  --kill-worker=CMD     the same, target worker\n"
		  "  --tls-cert=FILE       certificate (chain) in PEM: the API speaks https\n"
		  "  --tls-key=FILE        its key\n"
		  "  --help\n\n"
		  "It runs until SIGTERM.\n", out);
}

static int
read_port(const char *text)
{
	int64_t		port;

	if (!parse_int(text, &port) || port > 65535)
	{
		fprintf(stderr, "sandbox: \"%s\" is no port\n", text);
		exit(2);
	}
	return (int) port;
}

static char *
read_file(const char *name)
{
	FILE	   *file = fopen(name, "r");
	Buf			buf = {0};
	char		block[4096];
	size_t		n;

	if (file == NULL)
	{
		fprintf(stderr, "sandbox: cannot read \"%s\": %m\n", name);
		exit(1);
	}
	while ((n = fread(block, 1, sizeof(block), file)) > 0)
		buf_append(&buf, block, n);
	fclose(file);
	return buf_take(&buf, NULL);
}

static void
read_options(int argc, char **argv, Options *options)
{
	static const struct option longopts[] = {
		{"port", required_argument, NULL, 'p'},
		{"control-port", required_argument, NULL, 'c'},
		{"ready-file", required_argument, NULL, 'r'},
		{"kill-server", required_argument, NULL, 's'},
		{"kill-worker", required_argument, NULL, 'w'},
		{"tls-cert", required_argument, NULL, 'C'},
		{"tls-key", required_argument, NULL, 'K'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0}
	};
	int			c;

	while ((c = getopt_long(argc, argv, "", longopts, NULL)) != -1)
	{
		switch (c)
		{
			case 'p':
				options->port = read_port(optarg);
				break;
			case 'c':
				options->control_port = read_port(optarg);
				break;
			case 'r':
				options->ready_file = optarg;
				break;
			case 's':
				kill_commands[KILL_SERVER] = optarg;
				break;
			case 'w':
				kill_commands[KILL_WORKER] = optarg;
				break;
			case 'C':
				options->tls_cert = read_file(optarg);
				break;
			case 'K':
				options->tls_key = read_file(optarg);
				break;
			case 'h':
				usage(stdout);
				exit(0);
			default:
				usage(stderr);
				exit(2);
		}
	}
	if (optind < argc || (options->tls_cert == NULL) != (options->tls_key == NULL))
	{
		usage(stderr);
		exit(2);
	}
	if (options->tls_cert != NULL && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
	{
		fputs("sandbox: libmicrohttpd was built without TLS\n", stderr);
		exit(1);
	}
}

/* A thousand held calls are a thousand files. */
static void
raise_file_limit(void)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	kill_files = limit;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/*
 * Tell where we listen.  The file appears whole, by its renaming, so that
 * whoever waits for it can read it at once.
 */
static bool
write_ready(const char *name)
{
	char		temporary[4096];
	FILE	   *file = stdout;

	if (name != NULL)
	{
		snprintf(temporary, sizeof(temporary), "%s.%d", name, (int) getpid());
		file = fopen(temporary, "w");
		if (file == NULL)
			return false;
	}
	fprintf(file, "SANDBOX_URL=%s\nSANDBOX_CONTROL=http://127.0.0.1:%d\n",
			api_url, control_face.port);
	if (name == NULL)
		return fflush(file) == 0;
	return fclose(file) == 0 && rename(temporary, name) == 0;
}

int
main(int argc, char **argv)
{
	Options		options = {0};
	char		url[64];
	sigset_t	signals;
	int			caught;

	read_options(argc, argv, &options);
	raise_file_limit();
	signal(SIGPIPE, SIG_IGN);

	/* blocked before there are threads, which inherit it: main alone waits */
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);

	if (!face_listen(&control_face, options.control_port) ||
		!face_listen(&api_face, options.port))
		return 1;
	snprintf(url, sizeof(url), "%s://127.0.0.1:%d",
			 options.tls_cert != NULL ? "https" : "http", api_face.port);
	api_url = url;

	store_init();
	timer_start();
	webhook_start();
	if (!face_start(&control_face, NULL, NULL) ||
		!face_start(&api_face, options.tls_cert, options.tls_key))
		return 1;
	if (!write_ready(options.ready_file))
	{
		fprintf(stderr, "sandbox: cannot write \"%s\": %m\n", options.ready_file);
		return 1;
	}

	sigwait(&signals, &caught);
	/* at once: held calls are not waited for */
	_exit(0);
}
