/*-------------------------------------------------------------------------
 *
 * kill.h
 *	  Commands that kill our client while it waits for an answer.
 *
 * test/sandbox/kill.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SANDBOX_KILL_H
#define SANDBOX_KILL_H

#include <sys/resource.h>

#include "http.h"

typedef enum KillTarget
{
	KILL_SERVER,
	KILL_WORKER,
	KILL_TARGETS
} KillTarget;

/* The shell commands, from the command line; NULL: there is none */
extern const char *kill_commands[KILL_TARGETS];

/* Limit of open files that they get: ours is raised */
extern struct rlimit kill_files;

extern bool kill_possible(KillTarget target);
extern void kill_start(Call *call);

#endif							/* SANDBOX_KILL_H */
