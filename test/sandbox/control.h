/*-------------------------------------------------------------------------
 *
 * control.h
 *	  The control face, by which tests steer the provider.
 *
 * test/sandbox/control.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SANDBOX_CONTROL_H
#define SANDBOX_CONTROL_H

#include "http.h"

extern bool control_handle(Call *call);

/* acts.c; under the store's lock */
extern void act_handle(Call *call, const char *name, const char *act, json_t *what);

#endif							/* SANDBOX_CONTROL_H */
