/*-------------------------------------------------------------------------
 *
 * sandbox.h
 *	  What the files of the test provider's driver share.
 *
 * IDENTIFICATION
 *	  src/provider/sandbox.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_SANDBOX_H
#define PAYFLOW_SANDBOX_H

#include "provider/provider.h"

/* sandbox_answer.c */
extern void sandbox_parse(CallKind call, const PaymentRow *payment, const ProviderResponse *response,
						  Outcome *outcome);

#endif							/* PAYFLOW_SANDBOX_H */
