// The skilled service: claims in batches, calls over a kept pool, applies in batches.
import pg from "pg";
import { Pool } from "undici";

const BATCH = 100;
const IN_FLIGHT = 200;
const IDLE_MS = 5;
const { PROVIDER_URL, PROVIDER_KEY } = process.env;

const provider = new Pool(PROVIDER_URL, { connections: IN_FLIGHT, pipelining: 1 });
const claimer = new pg.Client({ options: "-c search_path=skilled" });
const applier = new pg.Client({ options: "-c search_path=skilled" });

// ---- calling ----

async function call(method, path, body, key) {
  const headers = { authorization: `Bearer ${PROVIDER_KEY}` };
  if (body) {
    headers["content-type"] = "application/json";
    headers["idempotency-key"] = key;
  }
  const { statusCode, body: answer } = await provider.request({ method, path, headers, body });
  if (statusCode !== 200) {
    await answer.dump();
    throw new Error(`${method} ${path}: ${statusCode}`);
  }
  return answer.json();
}

function ask(payment) {
  if (payment.status === "registered") return call("GET", `/v1/payments/${payment.provider_id}`);
  return call("POST", "/v1/payments", JSON.stringify({
    reference: payment.id,
    order: payment.order_id,
    amount: Number(payment.amount),
    currency: payment.currency,
  }), payment.id);
}

// ---- claiming ----

// The lease is committed before anything is sent; it brings a lost payment back.
const CLAIM = `
  UPDATE payments p SET lease_until = now() + interval '1 minute', attempts = p.attempts + 1
  FROM (SELECT id FROM payments
        WHERE due_at <= now() AND (lease_until IS NULL OR lease_until < now())
        ORDER BY due_at LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED) due
  WHERE p.id = due.id
  RETURNING p.id, p.order_id, p.amount, p.currency, p.status, p.provider_id`;

async function claim() {
  const { rows } = await claimer.query({ name: "claim", text: CLAIM, values: [BATCH] });
  return rows;
}

// ---- applying ----

const LOCK_ORDERS = "SELECT FROM orders WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE";
const APPLY_REGISTERED = `
  WITH done AS (
    UPDATE payments p SET status = 'registered', provider_id = a.provider_id, redirect_url = a.redirect_url,
      due_at = now(), lease_until = NULL, updated_at = now()
    FROM unnest($1::uuid[], $2::text[], $3::text[]) AS a(id, provider_id, redirect_url)
    WHERE p.id = a.id AND p.status = 'new' RETURNING p.id)
  INSERT INTO journal (payment_id, event, status) SELECT id, 'register', 'registered' FROM done`;
const APPLY_PAID = `
  WITH done AS (
    UPDATE payments p SET status = 'completed', captured = a.captured, due_at = NULL, lease_until = NULL,
      updated_at = now()
    FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS a(id, captured, currency)
    WHERE p.id = a.id AND p.status = 'registered' AND p.amount = a.captured AND p.currency = a.currency
    RETURNING p.id, p.order_id, p.captured, p.currency),
  paid AS (
    UPDATE orders o SET status = 'paid' FROM done WHERE o.id = done.order_id),
  entries AS (
    INSERT INTO ledger_entries (payment_id, order_id, debit, credit, amount, currency)
    SELECT id, order_id, 'provider', 'merchant', captured, currency FROM done)
  INSERT INTO journal (payment_id, event, status) SELECT id, 'status', 'completed' FROM done`;
const APPLY_PENDING = `
  UPDATE payments SET due_at = now() + interval '1 second', lease_until = NULL WHERE id = ANY ($1)`;

function run(name, text, values) {
  return applier.query({ name, text, values });
}

async function apply(batch) {
  const registered = batch.filter(({ payment }) => payment.status === "new");
  const paid = batch.filter(({ payment, answer }) => payment.status === "registered" && answer.status === "paid");
  const pending = batch.filter(({ payment, answer }) => payment.status === "registered" && answer.status !== "paid");

  try {
    await run("begin", "BEGIN");
    await run("lock", LOCK_ORDERS, [batch.map(({ payment }) => payment.order_id)]);
    if (registered.length > 0)
      await run("registered", APPLY_REGISTERED, [
        registered.map(({ payment }) => payment.id),
        registered.map(({ answer }) => answer.id),
        registered.map(({ answer }) => answer.redirect_url),
      ]);
    if (paid.length > 0)
      await run("paid", APPLY_PAID, [
        paid.map(({ payment }) => payment.id),
        paid.map(({ answer }) => answer.captured),
        paid.map(({ answer }) => answer.currency),
      ]);
    if (pending.length > 0) await run("pending", APPLY_PENDING, [pending.map(({ payment }) => payment.id)]);
    await run("commit", "COMMIT");
  } catch (error) {
    await applier.query("ROLLBACK");
    console.error(error.message); // the leases end, and all of them are asked again
  }
}

// ---- two loops ----

let inFlight = 0;
const answered = [];
let wakeClaims = () => {};
let wakeAnswers = () => {};

function pause(setWake, ms) {
  return new Promise((resolve) => {
    const timer = ms && setTimeout(resolve, ms);
    setWake(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}

async function start(payment) {
  inFlight++;
  try {
    answered.push({ payment, answer: await ask(payment) });
    wakeAnswers();
  } catch (error) {
    console.error(error.message); // its lease ends
  }
  inFlight--;
  wakeClaims();
}

async function claimLoop() {
  for (;;) {
    if (IN_FLIGHT - inFlight - answered.length < BATCH) {
      await pause((wake) => { wakeClaims = wake; });
      continue;
    }
    const rows = await claim();
    rows.forEach(start);
    if (rows.length === 0) await pause((wake) => { wakeClaims = wake; }, IDLE_MS);
  }
}

async function applyLoop() {
  for (;;) {
    if (answered.length === 0) {
      await pause((wake) => { wakeAnswers = wake; });
      continue;
    }
    await apply(answered.splice(0, BATCH));
    wakeClaims();
  }
}

await claimer.connect();
await applier.connect();
console.log("ready");
await Promise.all([claimLoop(), applyLoop()]);
