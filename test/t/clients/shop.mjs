// A small shop in Node.js: takes one payment through payflow and prints what it saw, as JSON.
import pg from "pg";

const order = process.argv[2];
const control = process.env.SANDBOX_CONTROL;
const client = new pg.Client();
const seen = {};

async function call(text, values) {
  return (await client.query(text, values)).rows[0];
}

await client.connect();
await client.query("BEGIN");
const created = await call("SELECT * FROM payflow.create($1, $2, $3, return_url => $4)",
  [order, 1999, "EUR", "https://shop.example/back?s={SESSION_ID}"]);
await client.query("COMMIT");
seen.created = [created.status, created.http_status, created.replayed];

const ready = await call("SELECT * FROM payflow.wait($1, '30 seconds')", [created.session_id]);
seen.ready = [ready.status, ready.redirect_url !== null];
await call("SELECT * FROM payflow.payer_redirected($1)", [created.session_id]);

await fetch(`${control}/payments/${ready.provider_payment_id}/pay`, { method: "POST", body: "{}" });
const paid = await call("SELECT * FROM payflow.check($1, '30 seconds')", [created.session_id]);
seen.paid = [paid.status, paid.paid, paid.captured_amount];

const found = await client.query("SELECT * FROM payflow.find($1)", [order]);
seen.found = found.rows.map((row) => row.session_id === created.session_id);

try {
  await call("SELECT * FROM payflow.create($1, $2, $3)", [order, 1999, "EUR"]);
} catch (error) {
  seen.error = [error.code, error.detail, error.hint.length > 0];
}
await client.end();
console.log(JSON.stringify(seen));
