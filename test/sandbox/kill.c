/*-------------------------------------------------------------------------
 *
 * kill.c
 *	  Commands that kill our client while it waits for an answer.
 *
 * Each runs in a thread of its own while the call is suspended, so that other
 * calls go on.
 *
 * test/sandbox/kill.c
 *
 *-------------------------------------------------------------------------
 */
#include "kill.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "rules.h"

const char *kill_commands[KILL_TARGETS];
struct rlimit kill_files;

bool
kill_possible(KillTarget target)
{
	return kill_commands[target] != NULL;
}

/*
 * In the child, between fork and exec: only what is safe in a process that
 * had threads.  The command may start a server that outlives us, so it gets
 * none of our connections, no pipe that somebody reads to its end, and no
 * blocked signals.
 */
static void
become_command(const char *command)
{
	sigset_t	none;
	int			null = open("/dev/null", O_RDWR);

	if (null >= 0)
	{
		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
	}
	if (close_range(3, ~0U, 0) != 0)
	{
		for (int fd = 3; fd < 20000; fd++)
			close(fd);
	}
	setrlimit(RLIMIT_NOFILE, &kill_files);
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execl("/bin/sh", "sh", "-c", command, (char *) NULL);
	_exit(127);
}

/* Run a command and wait for its end; returns its exit status. */
static int
run(const char *command)
{
	int			status;
	pid_t		pid = fork();

	if (pid == 0)
		become_command(command);
	if (pid < 0)
		return 127;
	while (waitpid(pid, &status, 0) < 0)
	{
		if (errno != EINTR)
			return 127;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void *
kill_main(void *arg)
{
	Call	   *call = arg;
	int			status = run(kill_commands[call->kill_target]);

	store_lock();
	/* the rule may have been forgotten while the command ran */
	if (call->generation == store.generation)
	{
		call->rule->exit_status = status;
		if (!call->rule->after)
			api_abandon(call);
	}
	else
		call->answer.delivery = DELIVER_DROP;
	call->next = NULL;
	store_unlock();
	calls_resume(call);
	return NULL;
}

/*
 * Suspend the call and run the command of its rule.  Caller holds the store's
 * lock and is in the call's own thread.
 */
void
kill_start(Call *call)
{
	pthread_t	thread;

	call->kill_target = call->rule->target;
	call_suspend(call);
	if (pthread_create(&thread, NULL, kill_main, call) != 0)
		abort();
	pthread_detach(thread);
}
