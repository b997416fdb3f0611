// The obvious service: a job queue, one job a step, ten at once.
import { Logger, run } from "graphile-worker";
import pg from "pg";

const CONCURRENCY = 10;
const { PROVIDER_URL, PROVIDER_KEY } = process.env;

const pool = new pg.Pool({ max: CONCURRENCY + 5, options: "-c search_path=obvious" });
// a connection that is lost is replaced
const report = (error) => console.error(error.message);
pool.on("error", report);
pool.on("connect", (client) => client.on("error", report));

const logger = new Logger(() => (level, message) => level === "error" && console.error(message));

async function call(method, path, body, key) {
  const headers = { authorization: `Bearer ${PROVIDER_KEY}` };
  if (body) {
    headers["content-type"] = "application/json";
    headers["idempotency-key"] = key;
  }
  const response = await fetch(PROVIDER_URL + path, { method, headers, body: body && JSON.stringify(body) });
  const answer = await response.json();
  // the job is tried again later, with the same key
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${answer.error?.code}`);
  return answer;
}

async function inTransaction(work) {
  const client = await pool.connect();
  try {
    await client.query("BEGIN");
    await work(client);
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  } finally {
    client.release();
  }
}

async function find(id) {
  const { rows } = await pool.query(
    "SELECT id, order_id, amount, currency, status, provider_id FROM payments WHERE id = $1", [id]);
  return rows[0];
}

async function register({ id }) {
  const payment = await find(id);
  if (payment.status !== "new") return;
  const answer = await call("POST", "/v1/payments", {
    reference: payment.id,
    order: payment.order_id,
    amount: Number(payment.amount),
    currency: payment.currency,
  }, payment.id);
  await inTransaction(async (client) => {
    const { rowCount } = await client.query(
      `UPDATE payments SET status = 'registered', provider_id = $2, redirect_url = $3, updated_at = now()
       WHERE id = $1 AND status = 'new'`, [id, answer.id, answer.redirect_url]);
    if (rowCount === 0) return;
    await client.query("INSERT INTO journal (payment_id, event, status) VALUES ($1, 'register', 'registered')", [id]);
    await client.query("SELECT graphile_worker.add_job('status', json_build_object('id', $1::uuid))", [id]);
  });
}

async function status({ id }) {
  const payment = await find(id);
  if (payment.status !== "registered") return;
  const answer = await call("GET", `/v1/payments/${payment.provider_id}`);
  if (answer.status !== "paid") {
    await pool.query(
      `SELECT graphile_worker.add_job('status', json_build_object('id', $1::uuid),
         run_at => now() + interval '1 second')`, [id]);
    return;
  }
  if (answer.captured !== Number(payment.amount) || answer.currency !== payment.currency)
    throw new Error(`payment ${id}: another amount`);
  await inTransaction(async (client) => {
    await client.query("SELECT FROM orders WHERE id = $1 FOR UPDATE", [payment.order_id]);
    const { rowCount } = await client.query(
      `UPDATE payments SET status = 'completed', captured = $2, updated_at = now()
       WHERE id = $1 AND status = 'registered'`, [id, answer.captured]);
    if (rowCount === 0) return;
    await client.query("UPDATE orders SET status = 'paid' WHERE id = $1", [payment.order_id]);
    await client.query(
      `INSERT INTO ledger_entries (payment_id, order_id, debit, credit, amount, currency)
       VALUES ($1, $2, 'provider', 'merchant', $3, $4)`, [id, payment.order_id, answer.captured, answer.currency]);
    await client.query("INSERT INTO journal (payment_id, event, status) VALUES ($1, 'status', 'completed')", [id]);
  });
}

await run({ pgPool: pool, concurrency: CONCURRENCY, logger, taskList: { register, status } });
console.log("ready");
