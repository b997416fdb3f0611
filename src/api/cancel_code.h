/*-------------------------------------------------------------------------
 *
 * cancel_code.h
 *	  The one-time code of a payment that is to be canceled.
 *
 * IDENTIFICATION
 *	  src/api/cancel_code.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYFLOW_CANCEL_CODE_H
#define PAYFLOW_CANCEL_CODE_H

#include "lib/payment_row.h"

/*
 * Uses the code up, of a payment that this transaction has locked.  False when
 * it is NULL, wrong (then it is counted), used, expired or dead, or when none
 * was ever issued.
 */
extern bool use_cancel_code(const PaymentRow *payment, const char *code);

#endif							/* PAYFLOW_CANCEL_CODE_H */
