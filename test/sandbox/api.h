/*-------------------------------------------------------------------------
 *
 * api.h
 *	  The provider's API.
 *
 * test/sandbox/api.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef SANDBOX_API_H
#define SANDBOX_API_H

#include "http.h"

/* api.c */
extern bool api_handle(Call *call);
extern void api_finish(Call *call);
extern void api_abandon(Call *call);

/* operations.c */
extern const char *operation_check(const Call *call);
extern void operation_do(Call *call);

/* page.c */
extern bool page_handle(Call *call, const char *id);

/* requests.c */
extern uint64_t request_note(const Call *call);
extern void request_answered(const Call *call);
extern void requests_forget(void);
extern void requests_json(Buf *buf, const char *reference, const char *order);

#endif							/* SANDBOX_API_H */
